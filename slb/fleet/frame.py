"""What one process publishes of itself, and what is believed of it.

A frame is a JSON object: `v` (the version of this form), `id`, `n` (its number), `full` (what was shown before is to
be forgotten) and the sections below. `upstreams` and `routes` have rows of what has changed; the other sections are
whole. Rates are per second, times are seconds.

Any program that may publish may publish anything. What is read here has the right types and bounded lengths; a
frame that is none is passed over. Rows of upstreams and routes that the reader's own mirror does not have are
dropped by the reader, so nobody can make it keep more than it knows.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

VERSION = 1
MOST_UPSTREAMS = 256
"""Rows of upstreams in one frame. With more that change all the time each is as old as there are frames to a
round: with 1,000 it is 4 s."""
MOST_ROUTES = 64
MOST_POOLS = 128
MOST_QUEUES = 256
MOST_MODELS = 100
MOST_REASONS = 16
MOST_SHARES = 200
"""Members of a ring."""
_LONGEST_NAME = 2048  # a path
_LONGEST_TEXT = 300
_LARGEST = 1e15

HEALTH = ("unchecked", "up", "failing", "ejected", "down")
"""From the best to the worst."""


class UpstreamRow(NamedTuple):
    """Of one upstream, as one process sees it. `health`: its place in `HEALTH`; `held`: slots, in all pools;
    `latency`: the mean of late, 0.0 where nothing ended."""

    health: int = 0
    why: str = ""
    inflight: int = 0
    held: int = 0
    rate: float = 0.0
    error_rate: float = 0.0
    latency: float = 0.0


class RouteRow(NamedTuple):
    """Of one route, lately. `times`: a histogram of durations by `LATENCY_BOUNDS`, per second; empty for none;
    `reasons`: name and rate of what slb answered itself."""

    panic: bool = False
    rate: float = 0.0
    error_rate: float = 0.0
    times: tuple[float, ...] = ()
    reasons: tuple[tuple[str, float], ...] = ()


class PoolRow(NamedTuple):
    """`holders`, `queued`: -1 where unknown; `held`: slots of this process."""

    name: str
    mode: str
    error: str
    holders: int
    queued: int
    held: int


class QueueRow(NamedTuple):
    pool: str
    route: str
    priority: str
    depth: int
    oldest: float


class Frame(NamedTuple):
    """`instance` has texts, numbers and booleans by name; `jobs`, `quota`, `rings` are empty where this process
    does not tell of them."""

    id: str
    number: int
    full: bool
    instance: Mapping[str, Any]
    upstreams: Sequence[tuple[str, UpstreamRow]] = ()
    routes: Sequence[tuple[str, RouteRow]] = ()
    pools: Sequence[PoolRow] = ()
    queues: Sequence[QueueRow] = ()
    jobs: Mapping[str, Any] = {}
    quota: Mapping[str, Any] = {}
    rings: Mapping[str, Any] = {}


def written(frame: Frame) -> bytes:
    """A frame as it is published."""
    rows = {
        "upstreams": [[name, *row] for name, row in frame.upstreams],
        "routes": [[name, *row] for name, row in frame.routes],
    }
    return orjson.dumps({"v": VERSION, **frame._asdict(), **rows})


def read(text: str) -> Frame | None:
    """None for what is no frame of this version."""
    try:
        found = orjson.loads(text)
        return _frame(found) if found["v"] == VERSION else None
    except (ValueError, TypeError, KeyError, IndexError):
        return None


def _frame(found: dict[str, Any]) -> Frame:
    return Frame(
        id=name_of(found["id"], 64),
        number=int(number(found["number"])),
        full=found["full"] is True,
        instance=flat(found["instance"]),
        upstreams=[(name_of(row[0]), _upstream(row)) for row in listed(found["upstreams"], MOST_UPSTREAMS)],
        routes=[(name_of(row[0]), _route(row)) for row in listed(found["routes"], MOST_ROUTES)],
        pools=[_pool(row) for row in listed(found["pools"], MOST_POOLS)],
        queues=[_queue(row) for row in listed(found["queues"], MOST_QUEUES)],
        jobs=mapped(found["jobs"], flat),
        quota=mapped(found["quota"], flat),
        rings=mapped(found["rings"], _shares),
    )


def _upstream(row: Sequence[Any]) -> UpstreamRow:
    _, health, why, inflight, held, rate, errors, latency = row
    if not 0 <= health < len(HEALTH):
        raise ValueError(health)
    why = _text(why) if why else ""
    figures = int(number(inflight)), int(number(held)), number(rate), number(errors), number(latency)
    return UpstreamRow(int(health), why, *figures)


def _route(row: Sequence[Any]) -> RouteRow:
    _, panic, rate, errors, times, reasons = row
    found = tuple((name_of(name, 64), number(each)) for name, each in listed(reasons, MOST_REASONS))
    return RouteRow(panic is True, number(rate), number(errors), tuple(map(number, listed(times, 64))), found)


def _pool(row: Sequence[Any]) -> PoolRow:
    name, mode, error, holders, queued, held = row
    return PoolRow(
        name_of(name), name_of(mode, 16), _text(error), int(number(holders)), int(number(queued)), int(number(held))
    )


def _queue(row: Sequence[Any]) -> QueueRow:
    pool, route, priority, depth, oldest = row
    return QueueRow(name_of(pool), name_of(route), _text(priority), int(number(depth)), number(oldest))


def _shares(found: Any) -> list[tuple[str, float]]:
    return [(name_of(member), number(share)) for member, share in listed(found, MOST_SHARES)]


# -- single values. Raise ValueError, TypeError


def name_of(value: Any, longest: int = _LONGEST_NAME) -> str:
    if type(value) is not str or len(value) > longest:
        raise ValueError("no name")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("no text")
    return value[:_LONGEST_TEXT]


def number(value: Any) -> float:
    """A number that can be added up."""
    if type(value) is int or type(value) is float:
        if -_LARGEST < value < _LARGEST:
            return value
    raise ValueError("no number")


def listed(value: Any, most: int) -> Sequence[Any]:
    if type(value) is not list or len(value) > most:
        raise ValueError("no list")
    return value


def mapped(value: Any, read_one: Callable[[Any], Any]) -> dict[str, Any]:
    if type(value) is not dict or len(value) > MOST_MODELS:
        raise ValueError("no object")
    return {name_of(name): read_one(each) for name, each in value.items()}


def flat(value: Any) -> dict[str, Any]:
    """An object of texts, numbers, booleans, nulls and lists of texts, and of objects of numbers."""
    if type(value) is not dict or len(value) > MOST_MODELS:
        raise ValueError("no object")
    return {name_of(name, 128): _plain(each) for name, each in value.items()}


def _plain(value: Any) -> Any:
    if value is None or value is True or value is False:
        return value
    if type(value) is str:
        return _text(value)
    if type(value) is list:
        return [_text(each) for each in listed(value, MOST_REASONS)]
    if type(value) is dict:
        return {name_of(name, _LONGEST_TEXT): number(each) for name, each in listed_items(value)}
    return number(value)


def listed_items(value: dict[str, Any]) -> Sequence[tuple[str, Any]]:
    return listed(list(value.items()), MOST_MODELS)



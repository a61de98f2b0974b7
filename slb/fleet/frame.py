"""What one process publishes of itself, and what is believed of it.

A frame is a JSON object: `v` (the version of this form), `id`, `number`, `full` (what was shown before is to be
forgotten) and the sections below. `pools` and `queues` are whole, the others have what has changed. Rates are per
second, times are seconds.

Any program that may publish may publish anything. What is read here has the right types and bounded lengths; a
frame that is none is passed over. Rows of upstreams and routes that the reader's own mirror does not have are
dropped by the reader, so nobody can make it keep more than it knows.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from slb.fleet.frame_values import Shape, listed, mapped, name_of, number, shaped, text_of

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
HEALTH = ("unchecked", "up", "failing", "ejected", "down")
"""From the best to the worst."""


INSTANCE: Shape = {
    "name": "",
    "version": "",
    "roles": [],
    "host": "",
    "pid": 0,
    "address": "",
    "api": "",
    "zone": "",
    "started": 0.0,
    "draining": False,
    "rate": None,
    "inflight": None,
    "p50": None,
    "p99": None,
    "error_rate": None,
    "connections": None,
    "redis_up": False,
    "redis_mode": "",
    "staleness": None,
    "group": "",
    "now": None,
}
JOBS: Shape = {
    "paused": False,
    "buffered": 0,
    "queued": 0,
    "retrying": 0,
    "processing": 0,
    "callbacks": 0,
    "dead": 0,
    "ended": 0,
    "oldest": "",
    "oldest_since": None,
    "counts": {},
    "rate": 0.0,
    "failed_by": {},
    "at_risk": "",
}
QUOTA: Shape = {
    "tokens": 0.0,
    "tokens_limit": 0,
    "tokens_per_minute": 0,
    "tokens_last_minute": 0,
    "slots": 0,
    "slots_limit": 0,
    "share": 0.0,
    "promised": 0,
    "waiting": 0,
    "paused": False,
}


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
    """`instance` is shaped as `INSTANCE`; `jobs`, `quota`, `rings` have what has changed, by model or route: none
    where this process does not tell of them, and what is empty in them has left."""

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
    return orjson.dumps({"v": VERSION, **frame._asdict(), **rows}, default=list)


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
        instance=shaped(found["instance"], INSTANCE),
        upstreams=[(name_of(row[0]), _upstream(row)) for row in listed(found["upstreams"], MOST_UPSTREAMS)],
        routes=[(name_of(row[0]), _route(row)) for row in listed(found["routes"], MOST_ROUTES)],
        pools=[_pool(row) for row in listed(found["pools"], MOST_POOLS)],
        queues=[_queue(row) for row in listed(found["queues"], MOST_QUEUES)],
        jobs=mapped(found["jobs"], _job),
        quota=mapped(found["quota"], _quota),
        rings=mapped(found["rings"], _ring),
    )


def _upstream(row: Sequence[Any]) -> UpstreamRow:
    _, health, why, inflight, held, rate, errors, latency = row
    if not 0 <= health < len(HEALTH):
        raise ValueError(health)
    why = text_of(why) if why else ""
    figures = int(number(inflight)), int(number(held)), number(rate), number(errors), number(latency)
    return UpstreamRow(int(health), why, *figures)


def _route(row: Sequence[Any]) -> RouteRow:
    _, panic, rate, errors, times, reasons = row
    found = tuple((name_of(name, 64), number(each)) for name, each in listed(reasons, MOST_REASONS))
    return RouteRow(panic is True, number(rate), number(errors), tuple(map(number, listed(times, 64))), found)


def _pool(row: Sequence[Any]) -> PoolRow:
    name, mode, error, holders, queued, held = row
    return PoolRow(
        name_of(name),
        name_of(mode, 16),
        text_of(error),
        int(number(holders)),
        int(number(queued)),
        int(number(held)),
    )


def _queue(row: Sequence[Any]) -> QueueRow:
    pool, route, priority, depth, oldest = row
    return QueueRow(name_of(pool), name_of(route), text_of(priority), int(number(depth)), number(oldest))


def _job(found: Any) -> dict[str, Any]:
    return shaped(found, JOBS) if found else {}


def _quota(found: Any) -> dict[str, Any]:
    return shaped(found, QUOTA) if found else {}


def _ring(found: Any) -> dict[str, Any]:
    if not found:
        return {}
    return {"shares": [[name_of(member), number(share)] for member, share in listed(found["shares"], MOST_SHARES)]}

"""What one process publishes of itself, and what is believed of it.

A frame is a JSON object: `v` (the version of this form), `id`, `number`, `full` (what was shown before is to be
forgotten) and the sections below. `pools` and `queues` are whole, the others have what has changed. Rates are per
second, times are seconds. What a later version adds is a section of its own, which an earlier one passes over, and
which may be missing; a row that were longer would be a frame that others cannot read.

Any program that may publish may publish anything. What is read here has the right types and bounded lengths; a
frame that is none is passed over. Rows of upstreams and routes that the reader's own mirror does not have are
dropped by the reader, so nobody can make it keep more than it knows. Rows are read by pydantic's own code: in
Python a frame would take ten times as long.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from slb.answers import dumped
from slb.fleet.frame_values import Shape, shaped

VERSION = 1
MOST_UPSTREAMS = 128
"""Rows of upstreams in one frame. With more that change all the time each is as old as there are frames to a
round: with 1,000 it is 8 s."""
MOST_ROUTES = 64
MOST_POOLS = 128
MOST_QUEUES = 256
MOST_MODELS = 100
MOST_REASONS = 16
MOST_SHARES = 200
"""Members of a ring."""

HEALTH = ("unchecked", "up", "failing", "ejected", "down")
"""From the best to the worst. Which of them are busy besides stands in a section of its own."""

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
    "polling_since": None,
}
JOBS: Shape = {
    "paused": False,
    "buffered": 0,
    "queued": 0,
    "retrying": 0,
    "processing": 0,
    "callbacks": 0,
    "dead": 0,
    "dead_since": None,
    "ended": 0,
    "oldest": "",
    "oldest_since": None,
    "counts": {},
    "rate": 0.0,
    "failed_by": {},
    "retried_by": {},
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
    "next": [{"key": "", "tokens": 0, "due": 0.0}],
    "paused": False,
}


Id = Annotated[str, Field(max_length=64)]
Name = Annotated[str, Field(max_length=2048)]
Text = Annotated[str, Field(max_length=300)]
Count = Annotated[int, Field(ge=-1, le=10**15)]
Number = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]

Health = Annotated[int, Field(ge=0, lt=len(HEALTH))]

UpstreamRow = tuple[Health, Text, Count, Count, Number, Number, Number]
"""Of one upstream, as one process sees it: the place of its health in `HEALTH`; why it is out or fails; requests
in flight; slots held, in all pools; requests and errors per second; the mean time of late, 0.0 where nothing
ended."""

RouteRow = tuple[
    bool,
    Number,
    Number,
    Annotated[Sequence[Number], Field(max_length=64)],
    Annotated[Mapping[Id, Number], Field(max_length=MOST_REASONS)],
]
"""Of one route, lately: whether it panics; requests and errors per second; a histogram of durations by
`LATENCY_BOUNDS`, per second, empty for none; by reason the rate of what slb answered itself."""

NO_UPSTREAM_ROW: UpstreamRow = (0, "", 0, 0, 0.0, 0.0, 0.0)
NO_ROUTE_ROW: RouteRow = (False, 0.0, 0.0, (), {})


class PoolRow(NamedTuple):
    """`holders`, `queued`: -1 where unknown; `held`: slots of this process."""

    name: Name
    mode: Id
    error: Text
    holders: Count
    queued: Count
    held: Count


class QueueRow(NamedTuple):
    """`oldest`: seconds that the first has waited."""

    pool: Name
    route: Name
    priority: Text
    depth: Count
    oldest: Number


class Frame(NamedTuple):
    """`instance` is shaped as `INSTANCE`; `jobs`, `quota`, `rings` have what has changed, by model or route: none
    where this process does not tell of them, and what is empty in them has left. `since`: of those of `upstreams`
    that are ejected or down, since when, in seconds since 1970 by this process's clock. `first_bytes`: the mean
    time of late from when a request was sent there to the first byte of its answer. `busy`: all upstreams that this
    process has set aside now; `spared`: those that it would eject, were `max_ejected` not reached, or finds stuck,
    which `since` has too; `stuck`: those that owe an answer for too long, spared or ejected; `failing`: the routes
    and upstreams of which requests have failed here in the last minute; `empty_since`, `faults_since`: the routes
    without a member, and with settings that are not used, since when each is so, as `since`, where this process has
    seen it begin."""

    id: str
    number: int
    full: bool
    instance: Mapping[str, Any]
    upstreams: Mapping[str, UpstreamRow] = {}
    routes: Mapping[str, RouteRow] = {}
    pools: Sequence[PoolRow] = ()
    queues: Sequence[QueueRow] = ()
    jobs: Mapping[str, Any] = {}
    quota: Mapping[str, Any] = {}
    rings: Mapping[str, Any] = {}
    since: Mapping[str, float] = {}
    first_bytes: Mapping[str, float] = {}
    busy: Sequence[str] = ()
    spared: Sequence[str] = ()
    failing: Sequence[str] = ()
    stuck: Sequence[str] = ()
    empty_since: Mapping[str, float] = {}
    faults_since: Mapping[str, float] = {}


_Object = Annotated[dict[str, Any], Field(max_length=MOST_MODELS)]
_Share = tuple[Name, Number]


class _Ring(TypedDict, total=False):
    shares: Annotated[list[_Share], Field(max_length=MOST_SHARES)]


class _Written(TypedDict):
    __pydantic_config__ = ConfigDict(strict=True)  # type: ignore[misc]

    v: int
    id: Id
    number: Count
    full: bool
    instance: _Object
    upstreams: Annotated[dict[Name, UpstreamRow], Field(max_length=MOST_UPSTREAMS)]
    routes: Annotated[dict[Name, RouteRow], Field(max_length=MOST_ROUTES)]
    pools: Annotated[list[PoolRow], Field(max_length=MOST_POOLS)]
    queues: Annotated[list[QueueRow], Field(max_length=MOST_QUEUES)]
    jobs: Annotated[dict[Name, _Object], Field(max_length=MOST_MODELS)]
    quota: Annotated[dict[Name, _Object], Field(max_length=MOST_MODELS)]
    rings: Annotated[dict[Name, _Ring], Field(max_length=MOST_MODELS)]
    since: NotRequired[Annotated[dict[Name, Number], Field(max_length=MOST_UPSTREAMS)]]
    first_bytes: NotRequired[Annotated[dict[Name, Number], Field(max_length=MOST_UPSTREAMS)]]
    busy: NotRequired[Annotated[list[Name], Field(max_length=MOST_UPSTREAMS)]]
    spared: NotRequired[Annotated[list[Name], Field(max_length=MOST_UPSTREAMS)]]
    failing: NotRequired[Annotated[list[Name], Field(max_length=MOST_UPSTREAMS)]]
    stuck: NotRequired[Annotated[list[Name], Field(max_length=MOST_UPSTREAMS)]]
    empty_since: NotRequired[Annotated[dict[Name, Number], Field(max_length=MOST_ROUTES)]]
    faults_since: NotRequired[Annotated[dict[Name, Number], Field(max_length=MOST_ROUTES)]]


_FORM = TypeAdapter(_Written)


def written(frame: Frame) -> bytes:
    """A frame as it is published."""
    return dumped({"v": VERSION, **frame._asdict()})


def read(text: str) -> Frame | None:
    """None for what is no frame of this version."""
    try:
        found = _FORM.validate_json(text)
        if found.pop("v") != VERSION:  # type: ignore[misc]
            return None
        frame = Frame(**found)  # type: ignore[misc]
        return frame._replace(
            instance=shaped(frame.instance, INSTANCE),
            jobs={model: shaped(each, JOBS) if each else {} for model, each in frame.jobs.items()},
            quota={model: shaped(each, QUOTA) if each else {} for model, each in frame.quota.items()},
        )
    except (ValidationError, ValueError, TypeError):
        return None

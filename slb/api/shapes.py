"""The shapes of the replies: typed dicts, which mypy checks and pydantic makes the OpenAPI document from."""

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from slb.admission.shown import CandidateNow, Decision, LedgerShown, RouteNow
from slb.api.job_bodies import ModelStatsShown
from slb.control.origins import Origin
from slb.tokens import Right

SettingSource = Literal["hash", "file", "defaults", "built_in"]
"""Where a setting of a route comes from: its hash in Redis, the config file's [routes] or [defaults], or slb."""


class Refusal(TypedDict):
    error: str
    detail: str
    request_id: str


class Registered(TypedDict):
    """`ttl` (seconds) where it was given."""

    path: str
    target: str
    added: bool
    ttl: NotRequired[float]


class AddressRegistered(TypedDict):
    """`ttl` (seconds) where it was given."""

    ip_address: str
    port: int
    path: str
    added: bool
    ttl: NotRequired[float]


class Deregistered(TypedDict):
    path: str
    target: str
    removed: bool


class AddressDeregistered(TypedDict):
    ip_address: str
    port: int
    path: str
    removed: bool


RegisterReply = Registered | list[AddressRegistered]
DeregisterReply = Deregistered | list[AddressDeregistered]


HealthShown = Literal["up", "unchecked", "busy", "failing", "stuck", "down", "ejected"]
"""Of an upstream in a route: `down` by the route's check, `ejected` by this process. The others are used: `stuck`
where it owes this process an answer for too long, `failing` where the last request failed there, `up` where it has
answered one or the check passes, else `unchecked`. Of a single route a supervisor shows the worst that any worker
knows."""


class AttributesShown(TypedDict):
    """`inflight` is this process's own count; `joined` is seconds since the epoch, 0 where unknown."""

    member: str
    weight: int
    slots: int
    zone: str
    node: str
    drain: bool
    joined: float
    inflight: int


class MemberShown(AttributesShown):
    """`inflight` and `failures` (in a row) are this process's own counts; a supervisor shows the sum of its
    workers' `inflight`, and of a single route the most `failures`. `joined`: seconds since the epoch, 0 where
    unknown."""

    health: HealthShown
    failures: int


class UpstreamShown(AttributesShown):
    """`routes` name it; `inflight` is this process's own count. `alive_ago`: seconds since it was found alive by
    this process, null for never; `known_for`: since it is known. `failing`: the last check or request failed, or it
    is ejected."""

    routes: list[str]
    alive_ago: float | None
    known_for: float
    failing: bool


class LastOf(TypedDict):
    """A route in which no other upstream takes requests. `others`: how many it has that do not drain, and are down,
    ejected, or have been and not served since; with none, it answers 503 `no_upstream` once this one drains."""

    path: str
    others: int


class UpstreamExplained(UpstreamShown):
    """`leases`: by route, where it has one, the seconds until it ends, to about half a second; null where Redis is
    away. `last_of`: the routes that have no other upstream which takes requests."""

    leases: dict[str, float] | None
    last_of: list[LastOf]


class UpstreamInFlight(TypedDict):
    """What all instances have in flight at one upstream: each was asked now. `inflight` is all of it, `instances`
    by name what those have that have any, `elsewhere` the slots that the ledger counts beside these (of programs
    with the library, of an instance that has died), null where Redis does not say. `unknown`: instances that have
    not answered, and those that have been silent for less than a minute; what they have is not in the sum.
    `unaware`: instances that may send it something new yet. `empty`: it drains, nothing is in flight, and no
    instance is unknown or unaware."""

    member: str
    drain: bool
    inflight: int
    instances: dict[str, int]
    elsewhere: int | None
    unknown: list[str]
    unaware: list[str]
    empty: bool


class LastChange(TypedDict):
    """The last entry of the log of changes that has to do with whether an upstream takes requests; of one that
    drains, with its drain. `time` in seconds since 1970, `name` of the instance that noted it, `by` the caller's
    token."""

    time: float
    what: str
    name: str
    detail: str
    by: str


class PathExplained(TypedDict):
    """`path` in normal form; `instance`: the name of the process whose view `now` is. `changes`: by upstream of the
    route what last changed about it, of those that have one among the last 200 entries of the log of changes."""

    path: str
    instance: str
    now: RouteNow
    changes: dict[str, LastChange]


class UpstreamsListed(TypedDict):
    """`instances`: whose answer it is, one id; of a supervisor those of its workers as well."""

    instances: list[str]
    upstreams: list[UpstreamShown]


class RouteShown(TypedDict):
    """`settings`: those in effect; `faults`: invalid entries of the route's hash, in place of which the earlier
    ones stay. `panic`: too few members are up, and all of them are used. `names`: those in DNS that are registered,
    whose addresses are among the members (docs/discovery.md#dns)."""

    path: str
    settings: dict[str, Any]
    sources: dict[str, SettingSource]
    members: list[MemberShown]
    names: list[str]
    panic: bool
    faults: list[str]


class RouteExplained(RouteShown):
    """With why the last request went where it went, null where that is not known. `leases`: of each member that has
    one the seconds until it ends unless it is renewed, to about half a second; null where Redis does not say."""

    decision: Decision | None
    leases: dict[str, float] | None


class RoutesShown(TypedDict):
    routes: list[RouteShown]


class RouteWritten(TypedDict):
    """`settings`: those in its hash in Redis that can be used; `faults`: why others cannot. `members`: each, names
    in DNS among them, and where it is from: `static` was registered for good, `lease` ends unless it is renewed,
    `discovered` comes and goes with the source that names it."""

    settings: dict[str, Any]
    faults: list[str]
    members: dict[str, Origin]


class AllWritten(TypedDict):
    """`routes` by path; `upstreams`: of each member that has any, the attributes that are set on it."""

    routes: dict[str, RouteWritten]
    upstreams: dict[str, dict[str, Any]]


class ScaleShown(TypedDict):
    """Of the route's `pool`, from all instances. `queued`: requests that wait for a slot; `jobs`: jobs that wait to
    be begun, null where the instance has not the role `jobs`; `in_flight`: slots that are held, at draining
    upstreams too. `demand` is the three together. `slots`: of the `upstreams` that take requests now. `load`:
    `demand` over `slots`, and over 1 where there are none."""

    path: str
    pool: str
    queued: int
    jobs: int | None
    in_flight: int
    demand: int
    upstreams: int
    slots: int
    load: float


class DryRun(TypedDict):
    """To a change with `dry_run`: it would not be refused, and nothing is written."""

    dry_run: bool


class RouteRemoved(TypedDict):
    path: str
    removed: bool


class InstanceShown(TypedDict):
    """One living slb process: `address` is its data listener, `api` its API listener."""

    id: str
    name: str
    address: str
    api: str
    version: str
    roles: list[str]
    started: float
    pid: int
    host: str


class InstancesShown(TypedDict):
    """`stale` is true where Redis did not answer and the list is the last one known."""

    instances: list[InstanceShown]
    stale: bool


class RedisShown(TypedDict):
    """`mode`: sync (notified of changes), polling (asks each second), fail_open (Redis is away)."""

    url: str
    up: bool
    mode: Literal["sync", "polling", "fail_open"]
    staleness_seconds: float


class MirrorShown(TypedDict):
    """`skipped` counts foreign or broken entries in Redis by kind; `faults` are unusable settings by route."""

    ready: bool
    routes: int
    upstreams: int
    skipped: dict[str, int]
    faults: dict[str, list[str]]


class UpstreamsShown(TypedDict):
    """How many members are `down` by some check or `ejected` by this process; `panic` lists routes. A supervisor
    shows the most that any worker sees, and every route that is in panic at one."""

    down: int
    ejected: int
    panic: list[str]


class TrafficShown(TypedDict):
    """Of this process, since its start; `by_route` since each became a route, "" for what no route took or whose
    route left first. `inflight_by_upstream` has those that have any."""

    requests: int
    by_code: dict[str, int]
    by_reason: dict[str, int]
    by_route: dict[str, int]
    retries: int
    inflight: int
    inflight_by_upstream: dict[str, int]
    client_connections: int
    client_disconnects: int


class JobsStatus(TypedDict):
    """`at_risk`: what may be lost of jobs with this Redis; null where nothing is. `models`: as /queue/stats has it,
    of a second ago."""

    at_risk: str | None
    models: dict[str, ModelStatsShown]


class DnsStatus(TypedDict):
    """`mode`: `live` while the addresses in the answers are of instances that are ready and pass the check; else of
    those that beat (`unchecked`), of the last that were live (`last_known`), or `none`. `out`: known addresses that
    are not in the answers, and why. `ttl`: seconds."""

    zones: list[str]
    ttl: float
    mode: Literal["live", "unchecked", "last_known", "none"]
    addresses: list[str]
    out: dict[str, str]
    serial: int


class SourceStatus(TypedDict):
    """A source of discovery as this process knows it. `writer`: the name of the instance that writes what it says,
    "" for none; `writes`: whether this one does, else the rest is empty. `answered_at`: its last answer, seconds
    since the epoch, 0 for none; `trouble`: why there is none since. `held_back`: an answer without members is not
    believed yet."""

    source: str
    path: str
    writer: str
    writes: bool
    members: int
    draining: int
    answered_at: float
    trouble: str
    held_back: bool


class Status(TypedDict):
    """`started` is seconds since the epoch. What else `app` knows of this process stands beside these."""

    version: str
    id: str
    name: str
    pid: int
    host: str
    roles: list[str]
    started: float
    uptime_seconds: float
    draining: bool
    redis: RedisShown
    mirror: MirrorShown
    health: UpstreamsShown
    traffic: TrafficShown
    ledger: LedgerShown
    instances: int
    jobs: NotRequired[JobsStatus]
    dns: NotRequired[DnsStatus]
    discovery: NotRequired[list[SourceStatus]]


class Series(TypedDict):
    """Of one process: figures of the same moments, the last of them `until`, in seconds since 1970."""

    name: str
    until: float
    requests: list[float | None]
    inflight: list[float | None]
    p50: list[float | None]
    p99: list[float | None]
    errors: list[float | None]


class History(TypedDict):
    """`series`: by the id of the process; `step`: seconds between two figures."""

    step: int
    series: dict[str, Series]


class Hour(TypedDict):
    """Of a route or an upstream."""

    name: str
    step: int
    until: int
    requests: list[float | None]
    errors: list[float | None]
    inflight: list[float | None]
    first_byte: list[float | None]
    instances: list[str]
    missing: list[str]


class RouteHour(Hour):
    """`requests` and `errors` per second; requests in flight at its upstreams, and `waiting` in its queue (both
    means); the mean seconds from when a request was sent to an upstream to the first byte; the seconds that half
    (`p50`) and nearly all (`p99`) took, p99 at the slowest instance. `instances`: those whose figures are added up;
    `missing`: those that have not answered."""

    waiting: list[float | None]
    p50: list[float | None]
    p99: list[float | None]


class UpstreamHour(Hour):
    """`requests` and `errors` per second; requests in flight (means); the mean seconds from when a request was sent
    there to the first byte, and to the end (`latency`). `instances`: those whose figures are added up; `missing`:
    those that have not answered."""

    latency: list[float | None]


class Found(TypedDict):
    """What became of a request at one process. Times: when it came, in seconds since 1970, and seconds since then,
    null for what did not happen. `decided_by`: `policy`; `redis`, or `here` in its stead, where it needed a slot;
    `refused`, where it came to no route's upstreams. `failed`: what failed at upstreams before; `position`: how
    many of its class were before it, null where it did not queue; `queued`: seconds.

    `members`: what it found at its last attempt, as `RouteNow` has it, with the verdicts `chosen` and `tried`
    besides, and no `next`; 50 of them at most, and `left_off` more. `policy`, `by`, `panic`: as of then.
    `found_after`: when that was read, before the request came where it is below 0; null where it is not kept.
    `scores_after`: when Redis found the slots held that `fleet` has; null where they are as of a second before."""

    time: float
    route: str
    upstream: str
    status: int
    reason: str
    detail: str
    decided_by: str
    failed: list[str]
    position: int | None
    queued: float
    sent_after: float | None
    first_byte_after: float | None
    duration: float
    found_after: float | None
    scores_after: float | None
    policy: str
    by: str
    panic: bool
    members: list[CandidateNow]
    left_off: int
    instance: str
    instance_name: str


class RequestExplained(TypedDict):
    """The oldest first."""

    request_id: str
    found: list[Found]


class ChangeShown(TypedDict):
    """`id`: its place in the log, for `since`; `time`: seconds since 1970, by the clock of the machine of
    `instance`, the id of the process that noted it. `subject`: a route, upstream, model or instance; `by`: the name
    of the token of who did it, empty where none has one."""

    id: str
    time: float
    instance: str
    name: str
    what: str
    subject: str
    detail: str
    by: str


class ChangesShown(TypedDict):
    """The newest last."""

    changes: list[ChangeShown]


class EndpointShown(TypedDict):
    """`path` with {path}, {member} or {model} where a name stands. `rights`: a token needs one of them, or `admin`;
    none where no token is asked for."""

    method: str
    path: str
    what: str
    rights: list[Right]


class TokenShown(TypedDict):
    """`name` is empty where no token is asked for. `prefixes`: the paths that `register` is for."""

    name: str
    rights: list[Right]
    prefixes: list[str]


class EndpointsShown(TypedDict):
    endpoints: list[EndpointShown]


class Health(TypedDict):
    status: Literal["ok", "ready"]

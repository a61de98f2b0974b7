"""The nouns: what a route is, what an upstream is, what may be set on them. Frozen, no I/O."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from slb import setting_types as types
from slb.names import join_member, split_member
from slb.setting_types import (
    Duration,
    HashKey,
    HeaderName,
    HealthBody,
    HealthJson,
    HealthPath,
    HealthPost,
    PoolName,
    PositiveDuration,
    Share,
)

_MOST_SHOWN = 200  # characters of a bad value that are repeated

PolicyName = Literal[
    "round_robin", "weighted_round_robin", "random", "p2c", "least_local", "least_inflight", "consistent_hash"
]


OF_A_CHECK = frozenset({"health_path", "health_body", "health_json", "health_post"})
"""Settings of what a check asks for and wants. Without the first the others have no effect."""


class HealthCheck(NamedTuple):
    """What an active check does: GET `path` every `interval` seconds, answered within `timeout`. An upstream that
    is up is down after `fall` failures in a row, one that is down is up after `rise` passes in a row. `body` is a
    text that the answer has to have in it, `json` a value of it as `status=ok`, and `post` the path and the JSON
    of a POST that is sent in place of the GET; None for no such thing."""

    path: str
    interval: float
    rise: int
    fall: int
    timeout: float
    body: str | None = None
    json: str | None = None
    post: str | None = None

    @property
    def asked(self) -> str:
        """`/health`, or `POST /v1/completions`."""
        return self.path if self.post is None else f"POST {self.post.partition(' ')[0]}"


class RouteSettings(BaseModel):
    """What may be set on a route; every field has its default here. Durations are seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    policy: PolicyName = "round_robin"
    """How an upstream is picked: `round_robin`, `weighted_round_robin`, `random`, `p2c`, `least_local`,
    `least_inflight` or `consistent_hash`."""
    pool: PoolName | None = None
    """Whose slots the route's requests take, written like a path. Routes that name one pool share them. None
    means the route's own path."""
    max_inflight: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Requests an upstream may have in flight from all instances together, for each of its slots; 0 means no
    cap."""
    when_full: Literal["shed", "queue"] = "shed"
    """What happens to a request when all upstreams are at the cap: `shed` refuses it, `queue` lets it wait."""
    when_unsure: Literal["local", "refuse", "wait"] = "local"
    """What happens to a request when Redis does not say in time how many slots are free: `local` decides by what
    this instance knows, which may overshoot the cap; `refuse` refuses it; `wait` waits until Redis
    decides, or has not answered for `ledger_patience`."""
    queue_limit: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    """How many requests of the pool may wait."""
    queue_timeout: PositiveDuration = 30.0
    """How long a request may wait."""
    priorities: types.PrioritiesSetting = ()
    """Classes of waiting requests and their weights, `critical=8,normal=3,batch=1`; in TOML and JSON also a
    table. None means one class."""
    priority_header: HeaderName = "X-Priority"
    """The request header that names its class. A request that names none of the classes is of the lowest."""
    fade_in: Duration = 0.0
    """The time over which the share of an upstream that has just joined grows to a whole one; 0 means at once."""
    hash_key: HashKey = "path"
    """What requests belong together by: `path`, `ip`, `header:NAME`, `cookie:NAME` or `query:NAME`."""
    load_signal: Literal["effective", "inflight", "off"] = "effective"
    """How the load of an upstream is measured: `effective`, `inflight` (Skipper's rule), or `off`: a key then
    never leaves its upstream."""
    balance_factor: Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False)] = 1.25
    """How many times its expected load an upstream may have before its keys go to the next ones."""
    ring_debounce: Duration = 2.0
    """How long new upstreams are collected, so that a rolling deploy is one change of the ring."""
    zone_affinity: bool = False
    """Whether requests stay in the zone of the instance, as far as `zone_ceiling` lets them."""
    zone_delay: Duration = 60.0
    """How long after its first request an instance sends to all zones alike."""
    zone_fade_in: PositiveDuration = 300.0
    """How long the share that stays in the zone then takes to grow to its ceiling."""
    zone_ceiling: Share = 1.0
    """That ceiling, 0 to 1. One request in a hundred goes to all zones in any case."""
    zone_margin: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] = 0.35
    """By how much the zone's own latency may be above that of all zones: 0.35 is 35 %."""
    zone_min_upstreams: Annotated[int, Field(ge=1, le=1_000_000)] = 3
    """With fewer upstreams in the zone than this, all zones are used."""
    retries: Annotated[int, Field(ge=0, le=10)] = 1
    """How many other upstreams to try where one did not serve the request (docs/http.md#sending-again)."""
    connect_timeout: PositiveDuration = 1.0
    """How long a connection to an upstream may take."""
    first_byte_timeout: PositiveDuration = 60.0
    """How long the upstream may take until the first byte of its answer; a head alone is none."""
    interim_extends: bool = True
    """Whether a 1xx reply, which says that the upstream lives, starts `first_byte_timeout` anew."""
    idle_timeout: PositiveDuration = 60.0
    """The longest silence in the middle of a body, and the longest time a client may take nothing of what it is
    sent."""
    request_timeout: Duration = 0.0
    """For the whole request; 0 means no limit."""
    tunnel_timeout: PositiveDuration = 3600.0
    """A tunnel (WebSocket) through which nothing moves for so long is cut."""
    strip_prefix: bool = False
    """Whether `/p1/x` is forwarded as `/x`."""
    health_path: HealthPath = None
    """What an active check asks for. `none` means no active checks, also where `[defaults]` has one."""
    health_body: HealthBody = None
    """A text that the answer to a check has to have in it, with just these letters; `none` means any answer
    (docs/health.md#what-the-answer-says). Refused where no `health_path` is set."""
    health_json: HealthJson = None
    """A value that the answer to a check has to have, which is JSON: `status=ok`, or `models.0.state=ready`, by
    names and by numbers in lists. `none` means any answer. Refused where no `health_path` is set."""
    health_post: HealthPost = None
    """What a check sends in place of the GET of `health_path`: the path and the JSON of a POST, such as
    `/v1/completions {"model": "m", "prompt": "a", "max_tokens": 1}` (docs/health.md#asking-for-a-token).
    `none` means the GET. Refused where no `health_path` is set."""
    health_interval: Annotated[Duration, Field(ge=0.01)] = 5.0
    """The time between two checks of one upstream, whichever instances make them."""
    health_timeout: PositiveDuration = 2.0
    """How long the answer to a check may take."""
    health_rise: Annotated[int, Field(ge=1, le=1000)] = 2
    """Passes in a row after which an upstream that was down is up."""
    health_fall: Annotated[int, Field(ge=1, le=1000)] = 3
    """Failures in a row after which an upstream that was up is down."""
    eject_after: Annotated[int, Field(ge=0, le=1_000_000)] = 5
    """Failed requests in a row after which an upstream is ejected, where the others of the route do not fail as
    well; of one that answers in between a few more (docs/health.md#ejection). One refused connection is
    enough, as far as `max_ejected` allows.
    0 means never."""
    eject_stuck: bool = True
    """Whether an upstream is ejected that owes answers for 30 s or more, and for ten times as long as answers
    usually take at most, while others of the route give theirs."""
    eject_slow: bool = True
    """Whether an upstream is ejected whose answers begin later than nearly all of the others', one after another.
    Under `consistent_hash`, where upstreams have requests of different kinds, it never is."""
    eject_time: PositiveDuration = 10.0
    """How long the first ejection lasts. Each one in succession lasts twice as long."""
    max_eject_time: PositiveDuration = 300.0
    """The longest ejection."""
    max_ejected: Share = 0.5
    """The share of the route's upstreams that may be ejected at a time, 0 to 1."""
    panic_threshold: Share = 0.5
    """Where less than this share of the upstreams is available, all are used; 0 means never."""
    client_percentage: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 100.0
    """Of the calls by this route, the percentage that the client library routes itself; the rest go to its
    fallback URL (docs/client.md#rolling-it-out)."""

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise ValueError("true and false are not values of this setting")
        return value

    @property
    def unused(self) -> list[str]:
        """One sentence for each setting that has no effect, as another one that it needs is not set. A
        `health_path` of none is set: it says that nothing is checked."""
        if "health_path" in self.model_fields_set:
            return []
        why = "without a health_path nothing is checked: set that too, to a path or to none"
        values = ((name, getattr(self, name)) for name in sorted(OF_A_CHECK))
        return [f"{name} = {_shown(value)}: {why}" for name, value in values if value is not None]

    @property
    def health_check(self) -> HealthCheck | None:
        """The active check of this route; None where it has none."""
        if self.health_path is None:
            return None
        return HealthCheck(
            self.health_path,
            self.health_interval,
            self.health_rise,
            self.health_fall,
            self.health_timeout,
            self.health_body,
            self.health_json,
            self.health_post,
        )


def usable_settings(written: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The fields of `written` that are valid route settings, and one sentence for each that is not."""
    kept: dict[str, Any] = {}
    faults: list[str] = []
    for name, value in written.items():
        fault = setting_fault(name, value)
        if fault:
            faults.append(fault)
        else:
            kept[name] = value
    return kept, faults


def setting_fault(name: str, value: Any) -> str | None:
    """Why `value` cannot be the route setting `name`, naming both; None where it can."""
    if name not in RouteSettings.model_fields:
        return f"{name}: there is no route setting of this name"
    try:
        RouteSettings.model_validate({name: value})
    except ValidationError as error:
        return f"{name} = {_shown(value)}: {error.errors()[0]['msg'].removeprefix('Value error, ')}"
    return None


def _shown(value: Any) -> str:
    """For a message: a value that is too long is cut."""
    written = repr(value)
    return written if len(written) <= _MOST_SHOWN else f"{written[:_MOST_SHOWN]}..."


@dataclass(frozen=True, slots=True)
class Upstream:
    """One place requests are forwarded to. `member` is its normal form, `host` carries no brackets."""

    member: str
    scheme: str
    host: str
    port: int
    weight: int = 1
    slots: int = 1
    zone: str = ""
    node: str = ""
    drain: bool = False
    joined: float = 0.0

    @property
    def authority(self) -> str:
        """host:port as a Host header spells it."""
        return join_member("http", self.host, self.port)

    @classmethod
    def of(cls, member: str, attributes: Mapping[str, str] | None = None) -> "Upstream":
        """The upstream a member names, with the attributes of its hash in Redis; bad ones keep their default."""
        scheme, host, port = split_member(member)
        normal = join_member(scheme, host, port)
        stored = stored_attributes(attributes) if attributes else {}
        # The caller's own string where it can be: a table has a hundred thousand of them.
        return cls(member if member == normal else normal, scheme, host, port, **stored)


MIN_TTL, MAX_TTL = 5, 86_400
"""Seconds of a lease. A shorter one, renewed every third of it, would be lost to a stall that slb cannot tell from
an upstream that has ended."""


MOST_WEIGHT = 1000


class UpstreamAttributes(BaseModel):
    """The attributes of an upstream besides its address; unset means the default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    weight: Annotated[int, Field(ge=1, le=MOST_WEIGHT)] | None = None
    slots: Annotated[int, Field(ge=1, le=10_000)] | None = None
    zone: Annotated[str, Field(max_length=253, pattern=r"^[!-~]*$")] | None = None
    node: Annotated[str, Field(max_length=253, pattern=r"^[!-~]*$")] | None = None


class StoredAttributes(UpstreamAttributes):
    """All that may stand in an upstream's hash."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    drain: bool | None = None
    joined: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


def stored_attributes(written: Mapping[str, str]) -> dict[str, Any]:
    """By name the valid ones among `written`; a bad value is as if it were not there."""
    try:
        parsed = StoredAttributes.model_validate(dict(written))
    except ValidationError as error:
        bad = {str(fault["loc"][0]) for fault in error.errors()}
        parsed = StoredAttributes.model_validate({k: v for k, v in written.items() if k not in bad})
    return parsed.model_dump(exclude_none=True)


@dataclass(frozen=True, slots=True)
class RouteRecord:
    """What Redis says of one path: members in normal form, and the settings hash as it is written there."""

    members: frozenset[str] = frozenset()
    settings: Mapping[str, str] | None = None

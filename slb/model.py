"""The nouns: what a route is, what an upstream is, what may be set on them. Frozen, no I/O."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from slb.names import duration, join_member, seconds, split_member

Duration = Annotated[float, BeforeValidator(seconds), PlainSerializer(duration, return_type=str), Field(ge=0)]
"""Seconds inside, `250ms` outside."""

PositiveDuration = Annotated[Duration, Field(gt=0)]

PolicyName = Literal["round_robin", "weighted_round_robin", "random", "p2c", "least_local"]


class RouteSettings(BaseModel):
    """What may be set on a route; every field has its default here. Durations are seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    policy: PolicyName = "round_robin"
    retries: Annotated[int, Field(ge=0, le=10)] = 1
    connect_timeout: PositiveDuration = 1.0
    first_byte_timeout: PositiveDuration = 60.0
    idle_timeout: PositiveDuration = 60.0
    request_timeout: Duration = 0.0
    strip_prefix: bool = False


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
        return f"{name} = {value!r}: {error.errors()[0]['msg']}"
    return None


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
        stored = _attributes(attributes) if attributes else {}
        return cls(join_member(scheme, host, port), scheme, host, port, **stored)


class UpstreamAttributes(BaseModel):
    """What may be said of an upstream besides its address; unset means the default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    weight: Annotated[int, Field(ge=1, le=1000)] | None = None
    slots: Annotated[int, Field(ge=1, le=10_000)] | None = None
    zone: Annotated[str, Field(max_length=253, pattern=r"^[!-~]*$")] | None = None
    node: Annotated[str, Field(max_length=253, pattern=r"^[!-~]*$")] | None = None


class _StoredAttributes(UpstreamAttributes):
    model_config = ConfigDict(frozen=True, extra="ignore")

    drain: bool | None = None
    joined: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


def _attributes(written: Mapping[str, str]) -> dict[str, Any]:
    """The valid ones among `written`; a bad value is as if it were not there."""
    try:
        parsed = _StoredAttributes.model_validate(dict(written))
    except ValidationError as error:
        bad = {str(fault["loc"][0]) for fault in error.errors()}
        parsed = _StoredAttributes.model_validate({k: v for k, v in written.items() if k not in bad})
    return parsed.model_dump(exclude_none=True)


@dataclass(frozen=True, slots=True)
class RouteRecord:
    """What Redis says of one path: members in normal form, and the settings hash as it is written there."""

    members: frozenset[str] = frozenset()
    settings: Mapping[str, str] | None = None

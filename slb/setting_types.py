"""The types of single settings: which values they take, with a message for each that they refuse."""

import ipaddress
import re
from collections.abc import Callable
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, SecretStr, WithJsonSchema

from slb.names import duration, join_member, normal_path, seconds
from slb.priorities import CLASS_PATTERN, MAX_CLASSES, MAX_WEIGHT, Priorities, priorities, written_priorities
from slb.setting_values import (
    Network,
    access_log_share,
    advertised_place,
    certificate_files,
    host_port,
    network_of,
    signing_keys,
    trace_headers,
    views,
    zone_name,
)

_DNS_PORT = 53
LONGEST_PATH = 2048  # characters of a route's path, and of a pool's name, which is a path


def _checked_by(check: Callable[[Any], object]) -> AfterValidator:
    """The value as it is; refused where `check` raises ValueError."""

    def checked(value: Any) -> Any:
        check(value)
        return value

    return AfterValidator(checked)


def _split(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


COMMAS = BeforeValidator(_split)  # a list may be written as one text


def _split_pairs(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return dict(part.split("=", 1) if "=" in part else (part, "") for part in _split(value))


COMMA_PAIRS = BeforeValidator(_split_pairs)  # a table may be written as one text, NAME=VALUE,NAME=VALUE

LONGEST_DURATION = 365 * 86_400
"""Seconds. What is longer was not meant; and written anew it may have more digits than are read."""

Duration = Annotated[
    float,
    BeforeValidator(seconds),
    PlainSerializer(duration, return_type=str),
    Field(ge=0, le=LONGEST_DURATION),
]
"""Seconds inside, `250ms` outside; a year at most."""

PositiveDuration = Annotated[Duration, Field(gt=0)]

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]  # a part of a whole, 0 to 1

MOST_PATIENCE = 7.5
"""Seconds of `ledger_patience`. A lease lasts 10 s and is renewed every 2 s. An instance that Redis does not answer
has to know that it is alone before its slots are given to others, with half a second to spare."""


def _check_lease(patience: float) -> None:
    if patience > MOST_PATIENCE:
        raise ValueError(
            f"{patience:g}s is more than {MOST_PATIENCE:g}s: an instance that Redis does not answer would lose "
            "its slots to others, since its lease of 10s ends, before it knows that it is alone"
        )


Patience = Annotated[Duration, _checked_by(_check_lease), Field(ge=0.05, le=MOST_PATIENCE)]

_PRIORITIES_SCHEMA = {
    "anyOf": [
        {"type": "string", "examples": ["critical=8,normal=3,batch=1"]},
        {
            "type": "object",
            "maxProperties": MAX_CLASSES,
            "propertyNames": {"pattern": f"^{CLASS_PATTERN}$"},
            "additionalProperties": {"type": "integer", "minimum": 1, "maximum": MAX_WEIGHT},
        },
    ]
}
PrioritiesSetting = Annotated[
    Priorities,
    BeforeValidator(priorities),
    PlainSerializer(written_priorities, return_type=str),
    WithJsonSchema(_PRIORITIES_SCHEMA),
]
"""Pairs inside, a text outside; a table is read too."""

PoolName = Annotated[str, Field(max_length=LONGEST_PATH), AfterValidator(normal_path)]
"""In the form of a path, since it stands between the braces of keys in Redis, where no brace may come from it."""

HeaderName = Annotated[str, Field(max_length=128, pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]  # RFC 9110, 5.6.2

_HASH_KEY = r"^(path|ip|(header|cookie):[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}|query:[!-%'-<>-~]{1,128})$"
_HASH_KEY_FORM = re.compile(_HASH_KEY)


def _check_hash_key(text: str) -> None:
    if not _HASH_KEY_FORM.fullmatch(text):
        raise ValueError("a key is path, ip, header:NAME, cookie:NAME or query:NAME")


HashKey = Annotated[str, _checked_by(_check_hash_key), WithJsonSchema({"type": "string", "pattern": _HASH_KEY})]
"""Where a request's key is found; a name in a query is written as it stands there, decoded."""


def _or_none(value: Any) -> Any:
    """`none` on a route overrides a default."""
    return None if value == "none" else value


_HEALTH_PATH = r'^/[!"$-~]*$'

HealthPath = Annotated[
    Annotated[str, Field(max_length=2048, pattern=_HEALTH_PATH)] | None, BeforeValidator(_or_none)
]
"""What an active check asks for; None for no checks."""

_ONE_LINE = r"^[^\x00-\x1f\x7f]+$"

HealthBody = Annotated[Annotated[str, Field(max_length=256, pattern=_ONE_LINE)] | None, BeforeValidator(_or_none)]
"""A text of one line that the answer to a check has in it; None for any answer."""

_HEALTH_JSON = r"^[^\x00-\x20.=\x7f]+(\.[^\x00-\x20.=\x7f]+)*=[^\x00-\x1f\x7f]+$"
_HEALTH_JSON_FORM = re.compile(_HEALTH_JSON)


def _check_health_json(text: str) -> None:
    if not _HEALTH_JSON_FORM.fullmatch(text):
        raise ValueError("it is PATH=VALUE, such as status=ok or models.0.state=ready")


HealthJson = Annotated[
    Annotated[
        str,
        Field(max_length=512),
        _checked_by(_check_health_json),
        WithJsonSchema({"type": "string", "maxLength": 512, "pattern": _HEALTH_JSON}),
    ]
    | None,
    BeforeValidator(_or_none),
]
"""Where the answer to a check, which is JSON, has which value; None for any answer."""

_HEALTH_PATH_FORM = re.compile(_HEALTH_PATH)


def _check_health_post(text: str) -> None:
    path, _, body = text.partition(" ")
    if not _HEALTH_PATH_FORM.fullmatch(path):
        raise ValueError('it is a path, a blank and JSON, such as /v1/completions {"max_tokens": 1}')
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"behind the path and a blank comes JSON, but: {error}") from None


HealthPost = Annotated[
    Annotated[str, Field(max_length=8192), _checked_by(_check_health_post)] | None, BeforeValidator(_or_none)
]
"""The path and the JSON of a POST, with a blank between them; None for a GET."""

Address = Annotated[str, _checked_by(host_port)]  # HOST:PORT


def _dns_server(text: str) -> str:
    """`10.0.0.2`, `10.0.0.2:5353`, `fd00::2`, `[fd00::2]:53` -> ADDRESS:PORT."""
    host, port = text.strip("[]"), _DNS_PORT
    if not _is_address(host):
        host, port = host_port(text)
    if not _is_address(host) or not port:
        raise ValueError(f"{text!r} is not the ADDRESS or ADDRESS:PORT of a DNS server")
    return join_member("http", str(ipaddress.ip_address(host)), port)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


DnsServers = Annotated[tuple[Annotated[str, AfterValidator(_dns_server)], ...], COMMAS]
"""Each is ADDRESS:PORT inside; outside the port may be missing."""

HttpUrl = Annotated[
    str,
    Field(max_length=2048, pattern=r"^(https?://[!-~]+)?$"),
    AfterValidator(lambda text: text.rstrip("/")),
]
"""Without the slash at its end; it may be empty."""

TASK_QUEUES = r"^(projects/[A-Za-z0-9.:-]+/locations/[A-Za-z0-9-]+/queues/[A-Za-z0-9-]{1,40})?$"
"""A queue of Cloud Tasks, whose name a model's is put behind: 100 characters in all."""


def _check_token(value: SecretStr | None) -> None:
    """An empty token, such as a secret that is not mounted yet, would open the API."""
    if value is not None and not value.get_secret_value().strip():
        raise ValueError("it is empty: write a token there, or leave the setting out")


Token = Annotated[SecretStr | None, _checked_by(_check_token)]


def _joined(value: Any) -> Any:
    is_list = isinstance(value, list) and all(isinstance(each, str) for each in value)
    return ",".join(value) if is_list else value


def _check_signing_secrets(value: SecretStr | None) -> None:
    if value is not None and not signing_keys(value.get_secret_value()):
        raise ValueError("it is empty: write a secret there, or leave the setting out")


SigningSecrets = Annotated[SecretStr | None, _checked_by(_check_signing_secrets), BeforeValidator(_joined)]
"""One text with commas, in which all are masked together; a list is read too."""


def _check_trace_headers(value: SecretStr | None) -> None:
    if value is not None:
        trace_headers(value.get_secret_value())


TraceHeaders = Annotated[SecretStr | None, _checked_by(_check_trace_headers), BeforeValidator(_joined)]
"""One text with commas, in which all values are masked together; a list is read too."""


def _no_host_bits(value: Any) -> Any:
    for text in value if isinstance(value, list | tuple) else ():
        if isinstance(text, str) and (network := network_of(text)):
            raise ValueError(f"{text} has host bits set: is {network} meant?")
    return value


Networks = Annotated[tuple[Network, ...], BeforeValidator(_no_host_bits), COMMAS]  # the last validator runs first


ZoneName = Annotated[str, AfterValidator(zone_name)]
"""A zone in DNS; with the names within it at most 253 characters. In lower case, without the dot at its end."""

ZoneNames = Annotated[tuple[ZoneName, ...], COMMAS, Field(min_length=1)]

Addresses = Annotated[tuple[Address, ...], COMMAS]

Advertised = Annotated[
    tuple[str, ...], COMMAS, _checked_by(lambda texts: [advertised_place(text) for text in texts])
]
"""Addresses, with a port or without."""

Views = Annotated[
    tuple[tuple[Network, str], ...],
    BeforeValidator(views),
    COMMAS,
    PlainSerializer(lambda pairs: [f"{network}={zone}" for network, zone in pairs], return_type=list[str]),
    WithJsonSchema({"type": "array", "items": {"type": "string"}}),
]
"""Pairs inside, `NETWORK=ZONE` outside."""

Certificates = Annotated[
    tuple[str, ...], COMMAS, _checked_by(lambda texts: [certificate_files(text) for text in texts])
]


def _as_text(value: Any) -> Any:
    """TOML has numbers, and `access_log = 0.01` is what one writes there."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _check_access_log(value: str) -> None:
    if value not in ("all", "errors", "off"):
        access_log_share(value)


AccessLogSetting = Annotated[str, BeforeValidator(_as_text), _checked_by(_check_access_log)]

"""What comes in and goes out as JSON. Bodies are strict: a wrong type or an unknown field is refused by name."""

import asyncio
import json
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Annotated, Any, ClassVar, TypeVar

import orjson
from aiohttp import hdrs, web
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from slb.api.body_room import HELD
from slb.dns_names import normal_target
from slb.errors import BAD_REQUEST, BODY_TOO_LARGE, REQUEST_TIMEOUT, Refused
from slb.job import LONG_INTEGER
from slb.model import MAX_TTL, MIN_TTL, UpstreamAttributes
from slb.names import join_member, normal_path
from slb.setting_types import LONGEST_PATH

MAX_BODY = 1024 * 1024  # bytes of a body the API takes, where an endpoint says nothing else

MAX_LIST = 1000
"""Registrations at once. They are one step in Redis: ten times as many would stop traffic for most of a second."""

MOST_FAULTS = MAX_LIST  # one in each of a list


def _route_path(text: str) -> str:
    _check_length(text)  # before anything is done that costs by length; written otherwise it may be longer yet
    path = normal_path(text)
    _check_length(path)
    return path


def _check_length(path: str) -> None:
    if len(path) > LONGEST_PATH:
        raise ValueError(f"is longer than {LONGEST_PATH} characters")


def _ttl(seconds: float) -> float:
    if not MIN_TTL <= seconds <= MAX_TTL:
        raise ValueError(f"has to be from {MIN_TTL} to {MAX_TTL} seconds")
    return seconds


Body = TypeVar("Body", bound=BaseModel)
_T = TypeVar("_T")
RoutePath = Annotated[str, AfterValidator(_route_path), Field(examples=["/p1"])]
Target = Annotated[
    str,
    AfterValidator(normal_target),
    Field(examples=["10.0.0.1:80", "https://gpu-1.internal", "dns://flux.internal:8000"]),
]
IpAddress = Annotated[str, AfterValidator(lambda text: str(ip_address(text))), Field(examples=["10.0.0.1"])]
Ttl = Annotated[float, AfterValidator(_ttl), Field(json_schema_extra={"minimum": MIN_TTL, "maximum": MAX_TTL})]
Port = Annotated[int, Field(ge=1, le=65535)]


class Leased(UpstreamAttributes):
    """`ttl`: seconds until the registration ends unless it is made again; null: it never ends."""

    ttl: Ttl | None = None

    def reply(self, verb: str, done: bool) -> dict[str, Any]:
        """The JSON of the answer; `verb` is added or removed."""
        lease = {"ttl": self.ttl} if self.ttl is not None and verb == "added" else {}
        return {**self.model_dump(exclude={"ttl", *UpstreamAttributes.model_fields}), verb: done, **lease}


class TargetRegistration(Leased):
    """An upstream of a route. `target`: address or name, http unless it begins with https://; the port is 80, or
    443 for https, unless given. Or a name in DNS whose addresses are upstreams (docs/discovery.md#dns)."""

    model_config = ConfigDict(strict=True)

    address_field: ClassVar[str] = "target"

    path: RoutePath
    target: Target

    @property
    def member(self) -> str:
        return self.target


class AddressRegistration(Leased):
    """The older form of a registration, given in lists."""

    model_config = ConfigDict(strict=True)

    address_field: ClassVar[str] = "ip_address"

    ip_address: IpAddress
    port: Port = 80
    path: RoutePath

    @property
    def member(self) -> str:
        return join_member("http", self.ip_address, self.port)


AnyRegistration = TargetRegistration | AddressRegistration
AddressList = Annotated[list[AddressRegistration], Field(max_length=MAX_LIST)]
RegisterBody = TargetRegistration | AddressList
_ADDRESS_LIST = TypeAdapter(AddressList)


def attributes_of(registration: UpstreamAttributes) -> dict[str, str]:
    """The upstream's attributes as Redis stores them."""
    names = UpstreamAttributes.model_fields
    return {name: str(value) for name in names if (value := getattr(registration, name)) is not None}


def registrations(data: Any) -> Sequence[AnyRegistration]:
    """One registration, or a list of them. Raises Refused, naming the element and the field."""
    if isinstance(data, list):
        return _validated(_ADDRESS_LIST.validate_python, data)
    return [body_of(TargetRegistration, data)]


def body_of(kind: type[Body], data: object) -> Body:
    """`data` as a model of this `kind`. Raises Refused, naming the field."""
    return _validated(kind.model_validate, data)


def _validated(validate: Callable[[object], _T], data: object) -> _T:
    try:
        return validate(data)
    except ValidationError as error:
        raise Refused(BAD_REQUEST, faults_of(error)) from None


def faults_of(error: ValidationError) -> str:
    """Each fault behind its field, `[2].port: ...` in a list; over MOST_FAULTS only their number."""
    if error.error_count() > MOST_FAULTS:
        return too_many_faults(error.error_count())
    faults = error.errors(include_url=False)
    return "; ".join(f"{_place(each['loc'])}: {_worded(each['type'], each['loc'], each['msg'])}" for each in faults)


def too_many_faults(count: int) -> str:
    """The message in the place of so many faults."""
    return f"body: {count} faults, and only up to {MOST_FAULTS} are listed"


def _place(location: tuple[int | str, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".") or "body"


def _worded(kind: str, location: tuple[int | str, ...], message: str) -> str:
    if kind == "extra_forbidden":
        return "there is no field of this name"
    if kind == "model_type":
        return "has to be an object"
    field = location[-1] if location else ""  # messages of names.py begin with it
    return message.removeprefix("Value error, ").removeprefix(f"{field} ")


async def read_json(request: web.Request, timeout: float) -> Any:
    """The body as JSON, whatever its Content-Type; `timeout` in seconds. Raises Refused."""
    return parsed(await read_bytes(request, timeout, MAX_BODY))


async def read_bytes(request: web.Request, timeout: float, most: int) -> bytes | bytearray:
    """The body; `timeout` in seconds, once for room and once for all of it to come; `most` in bytes. Raises
    Refused."""
    length = _length_of(request)
    if length > most:
        raise _too_large(most)
    await request[HELD].cover(length, timeout)
    try:
        async with asyncio.timeout(None if request.content.is_eof() else timeout):  # no timer for what is here
            return await _read(request, most, timeout)
    except TimeoutError:
        raise Refused(REQUEST_TIMEOUT, f"the body did not come within {timeout:g}s") from None
    except web.RequestPayloadError as error:
        raise Refused(BAD_REQUEST, f"the body is broken: {' '.join(str(error).split())}") from None


async def _read(request: web.Request, most: int, patience: float) -> bytearray:
    """The body; aiohttp's own limit is the same for all endpoints of an application."""
    body = bytearray()
    while chunk := await request.content.readany():
        body += chunk
        if len(body) > most:
            raise _too_large(most)
        await request[HELD].cover(len(body), patience)  # nothing to do where its length was known
    return body


def _length_of(request: web.Request) -> int:
    """As its head says, in bytes; 0 where that is not known before the end."""
    return 0 if hdrs.CONTENT_ENCODING in request.headers else request.content_length or 0


def _too_large(most: int) -> Refused:
    return Refused(BODY_TOO_LARGE, f"the body is over {most} bytes")


async def read_exact_json(request: web.Request, timeout: float, most: int) -> Any:
    """As `read_json`, but integers of more than 64 bits stay integers, which orjson makes floats of: it refuses to
    write them, and so they are refused rather than changed."""
    text = await read_bytes(request, timeout, most)
    data = parsed(text)
    if not LONG_INTEGER.search(text):
        return data
    try:
        return json.loads(text)  # no number has over 309 digits: orjson refuses those
    except RecursionError:
        raise Refused(BAD_REQUEST, "the body has too many levels") from None


def parsed(text: bytes | bytearray) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Refused(BAD_REQUEST, f"the body is not JSON: {error}") from None

"""Heads of requests: what they say of the message, and the bytes that are passed on. Framing by RFC 9112, 6,
strictly: a length that is given twice, or in two ways, is refused."""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address
from typing import NamedTuple

from slb.errors import BAD_REQUEST, HEADERS_TOO_LARGE, InvalidName, Refused
from slb.names import seconds
from slb.proxy.trace_context import is_traceparent, is_tracestate
from slb.upstreams import fields
from slb.upstreams.body import CHUNKED
from slb.upstreams.fields import FIELDS, Lines, MalformedField, connection_tokens, fields_of

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}+")
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z/]++")
_HOST = re.compile(rb"(?:\[([0-9A-Fa-f:.]{2,45})\]|(?:[A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})*+)(?::[0-9]*+)?")
"""Between brackets an IPv6 address, without zone."""
_LONGEST_NAME = 255
"""Bytes that a name of DNS may have; longer hosts are not cached."""


class Forwarding(NamedTuple):
    """The headers of a trusted peer about the client behind it. `hops`: its X-Forwarded-For, the lines joined. The
    others: whether there is an X-Forwarded-Proto, an X-Forwarded-Host, a Forwarded."""

    hops: bytes
    has_proto: bool
    has_host: bool
    has_forwarded: bool


class RequestHead:
    """A parsed header block, without its request line.

    length: bytes of body, or CHUNKED; framed: whether the block says so. keep_alive: what Connection asks for, None
    for nothing. fields: the block to forward, without hop-by-hop fields and without what slb sets itself.
    forwarding: None where the peer is not trusted or names no client. request_id, trace (a traceparent): the
    client's, already in `fields`; trace and states (the values of tracestate) are None where there is none, empty
    where it is not valid. lines: how many fields. looped: it has passed this instance before. timeout: seconds a
    trusted peer gives the whole request. upgrade: the protocol it asks for.
    """

    length = 0
    framed = False
    keep_alive: bool | None = None
    host: bytes | None = None
    fields = b""
    forwarding: Forwarding | None = None
    lines = 0
    request_id = b""
    trace: bytes | None = None
    states: tuple[bytes, ...] | None = None
    looped = False
    timeout = 0.0
    upgrade = b""
    wants_timing = False
    wants_trailers = False


class RequestHeads:
    """Parses header blocks. `trusted`: the peer's X-Forwarded-* and Forwarded are kept, else replaced. `own_via`:
    this instance's name in Via. `dropped`: headers that are not passed on."""

    def __init__(self, own_via: bytes, max_headers: int, trusted: bool, dropped: Iterable[str] = ()) -> None:
        self._own_via = own_via
        self._max_headers = max_headers
        self._trusted = trusted
        self._known = Lines(dropped) if dropped else FIELDS

    def parse(self, block: bytes) -> RequestHead:
        """`block`: everything behind the request line, the empty line included. Raises Refused."""
        lines = block.split(b"\r\n")
        if lines.pop() or lines.pop():
            raise Refused(BAD_REQUEST, "the head does not end in an empty line")
        if len(lines) > self._max_headers:
            raise Refused(HEADERS_TOO_LARGE, f"more than {self._max_headers} headers")
        try:
            found = fields_of(lines, self._known)
        except MalformedField as error:
            raise Refused(BAD_REQUEST, str(error)) from None
        head = RequestHead()
        head.lines = len(lines)
        plain = True
        for kind, value, _ in found:
            if kind and not _TAKE[kind](head, value):
                plain = False
        if head.states and not (head.trace and is_tracestate(head.states)):
            head.states = ()  # that of a trace which is not there, or is not valid
            plain = False
        own_via = self._own_via
        head.looped = own_via in block and any(kind == fields.VIA and own_via in value for kind, value, _ in found)
        head.fields = block[:-2] if plain else self._rebuilt(head, lines, found)
        if head.host and not (head.forwarding is not None and head.forwarding.has_host):
            head.fields += b"X-Forwarded-Host: %b\r\n" % head.host
        return head

    def _rebuilt(self, head: RequestHead, lines: list[bytes], found: list[fields.Field]) -> bytes:
        """The block without what belongs to this hop."""
        tokens = connection_tokens(found)
        if b"close" in tokens or b"keep-alive" in tokens:
            head.keep_alive = b"close" not in tokens
        named = tokens - fields.KEPT_TOKENS - fields.NEVER_STRIPPED
        kept: list[bytes] = []
        forwarded: list[tuple[bytes, bytes]] = []
        for line, (kind, value, name) in zip(lines, found, strict=True):
            if kind == fields.FORWARDED and self._trusted:
                forwarded.append((name, value))
                if name == b"x-forwarded-for":
                    continue
            elif kind == fields.TIMEOUT:
                if self._trusted:
                    head.timeout = _timeout(value)
                continue
            elif kind == fields.TRACE_STATE and not head.states:
                continue
            elif kind == fields.LENGTH:
                kept.append(b"Content-Length: %d\r\n" % head.length)
                continue
            elif kind in _OWN:
                _take_wish(head, kind, value, tokens)
                continue
            if name not in named:
                kept.append(line + b"\r\n")
        if forwarded:
            head.forwarding = _forwarding(forwarded)
        if head.request_id:
            kept.append(b"X-Request-Id: %b\r\n" % head.request_id)
        if head.trace:
            kept.append(b"traceparent: %b\r\n" % head.trace)
        if head.length == CHUNKED:
            kept.append(b"Transfer-Encoding: chunked\r\n")
        return b"".join(kept)


def _forwarding(found: list[tuple[bytes, bytes]]) -> Forwarding:
    names = {name for name, _ in found}
    hops = b", ".join(value for name, value in found if name == b"x-forwarded-for")
    return Forwarding(hops, b"x-forwarded-proto" in names, b"x-forwarded-host" in names, b"forwarded" in names)


# Each stores what a field means, and returns whether it is passed on just as it stands.


def _take_host(head: RequestHead, value: bytes) -> bool:
    if head.host is not None or not (_is_known_host(value) if len(value) <= _LONGEST_NAME else _is_host(value)):
        raise Refused(BAD_REQUEST, "Host is not one host[:port]")
    head.host = value
    return True


def _is_host(value: bytes) -> bool:
    """RFC 9110, 7.2, and RFC 3986, 3.2.2."""
    match = _HOST.fullmatch(value)
    if match is not None and match[1] is not None:
        with suppress(AddressValueError):
            return bool(IPv6Address(match[1].decode()))
        return False
    return match is not None


_is_known_host = lru_cache(256)(_is_host)


def _take_length(head: RequestHead, value: bytes) -> bool:
    """RFC 9112, 6.3. A number with leading zeros is written anew: some read 010 as eight."""
    if head.framed or not value.isdigit() or len(value) > 18:
        raise Refused(BAD_REQUEST, "Content-Length is not one number")
    head.framed = True
    head.length = int(value)
    return value[0] != 0x30 or value == b"0"


def _take_coding(head: RequestHead, value: bytes) -> bool:
    """Only chunked, once."""
    if head.framed:
        raise Refused(BAD_REQUEST, "both Content-Length and Transfer-Encoding, or one of them twice")
    if value.lower() != b"chunked":
        raise Refused(BAD_REQUEST, "the only transfer coding is chunked")
    head.framed = True
    head.length = CHUNKED
    return False


def _take_request_id(head: RequestHead, value: bytes) -> bool:
    if head.request_id or not _REQUEST_ID.fullmatch(value):
        return False
    head.request_id = value
    return True


def _take_trace(head: RequestHead, value: bytes) -> bool:
    """Two are as none (W3C Trace Context, 4.3)."""
    is_one = head.trace is None and is_traceparent(value)
    head.trace = value if is_one else b""
    return is_one


def _take_trace_state(head: RequestHead, value: bytes) -> bool:
    head.states = (*(head.states or ()), value)
    return True


def _take_expect(head: RequestHead, value: bytes) -> bool:
    if value.lower() != b"100-continue":
        raise Refused(BAD_REQUEST, "the only expectation is 100-continue")
    return True


def _take_timing(head: RequestHead, value: bytes) -> bool:
    head.wants_timing = True
    return True


def _take_shadow(head: RequestHead, value: bytes) -> bool:
    raise Refused(BAD_REQUEST, "a header has a name that some upstreams take for one of HTTP's own")


_HERE = (fields.CONNECTION, fields.FORWARDED, fields.HOP, fields.TE, fields.TIMEOUT, fields.TRAILER, fields.UPGRADE)
"""Fields of this hop: never passed on as they stand."""
_TAKE: dict[int, Callable[[RequestHead, bytes], bool]] = {
    **dict.fromkeys(_HERE, lambda head, value: False),
    fields.HOST: _take_host,
    fields.LENGTH: _take_length,
    fields.CODING: _take_coding,
    fields.REQUEST_ID: _take_request_id,
    fields.TRACE: _take_trace,
    fields.TRACE_STATE: _take_trace_state,
    fields.EXPECT: _take_expect,
    fields.VIA: lambda head, value: True,
    fields.TIMING: _take_timing,
    fields.SHADOW: _take_shadow,
}

_OWN = frozenset({*_HERE, fields.CODING, fields.REQUEST_ID, fields.TRACE})
"""Fields that are dropped, and written anew where slb has something to say."""


def _timeout(value: bytes) -> float:
    """A trusted caller's own deadline, in seconds. Raises Refused."""
    try:
        return seconds(value.decode("latin-1"))
    except InvalidName as error:
        raise Refused(BAD_REQUEST, f"X-Request-Timeout: {error}") from None


def _take_wish(head: RequestHead, kind: int, value: bytes, tokens: set[bytes]) -> None:
    """Upgrade and TE, which this hop asks for again. Never h2c: slb could not read what follows its 101."""
    if kind == fields.TE:
        head.wants_trailers = b"trailers" in {each.strip() for each in set(value.lower().split(b","))}
    elif kind == fields.UPGRADE and b"upgrade" in tokens and not head.length:
        head.upgrade = value if _TOKEN.fullmatch(value) and value.lower() != b"h2c" else b""

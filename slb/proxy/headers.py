"""Heads of requests: what one says of its message, and the bytes of it that are passed on.

Framing by RFC 9112, 6, strictly: what is said twice, or in two ways, is refused.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address

from slb.errors import BAD_REQUEST, HEADERS_TOO_LARGE, InvalidName, Refused
from slb.names import seconds
from slb.proxy.trace_context import is_traceparent, is_tracestate
from slb.upstreams import fields
from slb.upstreams.body import CHUNKED
from slb.upstreams.fields import FIELDS, Lines, MalformedField, connection_tokens, fields_of

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}+")
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z/]++")
_HOST = re.compile(rb"(?:\[([0-9A-Fa-f:.]{2,45})\]|(?:[A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})*+)(?::[0-9]*+)?")
"""Between brackets an IPv6 address, whose own rules are asked: neither a zone nor an address of the future."""
_LONGEST_NAME = 255
"""Bytes that a name of DNS may have; longer hosts are matched each time, for they would fill the memory."""


class RequestHead:
    """What a header block says, whatever the request line above it.

    length: bytes of body, or CHUNKED; framed: whether the block says so. close, keep_alive: the Connection tokens.
    fields: the block to forward, without hop-by-hop fields and without what slb sets itself. forwarded_for: what
    came of X-Forwarded-For from a trusted peer. request_id, trace: the client's, already in `fields`. has_trace,
    has_state: there was a traceparent, a tracestate, valid or not; states: of the latter what is passed on. looped:
    it has passed this instance before. timeout: seconds a trusted peer gives the whole request. upgrade: the
    protocol it asks for. plain: neither upgrade nor trailers are asked for.
    """

    length = 0
    framed = False
    close = False
    keep_alive = False
    host: bytes | None = None
    fields = b""
    forwarded_for = b""
    has_host = False
    has_proto = False
    has_forwarded = False
    is_forwarded = False
    has_trace = False
    has_state = False
    states: tuple[bytes, ...] = ()
    lines = 0
    request_id = b""
    looped = False
    plain = True
    trace = b""
    timeout = 0.0
    upgrade = b""
    via = b""
    wants_timing = False
    wants_trailers = False


class RequestHeads:
    """Parses header blocks of requests. `trusted`: the peer's X-Forwarded-* and Forwarded are kept, else replaced.
    `own_via` is this instance's name in Via, by which a loop is seen. `dropped`: headers that are not passed on."""

    def __init__(self, own_via: bytes, max_headers: int, trusted: bool, dropped: Iterable[str] = ()) -> None:
        self._own_via = own_via
        self._max_headers = max_headers
        self._trusted = trusted
        self._known = Lines(dropped) if dropped else FIELDS

    def parse(self, block: bytes) -> RequestHead:
        """`block` is everything behind the request line, the empty line included. Raises Refused."""
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
        if head.has_state and not (head.trace and is_tracestate(head.states)):
            head.states = ()  # that of a trace which is not there, or is not valid
            plain = False
        if head.via and self._own_via in head.via:
            head.looped = True
        head.fields = block[:-2] if plain else self._rebuilt(head, lines, found)
        if head.host and not head.has_host:
            head.fields += b"X-Forwarded-Host: %b\r\n" % head.host
        return head

    def _rebuilt(self, head: RequestHead, lines: list[bytes], found: list[fields.Field]) -> bytes:
        """The block without what belongs to this hop."""
        tokens = connection_tokens(found)
        head.close = b"close" in tokens
        head.keep_alive = b"keep-alive" in tokens
        named = tokens - fields.KEPT_TOKENS - fields.NEVER_STRIPPED
        kept: list[bytes] = []
        forwarded_for: list[bytes] = []
        for line, (kind, value, name) in zip(lines, found, strict=True):
            if kind == fields.FORWARDED and self._trusted:
                if name == b"x-forwarded-for":
                    head.is_forwarded = True
                    forwarded_for.append(value)
                    continue
                head.is_forwarded = True
                head.has_proto = head.has_proto or name == b"x-forwarded-proto"
                head.has_forwarded = head.has_forwarded or name == b"forwarded"
                head.has_host = head.has_host or name == b"x-forwarded-host"
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
        head.forwarded_for = b", ".join(forwarded_for)
        if head.request_id:
            kept.append(b"X-Request-Id: %b\r\n" % head.request_id)
        if head.trace:
            kept.append(b"traceparent: %b\r\n" % head.trace)
        if head.length == CHUNKED:
            kept.append(b"Transfer-Encoding: chunked\r\n")
        return b"".join(kept)


# Each notes what a field says, and returns whether it is passed on just as it stands.


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
"""The few names a fleet goes by are looked up, not matched again."""


def _take_length(head: RequestHead, value: bytes) -> bool:
    """RFC 9112, 6.3: a length said twice, or beside a transfer coding, is refused. Ten may be written 010, which
    some read as eight: then the number is passed on, not what was written."""
    if head.framed or not value.isdigit() or len(value) > 18:
        raise Refused(BAD_REQUEST, "Content-Length is not one number")
    head.framed = True
    head.length = int(value)
    return value[0] != 0x30 or value == b"0"


def _take_coding(head: RequestHead, value: bytes) -> bool:
    """Only chunked, once and alone."""
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
    """Of two it is not known which is meant, so that there is none (W3C Trace Context, 4.3)."""
    is_one = not head.has_trace and is_traceparent(value)
    head.has_trace, head.trace = True, value if is_one else b""
    return is_one


def _take_trace_state(head: RequestHead, value: bytes) -> bool:
    head.has_state = True
    head.states += (value,)
    return True


def _take_expect(head: RequestHead, value: bytes) -> bool:
    if value.lower() != b"100-continue":
        raise Refused(BAD_REQUEST, "the only expectation is 100-continue")
    return True


def _take_via(head: RequestHead, value: bytes) -> bool:
    head.via += value
    return True


def _take_timing(head: RequestHead, value: bytes) -> bool:
    head.wants_timing = True
    return True


def _take_shadow(head: RequestHead, value: bytes) -> bool:
    raise Refused(BAD_REQUEST, "a header has a name that some upstreams take for one of HTTP's own")


def _is_of_this_hop(head: RequestHead, value: bytes) -> bool:
    return False


_TAKE = {
    fields.HOST: _take_host,
    fields.LENGTH: _take_length,
    fields.CODING: _take_coding,
    fields.REQUEST_ID: _take_request_id,
    fields.TRACE: _take_trace,
    fields.TRACE_STATE: _take_trace_state,
    fields.EXPECT: _take_expect,
    fields.VIA: _take_via,
    fields.TIMING: _take_timing,
    fields.SHADOW: _take_shadow,
    fields.CONNECTION: _is_of_this_hop,
    fields.FORWARDED: _is_of_this_hop,
    fields.HOP: _is_of_this_hop,
    fields.TE: _is_of_this_hop,
    fields.TIMEOUT: _is_of_this_hop,
    fields.TRAILER: _is_of_this_hop,
    fields.UPGRADE: _is_of_this_hop,
}

_OWN = frozenset(
    {
        fields.HOP,
        fields.CONNECTION,
        fields.CODING,
        fields.FORWARDED,
        fields.REQUEST_ID,
        fields.TE,
        fields.TRACE,
        fields.TRAILER,
        fields.UPGRADE,
    }
)
"""Fields of this hop, or said once only: dropped, and said anew where slb has something to say."""


def _timeout(value: bytes) -> float:
    """A trusted caller's own deadline; it has been heard and goes no further."""
    try:
        return seconds(value.decode("latin-1"))
    except InvalidName as error:
        raise Refused(BAD_REQUEST, f"X-Request-Timeout: {error}") from None


def _take_wish(head: RequestHead, kind: int, value: bytes, tokens: set[bytes]) -> None:
    """What this hop is asked for and asks for again. Never h2c: behind its 101 slb could not read the requests."""
    if kind == fields.TE:
        head.wants_trailers = b"trailers" in {each.strip() for each in set(value.lower().split(b","))}
    elif kind == fields.UPGRADE and b"upgrade" in tokens and not head.length:
        head.upgrade = value if _TOKEN.fullmatch(value) and value.lower() != b"h2c" else b""
    head.plain = not head.wants_trailers and not head.upgrade

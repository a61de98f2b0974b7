"""Heads of requests: what one says of its message, and the bytes of it that are passed on.

Parsing is httptools', plus the rules of RFC 9112 it leaves to its user.
"""

import re
from functools import lru_cache

import httptools

from slb.errors import BAD_REQUEST, HEADERS_TOO_LARGE, InvalidName, Refused
from slb.names import seconds
from slb.proxy.body import CHUNKED
from slb.proxy.fields import KEPT_TOKENS, KINDS, NEVER_STRIPPED, Fields, Kind, connection_tokens, read_fields

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z/]+")
_TRACE = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9\-._~!$&'()*+,;=%]*)(?::[0-9]*)?")
_ANY_REQUEST_LINE = b"POST / HTTP/1.1\r\n"
"""Stands before every block given to the request parser: methods and targets are judged elsewhere."""


class RequestHead:
    """What a header block says, whatever the request line above it.

    length: bytes of body, or CHUNKED; framed: whether the block says so. close, keep_alive: the Connection tokens.
    fields: the block to forward, without hop-by-hop fields and without what slb sets itself. forwarded_for: what
    came of X-Forwarded-For from a trusted peer. request_id, trace: the client's, already in `fields`. looped: it
    has passed this instance before. timeout: seconds a trusted peer gives the whole request. upgrade: the protocol
    it asks for. plain: neither upgrade nor trailers are asked for.
    """

    length = 0
    framed = False
    close = False
    keep_alive = False
    expects = False
    host: bytes | None = None
    fields = b""
    forwarded_for = b""
    has_host = False
    has_proto = False
    request_id = b""
    looped = False
    plain = True
    trace = b""
    timeout = 0.0
    upgrade = b""
    wants_timing = False
    wants_trailers = False


class RequestHeads:
    """Parses header blocks of requests. `trusted`: the peer's X-Forwarded-* and Forwarded are kept, else replaced.
    `own_via` is this instance's name in Via, by which a loop is seen."""

    def __init__(self, own_via: bytes, max_headers: int, trusted: bool) -> None:
        self._own_via = own_via
        self._max_headers = max_headers
        self._trusted = trusted

    def parse(self, block: bytes) -> RequestHead:
        """`block` is everything behind the request line, the empty line included. Raises Refused."""
        try:
            fields = read_fields(httptools.HttpRequestParser, _ANY_REQUEST_LINE + block)
        except httptools.HttpParserError as error:
            raise Refused(BAD_REQUEST, f"malformed head: {error}") from None
        if len(fields) > self._max_headers:
            raise Refused(HEADERS_TOO_LARGE, f"more than {self._max_headers} headers")
        head = RequestHead()
        plain = True
        kinds = KINDS
        for name, value in fields:
            kind = kinds[name]
            if kind and not self._take(head, kind, value):
                plain = False
        head.fields = block[:-2] if plain else self._rebuilt(head, fields)
        if head.host and not head.has_host:
            head.fields += b"X-Forwarded-Host: %b\r\n" % head.host
        return head

    def _take(self, head: RequestHead, kind: Kind, value: bytes) -> bool:
        """Note what the field says. True where it is passed on just as it stands."""
        value = value.rstrip(b" \t")
        if kind is Kind.HOST:
            if head.host is not None or not _is_host(value):
                raise Refused(BAD_REQUEST, "Host is not one host[:port]")
            head.host = value
            return True
        if kind is Kind.LENGTH:
            head.length = _request_length(head, value)
            return True
        if kind is Kind.REQUEST_ID and not head.request_id and _REQUEST_ID.fullmatch(value):
            head.request_id = value
            return True
        if kind is Kind.EXPECT:
            if value.lower() != b"100-continue":
                raise Refused(BAD_REQUEST, "the only expectation is 100-continue")
            head.expects = True
            return True
        if kind is Kind.VIA:
            head.looped = head.looped or self._own_via in value
            return True
        if kind is Kind.TRACE and not head.trace and _TRACE.fullmatch(value):
            head.trace = value
            return True
        if kind is Kind.TIMING:
            head.wants_timing = True
            return True
        if kind is Kind.TIMEOUT:
            return not self._trusted or _take_timeout(head, value)
        if kind is Kind.CODING:
            _take_coding(head, value)
        elif kind is Kind.SHADOW:
            raise Refused(BAD_REQUEST, "a header with underscores shadows one of HTTP's own")
        return False

    def _rebuilt(self, head: RequestHead, fields: Fields) -> bytes:
        """The block without what belongs to this hop."""
        tokens = connection_tokens(fields)
        head.close = b"close" in tokens
        head.keep_alive = b"keep-alive" in tokens
        named = tokens - KEPT_TOKENS - NEVER_STRIPPED
        lines: list[bytes] = []
        forwarded_for: list[bytes] = []
        for name, value in fields:
            kind = KINDS[name]
            if kind is Kind.FORWARDED and self._trusted:
                lower = name.lower()
                if lower == b"x-forwarded-for":
                    forwarded_for.append(value)
                    continue
                head.has_proto = head.has_proto or lower == b"x-forwarded-proto"
                head.has_host = head.has_host or lower == b"x-forwarded-host"
            elif kind in _OWN or (kind is Kind.TIMEOUT and self._trusted):
                if kind is Kind.UPGRADE or kind is Kind.TE:
                    _take_wish(head, kind, value, tokens)
                continue
            if named and name.lower() in named:
                continue
            lines.append(b"%b: %b\r\n" % (name, value))
        head.forwarded_for = b", ".join(forwarded_for)
        if head.request_id:
            lines.append(b"X-Request-Id: %b\r\n" % head.request_id)
        if head.trace:
            lines.append(b"traceparent: %b\r\n" % head.trace)
        if head.length == CHUNKED:
            lines.append(b"Transfer-Encoding: chunked\r\n")
        return b"".join(lines)


@lru_cache(256)
def _is_host(value: bytes) -> bool:
    """RFC 9110, 7.2. The few names a fleet goes by are looked up, not matched again."""
    return _HOST.fullmatch(value) is not None


_OWN = frozenset(
    {
        Kind.HOP,
        Kind.CONNECTION,
        Kind.CODING,
        Kind.FORWARDED,
        Kind.REQUEST_ID,
        Kind.TE,
        Kind.TRACE,
        Kind.TRAILER,
        Kind.UPGRADE,
    }
)
"""Fields of this hop, or said once only: dropped, and said anew where slb has something to say."""


def _take_timeout(head: RequestHead, value: bytes) -> bool:
    """A trusted caller's own deadline; it has been heard and goes no further."""
    try:
        head.timeout = seconds(value.decode("latin-1"))
    except InvalidName as error:
        raise Refused(BAD_REQUEST, f"X-Request-Timeout: {error}") from None
    return False


def _take_wish(head: RequestHead, kind: Kind, value: bytes, tokens: set[bytes]) -> None:
    """What this hop is asked for and asks for again. Never h2c: behind its 101 nobody could read the requests."""
    value = value.rstrip(b" \t")
    if kind is Kind.TE:
        head.wants_trailers = b"trailers" in (each.strip().lower() for each in value.split(b","))
    elif b"upgrade" in tokens and not head.length and _TOKEN.fullmatch(value) and value.lower() != b"h2c":
        head.upgrade = value
    head.plain = not head.wants_trailers and not head.upgrade


def _request_length(head: RequestHead, value: bytes) -> int:
    """RFC 9112, 6.3: a length said twice, or beside a transfer coding, is refused."""
    if head.framed or not value.isdigit() or len(value) > 18:
        raise Refused(BAD_REQUEST, "Content-Length is not one number")
    head.framed = True
    return int(value)


def _take_coding(head: RequestHead, value: bytes) -> None:
    """Only chunked, once and alone; llhttp has refused it beside Content-Length, and is not taken at its word."""
    if head.framed:
        raise Refused(BAD_REQUEST, "both Content-Length and Transfer-Encoding, or one of them twice")
    if value.lower() != b"chunked":
        raise Refused(BAD_REQUEST, "the only transfer coding is chunked")
    head.framed = True
    head.length = CHUNKED

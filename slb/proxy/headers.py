"""Heads: what one says of its message, and the bytes of it that are passed on.

Parsing is httptools' (llhttp, strict) plus the rules of RFC 9112 it leaves to its user. The result depends on
nothing but the bytes, so each distinct head is parsed once and kept in a cache that is bounded in bytes: on
kept-alive connections heads repeat to the byte. Only what the strict parser accepted is ever in it.
"""

import re
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Generic, TypeVar

import httptools

from slb.errors import BAD_REQUEST, HEADERS_TOO_LARGE, InvalidName, Refused
from slb.names import seconds
from slb.proxy.body import CHUNKED, UNTIL_CLOSE

_NEVER_STRIPPED = frozenset(
    b"authorization cache-control content-encoding content-length content-range content-type cookie date forwarded"
    b" host set-cookie via x-forwarded-for x-forwarded-host x-forwarded-proto x-request-id".split()
)
"""A Connection token naming one of these would change what the message means, or hide where it has been; it is
ignored (RFC 9110, 7.6.1)."""
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z/]+")
_TRACE = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9\-._~!$&'()*+,;=%]*)(?::[0-9]*)?")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: ([\t\x20-\x7e\x80-\xff]*))?\r\n")
_ANY_REQUEST_LINE = b"POST / HTTP/1.1\r\n"
"""Stands before every block given to the request parser: methods and targets are judged elsewhere."""
_KEPT_CONNECTION = frozenset({b"", b"close", b"keep-alive"})

Fields = Sequence[tuple[bytes, bytes]]
"""(name, value) of each field as written, in order; values may end in white space."""


class MalformedReply(ValueError):
    """A reply head that is not HTTP/1.1."""


class _Kind(IntEnum):
    """What a field is to a proxy. Most are PLAIN: passed on, not looked at."""

    PLAIN = 0
    LENGTH = 1
    CODING = 2
    CONNECTION = 3
    HOST = 4
    EXPECT = 5
    REQUEST_ID = 6
    VIA = 7
    FORWARDED = 8
    HOP = 9
    SHADOW = 10
    UPGRADE = 11
    TE = 12
    TRACE = 13
    TIMEOUT = 14
    TIMING = 15
    TRAILER = 16


_KIND_OF = {
    b"content-length": _Kind.LENGTH,
    b"transfer-encoding": _Kind.CODING,
    b"connection": _Kind.CONNECTION,
    b"host": _Kind.HOST,
    b"expect": _Kind.EXPECT,
    b"x-request-id": _Kind.REQUEST_ID,
    b"via": _Kind.VIA,
    b"forwarded": _Kind.FORWARDED,
    b"x-real-ip": _Kind.FORWARDED,
    b"keep-alive": _Kind.HOP,
    b"proxy-connection": _Kind.HOP,
    b"te": _Kind.TE,
    b"trailer": _Kind.TRAILER,
    b"http2-settings": _Kind.HOP,
    b"upgrade": _Kind.UPGRADE,
    b"traceparent": _Kind.TRACE,
    b"x-request-timeout": _Kind.TIMEOUT,
    b"x-slb-timing": _Kind.TIMING,
    b"proxy-authenticate": _Kind.HOP,
    b"proxy-authorization": _Kind.HOP,
    # Many upstreams cannot tell these from the names with hyphens (CGI, WSGI).
    b"content_length": _Kind.SHADOW,
    b"transfer_encoding": _Kind.SHADOW,
}


class _Kinds(dict[bytes, _Kind]):
    """Name in whatever case -> kind; remembers the spellings it has seen, up to a bound."""

    def __missing__(self, name: bytes) -> _Kind:
        lower = name.lower()
        kind = _KIND_OF.get(lower, _Kind.PLAIN)
        if lower.replace(b"_", b"-").startswith(b"x-forwarded-"):
            kind = _Kind.FORWARDED if b"_" not in lower else _Kind.SHADOW
        if len(self) < 1024:
            self[name] = kind
        return kind


_KINDS = _Kinds()


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


class ReplyHead:
    """What a reply's head says. start: status line and fields to pass on, without the empty line. length: bytes of
    body, CHUNKED or UNTIL_CLOSE (for a request whose method gives replies bodies)."""

    __slots__ = ("bodiless", "keep_alive", "length", "start", "status", "upgrade")

    def __init__(self, status: int, length: int, keep_alive: bool, start: bytes, upgrade: bytes) -> None:
        self.status = status
        self.upgrade = upgrade
        self.bodiless = status in (204, 304)
        self.length = 0 if self.bodiless else length
        self.keep_alive = keep_alive and self.length != UNTIL_CLOSE
        self.start = start


Parsed = TypeVar("Parsed")


_SEEN = 4096


class HeadCache(Generic[Parsed]):
    """bytes -> what `parse` made of them; at most about `limit` bytes.

    A head is kept from its second coming on: one that never comes again (a traceparent in each) then costs no
    memory, and the memory it was parsed in stays warm. Two generations: the young one is filled, becomes the old
    one, and what is asked for again is carried over. That keeps what repeats without a list to reorder.
    """

    __slots__ = ("_half", "_old", "_parse", "_seen", "_size", "_young")

    def __init__(self, parse: Callable[[bytes], Parsed], limit: int = 1 << 20) -> None:
        self._parse = parse
        self._half = limit // 2
        self._young: dict[bytes, Parsed] = {}
        self._old: dict[bytes, Parsed] = {}
        self._size = 0
        self._seen = [0] * _SEEN

    def get(self, block: bytes) -> Parsed:
        """The parsed head; whatever `parse` raises."""
        found = self._young.get(block)
        if found is not None:
            return found
        found = self._old.get(block)
        if found is not None:
            self._keep(block, found)
            return found
        found = self._parse(block)
        mark = hash(block)
        if self._seen[mark % _SEEN] == mark:
            self._keep(block, found)
        else:
            self._seen[mark % _SEEN] = mark
        return found

    def _keep(self, block: bytes, parsed: Parsed) -> None:
        size = 2 * len(block) + 300
        self._size += size
        if self._size > self._half:
            self._old, self._young, self._size = self._young, {}, size
        self._young[block] = parsed


class _Collector:
    """What httptools calls back."""

    __slots__ = ("on_header",)

    def __init__(self, on_header: Callable[[bytes, bytes], object]) -> None:
        self.on_header = on_header


_Parser = type[httptools.HttpRequestParser] | type[httptools.HttpResponseParser]


def _read_fields(parser: _Parser, head: bytes) -> Fields:
    """The fields of a whole head. Raises HttpParserError.

    First into a dict, whose `setdefault` is called without a line of Python in between; only a head in which one
    name stands twice is read again into a list.
    """
    unique: dict[bytes, bytes] = {}
    _feed(parser(_Collector(unique.setdefault)), head)
    if len(unique) == head.count(b"\n") - 2:
        return tuple(unique.items())
    fields: list[tuple[bytes, bytes]] = []
    _feed(parser(_Collector(lambda name, value: fields.append((name, value)))), head)
    return fields


def _feed(parser: httptools.HttpRequestParser | httptools.HttpResponseParser, head: bytes) -> None:
    try:
        parser.feed_data(head)
    except httptools.HttpParserUpgrade:
        return  # an Upgrade is read to its end like any other head


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
            fields = _read_fields(httptools.HttpRequestParser, _ANY_REQUEST_LINE + block)
        except httptools.HttpParserError as error:
            raise Refused(BAD_REQUEST, f"malformed head: {error}") from None
        if len(fields) > self._max_headers:
            raise Refused(HEADERS_TOO_LARGE, f"more than {self._max_headers} headers")
        head = RequestHead()
        plain = True
        kinds = _KINDS
        for name, value in fields:
            kind = kinds[name]
            if kind and not self._take(head, kind, value):
                plain = False
        head.fields = block[:-2] if plain else self._rebuilt(head, fields)
        if head.host and not head.has_host:
            head.fields += b"X-Forwarded-Host: %b\r\n" % head.host
        return head

    def _take(self, head: RequestHead, kind: _Kind, value: bytes) -> bool:
        """Note what the field says. True where it is passed on just as it stands."""
        value = value.rstrip(b" \t")
        if kind is _Kind.HOST:
            if head.host is not None or not _is_host(value):
                raise Refused(BAD_REQUEST, "Host is not one host[:port]")
            head.host = value
            return True
        if kind is _Kind.LENGTH:
            head.length = _request_length(head, value)
            return True
        if kind is _Kind.REQUEST_ID and not head.request_id and _REQUEST_ID.fullmatch(value):
            head.request_id = value
            return True
        if kind is _Kind.EXPECT:
            if value.lower() != b"100-continue":
                raise Refused(BAD_REQUEST, "the only expectation is 100-continue")
            head.expects = True
            return True
        if kind is _Kind.VIA:
            head.looped = head.looped or self._own_via in value
            return True
        if kind is _Kind.TRACE and not head.trace and _TRACE.fullmatch(value):
            head.trace = value
            return True
        if kind is _Kind.TIMING:
            head.wants_timing = True
            return True
        if kind is _Kind.TIMEOUT:
            return not self._trusted or _take_timeout(head, value)
        if kind is _Kind.CODING:
            _take_coding(head, value)
        elif kind is _Kind.SHADOW:
            raise Refused(BAD_REQUEST, "a header with underscores shadows one of HTTP's own")
        return False

    def _rebuilt(self, head: RequestHead, fields: Fields) -> bytes:
        """The block without what belongs to this hop."""
        tokens = _connection_tokens(fields)
        head.close = b"close" in tokens
        head.keep_alive = b"keep-alive" in tokens
        named = tokens - _KEPT_CONNECTION - _NEVER_STRIPPED
        lines: list[bytes] = []
        forwarded_for: list[bytes] = []
        for name, value in fields:
            kind = _KINDS[name]
            if kind is _Kind.FORWARDED and self._trusted:
                lower = name.lower()
                if lower == b"x-forwarded-for":
                    forwarded_for.append(value)
                    continue
                head.has_proto = head.has_proto or lower == b"x-forwarded-proto"
                head.has_host = head.has_host or lower == b"x-forwarded-host"
            elif kind in _OWN or (kind is _Kind.TIMEOUT and self._trusted):
                if kind is _Kind.UPGRADE or kind is _Kind.TE:
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
        _Kind.HOP,
        _Kind.CONNECTION,
        _Kind.CODING,
        _Kind.FORWARDED,
        _Kind.REQUEST_ID,
        _Kind.TE,
        _Kind.TRACE,
        _Kind.TRAILER,
        _Kind.UPGRADE,
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


def _take_wish(head: RequestHead, kind: _Kind, value: bytes, tokens: set[bytes]) -> None:
    """What this hop is asked for and asks for again. Never h2c: behind its 101 nobody could read the requests."""
    value = value.rstrip(b" \t")
    if kind is _Kind.TE:
        head.wants_trailers = b"trailers" in (each.strip().lower() for each in value.split(b","))
    elif b"upgrade" in tokens and not head.length and _TOKEN.fullmatch(value) and value.lower() != b"h2c":
        head.upgrade = value
    head.plain = not head.wants_trailers and not head.upgrade


def _connection_tokens(fields: Fields) -> set[bytes]:
    tokens: set[bytes] = set()
    for name, value in fields:
        if _KINDS[name] is _Kind.CONNECTION:
            tokens.update(token.strip(b" \t").lower() for token in value.split(b","))
    return tokens


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


def parse_reply(head: bytes) -> ReplyHead:
    """`head` is a reply's whole head, the empty line included. Raises MalformedReply."""
    line = _STATUS_LINE.match(head)
    if line is None:
        raise MalformedReply("the status line is malformed")
    try:
        fields = _read_fields(httptools.HttpResponseParser, head)
    except httptools.HttpParserError as error:
        raise MalformedReply(f"malformed head: {error}") from None
    minor, status, reason = line.groups(b"")
    tokens = _connection_tokens(fields)
    length = _reply_length(fields)
    # HTTP/1.0 knows no chunks: read, but nothing behind them is trusted (RFC 9112, 6.1).
    keep_alive = b"close" not in tokens and (minor == b"1" or (b"keep-alive" in tokens and length != CHUNKED))
    without_length = status == b"204" or status < b"200"  # RFC 9110, 8.6
    passed_on = _passed_on(fields, tokens - _KEPT_CONNECTION - _NEVER_STRIPPED, without_length)
    start = b"HTTP/1.1 %b %b\r\n%bVia: 1.%b slb\r\n" % (status, reason, passed_on, minor)
    upgrade = b"".join(value.rstrip(b" \t") for name, value in fields if _KINDS[name] is _Kind.UPGRADE)
    return ReplyHead(int(status), length, keep_alive, start, upgrade)


def _reply_length(fields: Fields) -> int:
    """RFC 9112, 6.3. Anything said twice is refused; llhttp has done so for a length, even where it is the same."""
    lengths = [value.rstrip(b" \t") for name, value in fields if _KINDS[name] is _Kind.LENGTH]
    codings = [value.rstrip(b" \t").lower() for name, value in fields if _KINDS[name] is _Kind.CODING]
    if codings:
        if lengths or codings != [b"chunked"]:
            raise MalformedReply("a transfer coding other than chunked, or beside a Content-Length")
        return CHUNKED
    if not lengths:
        return UNTIL_CLOSE
    if len(lengths) > 1 or not lengths[0].isdigit() or len(lengths[0]) > 18:
        raise MalformedReply("Content-Length is not one number")
    return int(lengths[0])


_REPLY_OWN = frozenset({_Kind.HOP, _Kind.CONNECTION, _Kind.CODING, _Kind.REQUEST_ID, _Kind.TE, _Kind.UPGRADE})


def _passed_on(fields: Fields, named: set[bytes], without_length: bool) -> bytes:
    lines: list[bytes] = []
    for name, value in fields:
        kind = _KINDS[name]
        if kind in _REPLY_OWN or (kind is _Kind.LENGTH and without_length) or (named and name.lower() in named):
            continue
        lines.append(b"%b: %b\r\n" % (name, value))
    return b"".join(lines)

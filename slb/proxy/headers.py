"""Heads: what one says of its message, and the bytes of it that are passed on.

Parsing is httptools' (llhttp, strict) plus the rules of RFC 9112 it leaves to its user. The result depends on
nothing but the bytes, so each distinct head is parsed once and kept in a cache that is bounded in bytes: on
kept-alive connections heads repeat to the byte. Only what the strict parser accepted is ever in it.
"""

import re
from collections.abc import Callable
from typing import Generic, TypeVar

import httptools

from slb.errors import BAD_REQUEST, HEADERS_TOO_LARGE, Refused
from slb.proxy.body import CHUNKED, UNTIL_CLOSE

VIA_NAME = b"slb"

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"proxy-authenticate",
        b"proxy-authorization",
    }
)
_NEVER_STRIPPED = frozenset({b"host", b"content-length", b"content-type", b"authorization", b"cookie", b"date"})
"""A Connection token naming one of these would change what the message means; it is ignored (RFC 9110, 7.6.1)."""
_FORWARDED = re.compile(rb"x-forwarded-.*|forwarded|x-real-ip")
_SHADOWED = frozenset({b"content-length", b"transfer-encoding", b"host", b"connection", b"x-forwarded-for"})
"""Names that many upstreams cannot tell from their spelling with underscores (CGI, WSGI)."""
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9\-._~!$&'()*+,;=%]*)(?::[0-9]*)?")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: ([\t\x20-\x7e\x80-\xff]*))?\r\n")
_REQUEST_LINE = b"POST / HTTP/1.1\r\n"
"""Stands before every header block given to the parser: methods are not a parser's to know."""

Fields = list[tuple[bytes, bytes, bytes]]


class MalformedReply(ValueError):
    """A reply head that is not HTTP/1.1."""


class _Collector:
    """Receives what httptools reads: (name in lower case, name, value)."""

    __slots__ = ("fields",)

    def __init__(self) -> None:
        self.fields: Fields = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name.lower(), name, value.strip(b" \t")))


class RequestHead:
    """What a header block says, whatever the request line above it.

    length: bytes of body, or CHUNKED. close, keep_alive: the Connection tokens. fields: the block to forward,
    without hop-by-hop fields and without what slb sets itself. forwarded_for: what came of X-Forwarded-For from a
    trusted peer. request_id: the client's, already in `fields`. looped: it has passed this instance before.
    """

    __slots__ = (
        "close",
        "expects",
        "fields",
        "forwarded_for",
        "has_proto",
        "host",
        "keep_alive",
        "length",
        "looped",
        "request_id",
        "transfer_coded",
    )

    def __init__(self) -> None:
        self.length = 0
        self.close = False
        self.keep_alive = False
        self.expects = False
        self.transfer_coded = False
        self.host: bytes | None = None
        self.fields = b""
        self.forwarded_for = b""
        self.has_proto = False
        self.request_id = b""
        self.looped = False


class ReplyHead:
    """What a reply's head says. start: status line and fields to pass on, without the empty line. length: bytes of
    body, CHUNKED or UNTIL_CLOSE (for a request whose method gives replies bodies)."""

    __slots__ = ("keep_alive", "length", "start", "status")

    def __init__(self, status: int, length: int, keep_alive: bool, start: bytes) -> None:
        self.status = status
        self.length = length
        self.keep_alive = keep_alive
        self.start = start


Parsed = TypeVar("Parsed")


class HeadCache(Generic[Parsed]):
    """bytes -> what `parse` made of them; at most about `limit` bytes of keys.

    Two generations: the young one is filled, becomes the old one, and what is asked for again is carried over.
    That keeps what repeats at the cost of two dict lookups, without a list to reorder.
    """

    __slots__ = ("_half", "_old", "_parse", "_size", "_young")

    def __init__(self, parse: Callable[[bytes], Parsed], limit: int = 1 << 20) -> None:
        self._parse = parse
        self._half = limit // 2
        self._young: dict[bytes, Parsed] = {}
        self._old: dict[bytes, Parsed] = {}
        self._size = 0

    def get(self, block: bytes) -> Parsed:
        """The parsed head; whatever `parse` raises."""
        found = self._young.get(block)
        if found is None:
            found = self._old.get(block)
            if found is None:
                found = self._parse(block)
            self._keep(block, found)
        return found

    def _keep(self, block: bytes, parsed: Parsed) -> None:
        if self._size > self._half:
            self._old, self._young, self._size = self._young, {}, 0
        self._young[block] = parsed
        self._size += len(block) + 500


class RequestHeads:
    """Parses header blocks of requests. `trusted`: the peer's X-Forwarded-* and Forwarded are kept, else replaced.
    `own_via` is this instance's name in Via, by which a loop is seen."""

    def __init__(self, own_via: bytes, max_headers: int, trusted: bool) -> None:
        self._own_via = own_via
        self._max_headers = max_headers
        self._trusted = trusted

    def parse(self, block: bytes) -> RequestHead:
        """`block` is everything behind the request line, the empty line included. Raises Refused."""
        fields = self._fields(block)
        head = RequestHead()
        lengths: list[bytes] = []
        codings: list[bytes] = []
        tokens: set[bytes] = set()
        for lower, name, value in fields:
            if lower == b"content-length":
                lengths.append(value)
            elif lower == b"transfer-encoding":
                codings.append(value)
            elif lower == b"connection":
                tokens.update(token.strip(b" \t").lower() for token in value.split(b","))
            elif lower == b"host":
                self._take_host(head, value)
            elif lower == b"expect":
                self._take_expect(head, value)
            elif lower == b"x-request-id" and _REQUEST_ID.fullmatch(value):
                head.request_id = value
            elif lower == b"via" and self._own_via in value:
                head.looped = True
            elif b"_" in lower and lower.replace(b"_", b"-") in _SHADOWED:
                raise Refused(BAD_REQUEST, f"header {name.decode()} shadows one of HTTP's own")
        head.length = _request_length(lengths, codings)
        head.transfer_coded = bool(codings)
        head.close = b"close" in tokens
        head.keep_alive = b"keep-alive" in tokens
        head.fields = self._forwarded_fields(head, fields, tokens)
        return head

    def _fields(self, block: bytes) -> Fields:
        collector = _Collector()
        try:
            httptools.HttpRequestParser(collector).feed_data(_REQUEST_LINE + block)
        except httptools.HttpParserUpgrade:
            pass  # an Upgrade is read to its end like any other head
        except httptools.HttpParserError as error:
            raise Refused(BAD_REQUEST, f"malformed head: {error}") from None
        if len(collector.fields) > self._max_headers:
            raise Refused(HEADERS_TOO_LARGE, f"more than {self._max_headers} headers")
        return collector.fields

    @staticmethod
    def _take_host(head: RequestHead, value: bytes) -> None:
        if head.host is not None:
            raise Refused(BAD_REQUEST, "more than one Host")
        if not _HOST.fullmatch(value):
            raise Refused(BAD_REQUEST, "Host is not host[:port]")
        head.host = value

    @staticmethod
    def _take_expect(head: RequestHead, value: bytes) -> None:
        if value.lower() != b"100-continue":
            raise Refused(BAD_REQUEST, "the only expectation is 100-continue")
        head.expects = True

    def _forwarded_fields(self, head: RequestHead, fields: Fields, tokens: set[bytes]) -> bytes:
        dropped = _HOP_BY_HOP | (tokens - _NEVER_STRIPPED)
        lines: list[bytes] = []
        forwarded_for: list[bytes] = []
        has_host = False
        for lower, name, value in fields:
            if lower in dropped:
                continue
            if _FORWARDED.fullmatch(lower):
                if not self._trusted:
                    continue
                if lower == b"x-forwarded-for":
                    forwarded_for.append(value)
                    continue
                has_host = has_host or lower == b"x-forwarded-host"
                head.has_proto = head.has_proto or lower == b"x-forwarded-proto"
            elif lower == b"x-request-id" and value != head.request_id:
                continue
            lines.append(b"%b: %b\r\n" % (name, value))
        if head.host and not has_host:
            lines.append(b"X-Forwarded-Host: %b\r\n" % head.host)
        head.forwarded_for = b", ".join(forwarded_for)
        if head.length == CHUNKED:
            lines.append(b"Transfer-Encoding: chunked\r\n")
        return b"".join(lines)


def _request_length(lengths: list[bytes], codings: list[bytes]) -> int:
    """RFC 9112, 6.3: what is said twice, or in two ways, is refused; a request never ends with its connection."""
    if codings:
        if lengths:
            raise Refused(BAD_REQUEST, "both Content-Length and Transfer-Encoding")
        if len(codings) > 1 or codings[0].lower() != b"chunked":
            raise Refused(BAD_REQUEST, "the only transfer coding is chunked")
        return CHUNKED
    if not lengths:
        return 0
    if len(lengths) > 1 or not lengths[0].isdigit() or len(lengths[0]) > 18:
        raise Refused(BAD_REQUEST, "Content-Length is not one number")
    return int(lengths[0])


def parse_reply(head: bytes) -> ReplyHead:
    """`head` is a reply's whole head, the empty line included. Raises MalformedReply."""
    line = _STATUS_LINE.match(head)
    if line is None:
        raise MalformedReply("the status line is malformed")
    collector = _Collector()
    try:
        httptools.HttpResponseParser(collector).feed_data(head)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as error:
        raise MalformedReply(f"malformed head: {error}") from None
    lengths: list[bytes] = []
    codings: list[bytes] = []
    tokens: set[bytes] = set()
    for lower, _, value in collector.fields:
        if lower == b"content-length":
            lengths.append(value)
        elif lower == b"transfer-encoding":
            codings.append(value)
        elif lower == b"connection":
            tokens.update(token.strip(b" \t").lower() for token in value.split(b","))
    length = _reply_length(lengths, codings)
    status = int(line[2])
    keep_alive = b"close" not in tokens and (line[1] == b"1" or b"keep-alive" in tokens)
    start = b"HTTP/1.1 %b %b\r\n%bVia: 1.%b %b\r\n" % (
        line[2],
        line[3] or b"",
        _passed_on(collector.fields, tokens),
        line[1],
        VIA_NAME,
    )
    return ReplyHead(status, length, keep_alive and length != UNTIL_CLOSE, start)


def _reply_length(lengths: list[bytes], codings: list[bytes]) -> int:
    if codings:
        if lengths:
            raise MalformedReply("both Content-Length and Transfer-Encoding")
        if len(codings) > 1 or codings[0].lower() != b"chunked":
            raise MalformedReply("a transfer coding other than chunked")
        return CHUNKED
    if not lengths:
        return UNTIL_CLOSE
    if len(set(lengths)) > 1 or not lengths[0].isdigit() or len(lengths[0]) > 18:
        raise MalformedReply("Content-Length is not one number")
    return int(lengths[0])


def _passed_on(fields: Fields, tokens: set[bytes]) -> bytes:
    dropped = _HOP_BY_HOP | (tokens - _NEVER_STRIPPED) | {b"x-request-id"}
    lines: list[bytes] = []
    seen_length = False
    for lower, name, value in fields:
        if lower in dropped or (seen_length and lower == b"content-length"):
            continue
        seen_length = seen_length or lower == b"content-length"
        lines.append(b"%b: %b\r\n" % (name, value))
    return b"".join(lines)

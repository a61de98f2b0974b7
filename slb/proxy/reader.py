"""From bytes to a request: the end of its head, its meaning, why it is refused. Keeps no state of a connection."""

import re

from slb.config import Settings
from slb.errors import BAD_REQUEST, BODY_TOO_LARGE, HEADERS_TOO_LARGE, URI_TOO_LONG, Reason, Refused
from slb.proxy.headers import RequestHead, RequestHeads
from slb.proxy.target import RequestLine, RequestLines, parse_line
from slb.proxy.varying import VaryingHeads
from slb.upstreams.body import CHUNKED, Body, BodyTooLong, MalformedBody, body_of
from slb.upstreams.head_cache import HeadCache

_BARE_LF = re.compile(rb"(?<!\r)\n")
_HOST_FIELD = re.compile(rb"^host:[^\n]*+\n", re.IGNORECASE | re.MULTILINE)
_EMPTY_LINES = re.compile(rb"(?:\r\n)++")
_TOKEN_START = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]")


class RefusedBody(Refused):
    """The head could be read, but not the body. `about`: its line and the id it came with."""

    def __init__(self, reason: Reason, detail: str, line: RequestLine, request_id: bytes) -> None:
        super().__init__(reason, detail)
        self.about = line, request_id


class RequestReader:
    """`trusted`: for peers whose forwarding headers are kept."""

    def __init__(self, settings: Settings, lines: RequestLines, own_via: bytes, trusted: bool) -> None:
        self._max_line = settings.max_request_line
        self._max_head = settings.max_head
        self._max_body = settings.max_body
        self._lines = lines
        dropped = () if trusted else settings.untrusted_headers
        heads = RequestHeads(own_via, settings.max_headers, trusted, dropped)
        self._heads = HeadCache(VaryingHeads(heads.parse, settings.max_headers).parse)

    def whole(self, data: bytes, end: int) -> tuple[RequestLine, RequestHead]:
        """The request whose head is `data[:end]`, the empty line included. Raises Refused."""
        line_end = data.find(b"\r\n") + 2
        if end > self._max_head or line_end > self._max_line:
            self._check_size(end, line_end)
        line = self._lines.get(data[:line_end])
        block = data[line_end:end]
        head = self._heads[block]
        if line.minor == 0 or line.host is not None or head.host is None:
            head = self._together(line, head, block)
        return line, head

    def _together(self, line: RequestLine, head: RequestHead, block: bytes) -> RequestHead:
        """The rules that need request line and head. Raises Refused."""
        if line.minor == 1 and head.host is None:
            raise Refused(BAD_REQUEST, "HTTP/1.1 without Host")
        if line.minor == 0 and head.length == CHUNKED:
            raise Refused(BAD_REQUEST, "HTTP/1.0 knows no Transfer-Encoding")
        if line.host is not None:
            return self._heads[b"Host: %b\r\n" % line.host + _HOST_FIELD.sub(b"", block)]
        return head

    def body(self, line: RequestLine, head: RequestHead, rest: bytes) -> tuple[Body | None, bytes, bytes]:
        """Of a request with a body, `rest` being what stands behind its head: the decoder for what is still to come
        (None: nothing), the payload already here, the bytes behind. Raises RefusedBody."""
        try:
            body = body_of(head.length, self._max_body)
            payload = body.feed(rest)
        except MalformedBody as error:
            raise RefusedBody(reason_of(error), str(error), line, head.request_id) from None
        return (None, payload, body.rest) if body.done else (body, payload, b"")

    def partial(self, data: bytes, seen: int) -> bytes:
        """What to keep of a head that is not whole yet. Raises Refused where no further bytes can make it one.

        `seen`: bytes of it that were checked before; they are not checked again, since a head may come byte by
        byte.
        """
        if data.startswith(b"\r\n"):
            data, seen = without_empty_lines(data), 0
        first_line_end = data.find(b"\n") + 1
        self._check_size(len(data), first_line_end or len(data))
        if data and data != b"\r":
            self._check_beginning(data, first_line_end, seen)
        return data

    def _check_size(self, head_bytes: int, line_bytes: int) -> None:
        if line_bytes > self._max_line:
            raise Refused(URI_TOO_LONG, f"the request line is longer than {self._max_line} bytes")
        if head_bytes > self._max_head:
            raise Refused(HEADERS_TOO_LARGE, f"the head is longer than {self._max_head} bytes")

    @staticmethod
    def _check_beginning(data: bytes, first_line_end: int, seen: int) -> None:
        if not _TOKEN_START.match(data):
            raise Refused(BAD_REQUEST, "this is not HTTP")
        if first_line_end > seen:
            parse_line(bytes(data[:first_line_end]))
        if _BARE_LF.search(data, seen):
            raise Refused(BAD_REQUEST, "a line ends without CR")


def reason_of(error: MalformedBody) -> Reason:
    return BODY_TOO_LARGE if isinstance(error, BodyTooLong) else BAD_REQUEST


def without_empty_lines(data: bytes) -> bytes:
    """`data` without the empty lines it starts with (RFC 9112, 2.2), all removed at once."""
    found = _EMPTY_LINES.match(data)
    return data[found.end() :] if found is not None else data

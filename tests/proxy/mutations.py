"""Valid messages, and what can be done to them. Strategies draw an edit, and how the result is cut into packets."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import strategies as st

REQUESTS = (
    b"GET /a?b=c HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n",
    b"GET /v1/%7Ea/../b;c HTTP/1.1\r\nHost: h:80\r\nCookie: a=b\r\nCookie: c=d\r\nConnection: keep-alive\r\n\r\n",
    b"GET http://other.test/x HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\nContent-Type: text/plain\r\n\r\nhello world",
    b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 34\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n",
    b"PUT /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;a=b\r\n world\r\n0\r\n\r\n",
    b"POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\nConnection: TE\r\n\r\n"
    b"22\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n\r\n0\r\nX-T: v\r\n\r\n",
    b"POST /p HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
    b"HEAD /h HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    b"GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
)
REQUEST_LINES = (
    b"Content-Length: 5",
    b"Content-Length: 0",
    b"Content-Length: 5, 5",
    b"Content-Length: +5",
    b"Content-Length: 0x5",
    b"Content-Length:",
    b"Content_Length: 5",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding: chunked, chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding:\x0bchunked",
    b"Transfer_Encoding: chunked",
    b"TRANSFER-ENCODING:chunked",
    b"Connection: close",
    b"Connection: Content-Length, Host, X-Forwarded-For",
    b"Connection: ,, Transfer-Encoding , ,",
    b"Expect: 100-continue",
    b"Upgrade: h2c",
    b"Host: other",
    b" folded",
    b"\tfolded: yes",
    b"TE: trailers",
    b"X-Forwarded-For: 6.6.6.6",
    b"Forwarded: for=6.6.6.6",
    b"X-Request-Id: a b",
    b"traceparent: 00-1-2-3",
    b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    b"tracestate: a=b",
    b"X-Original-URL: /admin",
    b"Content-Length: 011",
    b"Connection: keep-alive, close",
    b"Keep-Alive: timeout=5",
)
REPLIES = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: s\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nX-T: v\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.0 200\r\n\r\nold",
    b"HTTP/1.1 204 No Content\r\nETag: a\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 70\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nEVIL!HTTP/1.1 200 OK\r\nA: b\r\n\r\n........",
    b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 3\r\n\r\nbad",
    b"HTTP/1.1 426 Upgrade Required\r\nConnection: upgrade\r\nUpgrade: TLS/1.3\r\nContent-Length: 03\r\n\r\nbad",
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello",
)
REPLY_LINES = (
    b"Content-Length: 5",
    b"Content-Length: 0",
    b"Content-Length: 99999999999999999999",
    b"Content-Length: -1",
    b"Content-Length: 5, 5",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding:\x0cchunked",
    b"Connection: close",
    b"Connection: Content-Length, Transfer-Encoding, X-Request-Id",
    b"Connection: Upgrade",
    b"Upgrade: websocket",
    b"Keep-Alive: timeout=1",
    b"Trailer: Content-Length",
    b"Set-Cookie: a=b",
    b" folded",
    b"X-Request-Id: theirs",
    b"X: \x00",
    b"X: a\rb",
)
_SPLINTERS = (
    *(b"\r", b"\n", b"\0", b" ", b"\t", b"\x0b", b"\x7f", b"\xff", b":", b";", b",", b"_", b"0", b"1"),
    *(
        b"\r\n",
        b"\r\n\r\n",
        b"\n\n",
        b"0\r\n\r\n",
        b"HTTP/1.1",
        b"GET / HTTP/1.1\r\n",
        b"%2f",
        b"/../",
        b"\xc4\x8d",
    ),
)

Edit = Callable[[st.DrawFn, bytes], bytes]


@dataclass(frozen=True)
class Mutant:
    """`raw`, sent in the `pieces` it is cut into."""

    raw: bytes
    cuts: tuple[int, ...]

    @property
    def pieces(self) -> list[bytes]:
        edges = [0, *self.cuts, len(self.raw)]
        return [self.raw[start:end] for start, end in pairwise(edges) if start < end]


def _place(draw: st.DrawFn, raw: bytes) -> int:
    return draw(st.integers(0, max(0, len(raw) - 1)))


def _flip(draw: st.DrawFn, raw: bytes) -> bytes:
    at = _place(draw, raw)
    return raw[:at] + bytes([draw(st.integers(0, 255))]) + raw[at + 1 :]


def _insert(draw: st.DrawFn, raw: bytes) -> bytes:
    at = _place(draw, raw)
    return raw[:at] + draw(st.sampled_from(_SPLINTERS)) + raw[at:]


def _delete(draw: st.DrawFn, raw: bytes) -> bytes:
    at = _place(draw, raw)
    return raw[:at] + raw[at + draw(st.integers(1, 4)) :]


def _cut_off(draw: st.DrawFn, raw: bytes) -> bytes:
    return raw[: _place(draw, raw)]


def _move_line(draw: st.DrawFn, raw: bytes) -> bytes:
    """Drop, double or move a line."""
    lines = raw.split(b"\r\n")
    line = lines.pop(draw(st.integers(0, len(lines) - 1)))
    for _ in range(draw(st.integers(0, 2))):
        lines.insert(draw(st.integers(0, len(lines))), line)
    return b"\r\n".join(lines)


def _add_line(extra: tuple[bytes, ...]) -> Edit:
    def edit(draw: st.DrawFn, raw: bytes) -> bytes:
        lines = raw.split(b"\r\n")
        lines.insert(draw(st.integers(1, min(4, len(lines)))), draw(st.sampled_from(extra)))
        return b"\r\n".join(lines)

    return edit


def _follow(bases: tuple[bytes, ...]) -> Edit:
    """Another message right behind."""

    def edit(draw: st.DrawFn, raw: bytes) -> bytes:
        return raw + draw(st.sampled_from(bases))

    return edit


@st.composite
def mutants(draw: st.DrawFn, bases: tuple[bytes, ...], lines: tuple[bytes, ...]) -> Mutant:
    """A message of `bases`, edited up to four times, in up to five packets."""
    raw = draw(st.sampled_from(bases))
    edits = (_flip, _insert, _delete, _cut_off, _move_line, _follow(bases), *[_add_line(lines)] * 3)
    for edit in draw(st.lists(st.sampled_from(edits), max_size=4)):
        raw = edit(draw, raw)
    cuts = draw(st.lists(st.integers(0, len(raw)), max_size=4))
    return Mutant(raw, tuple(sorted(cuts)))

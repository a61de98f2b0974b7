"""Where a message body ends (RFC 9112, 6): counted, chunked, or by the end of the connection. Pure.

`feed` returns the payload in what has arrived. Once `done`, `rest` holds the bytes behind the body. While it
`has_more` it has not read all of its input: that was in too many pieces for one turn of the event loop. Feed it
again in the next turn, with nothing if need be.
"""

import re
import sys
from collections.abc import Sequence
from typing import Final

CHUNKED: Final = -1
"""A body length: the body is chunked."""
UNTIL_CLOSE: Final = -2
"""A body length: the body ends with the connection (replies only)."""

LAST_CHUNK = b"0\r\n\r\n"
_MAX_SIZE_LINE = 4096
_MAX_TRAILERS = 16 * 1024
_CHUNKS_AT_ONCE = 100
"""Chunks read in one turn: some tenths of a millisecond at most. The event loop reads up to 256 KiB at once, which
is 40,000 chunks of one byte."""
_LINE_AT_ONCE = 256
"""Bytes of a size line with extensions that take as long as a chunk."""

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_QUOTED = rb'"(?:[\t\x20\x21\x23-\x5b\x5d-\x7e\x80-\xff]++|\\[\t\x20-\x7e\x80-\xff])*"'
_EXTENSION = rb"[ \t]*+;[ \t]*+" + _TOKEN + rb"(?:[ \t]*+=[ \t]*+(?:" + _TOKEN + rb"|" + _QUOTED + rb"))?"
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15}+)(?:" + _EXTENSION + rb")*")
_PLAIN_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15}+)\r\n")
_FIELD_LINE = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++:[\t\x20-\x7e\x80-\xff]*+")


class MalformedBody(ValueError):
    """The framing is broken; nothing behind it on the connection can be read."""


class BodyTooLong(MalformedBody):
    """More payload than is allowed."""


class CountedBody:
    """Content-Length bytes."""

    __slots__ = ("done", "left", "rest")
    has_more = False

    def __init__(self, length: int) -> None:
        self.left = length
        self.done = length == 0
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        size = len(data)
        if size < self.left:
            self.left -= size
            return data
        payload, self.rest = data[: self.left], data[self.left :]
        self.left = 0
        self.done = True
        return payload


class UntilCloseBody:
    """All that comes until the connection ends."""

    __slots__ = ("done", "rest")
    has_more = False

    def __init__(self) -> None:
        self.done = False
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        return data


class ChunkedBody:
    """Chunks by RFC 9112, 7.1, strictly: CRLF only, no space but before an extension. Extensions are dropped
    (7.1.1); trailers are kept as they came in `trailers`."""

    __slots__ = (
        "_allowance",
        "_held",
        "_left",
        "_limit",
        "_state",
        "_trailer_budget",
        "done",
        "has_more",
        "rest",
        "trailers",
    )

    def __init__(self, limit: int = 0) -> None:
        self._limit = limit or sys.maxsize
        self._held = b""
        self._left = 0
        # Each of these returns where the next one begins, or ~start where more must come, from `start` on.
        self._state = self._size_line
        self._trailer_budget = _MAX_TRAILERS
        self._allowance = 0
        self.has_more = False
        self.done = False
        self.rest = b""
        self.trailers: list[bytes] = []

    def feed(self, data: bytes) -> bytes:
        """The payload of the chunks in `data`, joined. Raises MalformedBody. Between calls a line of the framing is
        held: a byte that comes alone costs a copy of 4 KB at most, or of 16 KB in the trailers."""
        if self._held:
            data, self._held = self._held + data, b""
        pieces: list[bytes] = []
        position = 0
        self.has_more = False
        self._allowance = _CHUNKS_AT_ONCE
        while not self.done:
            if self._allowance <= 0:
                self.has_more, self._held = True, data[position:]
                return b"".join(pieces)
            following = self._state(data, position, pieces)
            if following < 0:
                self._held = data[~following:] if self._left == 0 else b""
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            position = following
        self.rest = data[position:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _line_end(self, data: bytes, start: int, limit: int) -> int:
        """Where the line from `start` ends, -1 while it has not; a bare LF is an error."""
        end = data.find(b"\n", start, start + limit)
        if end < 0:
            if len(data) - start >= limit:
                raise MalformedBody("a line of the chunked framing is too long")
            return -1
        if end == start or data[end - 1] != 0x0D:
            raise MalformedBody("a line of the chunked framing does not end in CRLF")
        return end - 1

    def _whole_chunks(self, data: bytes, start: int, pieces: list[bytes]) -> int:
        """The end of the chunks at `start` that are whole and without extensions, as most are: step by step they
        cost several times as much."""
        while self._allowance > 0 and (found := _PLAIN_SIZE.match(data, start)) is not None:
            payload = found.end()
            end = payload + int(found[1], 16)
            if end == payload or data[end : end + 2] != b"\r\n":
                break
            self._limit -= end - payload
            if self._limit < 0:
                raise BodyTooLong("the body is too long")
            pieces.append(data[payload:end])
            self._allowance -= 1
            start = end + 2
        return start

    def _size_line(self, data: bytes, start: int, pieces: list[bytes]) -> int:
        start = self._whole_chunks(data, start, pieces)
        if self._allowance <= 0:
            return start
        end = self._line_end(data, start, _MAX_SIZE_LINE)
        if end < 0:
            return ~start
        self._allowance -= 1 + (end - start) // _LINE_AT_ONCE
        match = _SIZE_LINE.fullmatch(data, start, end)
        if match is None:
            raise MalformedBody("a chunk does not start with its size")
        self._left = int(match[1], 16)
        self._limit -= self._left
        if self._limit < 0:
            raise BodyTooLong("the body is too long")
        self._state = self._chunk if self._left else self._trailer_line
        return end + 2

    def _chunk(self, data: bytes, start: int, pieces: list[bytes]) -> int:
        end = start + self._left
        if end > len(data):
            if start < len(data):
                pieces.append(data[start:])
                self._left -= len(data) - start
            return ~start
        pieces.append(data[start:end])
        self._left = 0
        self._state = self._chunk_end
        return end

    def _chunk_end(self, data: bytes, start: int, pieces: list[bytes]) -> int:
        found = data[start : start + 2]
        if not b"\r\n".startswith(found):
            raise MalformedBody("a chunk does not end in CRLF")
        if len(found) < 2:
            return ~start
        self._state = self._size_line
        return start + 2

    def _trailer_line(self, data: bytes, start: int, pieces: list[bytes]) -> int:
        end = self._line_end(data, start, self._trailer_budget)
        if end < 0:
            return ~start
        if end == start:
            self.done = True
        elif _FIELD_LINE.fullmatch(data, start, end):
            self.trailers.append(data[start:end])
            self._trailer_budget -= end - start
        else:
            raise MalformedBody("a trailer is not a header field")
        return end + 2


Body = CountedBody | ChunkedBody | UntilCloseBody


def body_of(length: int, limit: int = 0) -> Body:
    """The decoder for a body length: a number of bytes, CHUNKED or UNTIL_CLOSE. Raises BodyTooLong where more than
    `limit` bytes are announced (0: no limit); a chunked body raises it when they come."""
    if length >= 0:
        if limit and length > limit:
            raise BodyTooLong("the body is too long")
        return CountedBody(length)
    return ChunkedBody(limit) if length == CHUNKED else UntilCloseBody()


_NEVER_A_TRAILER = frozenset(
    b"transfer-encoding content-length content-encoding content-type content-range trailer te host connection "
    b"keep-alive upgrade expect max-forwards authorization proxy-authorization proxy-authenticate www-authenticate "
    b"set-cookie cookie cache-control expires date location vary age via forwarded x-request-id".split()
)
"""Framing, routing, authentication and what a cache acts on must not arrive behind the body (RFC 9110, 6.5.1)."""


def last_chunk(trailers: Sequence[bytes]) -> bytes:
    """The end of a chunked body, with the trailers that may be passed on."""
    kept = [line for line in trailers if not _is_forbidden(line.partition(b":")[0].lower())]
    return b"0\r\n%b\r\n" % b"".join(line + b"\r\n" for line in kept)


def _is_forbidden(name: bytes) -> bool:
    return name in _NEVER_A_TRAILER or name.startswith(b"x-forwarded-") or b"_" in name


def chunk(payload: bytes) -> bytes:
    """`payload` as one chunk; it must not be empty, which would end the body."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)

"""The Redis protocol, version 2: commands as bytes, and bytes as replies. What answers may be no Redis: a reply
takes bounded memory, and one that cannot be read is a RedisError."""

import re
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import hiredis
from redis.asyncio.connection import DefaultParser
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, RedisError, ResponseError

MORE_NEEDED = object()
"""What a reader's `gets` returns while no reply is whole."""

LONGEST_REPLY = 16 << 20
"""Bytes. A longer one, or a server that sends without end, ends the connection."""

_SUSPECT_BYTES = 7
_SUSPECT = re.compile(rb"[*%~>|](?:\d{6}|\d{0,5}\Z)")
"""What may be the header of a list of 100,000 elements or more, or becomes one with the next bytes."""

_UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)

Word = str | bytes | int


def pack(*words: Word) -> bytes:
    """One command. Text that was decoded with surrogates becomes the bytes it was."""
    try:
        return _packed(words)
    except UnicodeEncodeError:
        return _packed(each.encode("utf-8", "surrogateescape") if isinstance(each, str) else each for each in words)


def pack_words(*words: Word) -> bytes:
    """A part of a command: without the count of its words."""
    return pack(*words).partition(b"\r\n")[2]


def _packed(words: Iterable[Word]) -> bytes:
    packed: bytes = hiredis.pack_command(tuple(words))  # type: ignore[arg-type]  # its stub means a tuple of any length
    return packed


class Reader:
    """Bytes in, replies out. After an InvalidResponse it is of no use any more."""

    def __init__(self) -> None:
        self._hiredis = hiredis.Reader(
            protocolError=InvalidResponse,
            replyError=error_of,
            encoding="utf-8",
            errors="surrogateescape",
            notEnoughData=MORE_NEEDED,
        )
        self._data = b""
        self._fed = 0
        self._unread = 0

    def feed(self, data: bytes) -> None:
        self._unread += len(data)
        self._data = self._data[self._fed :] + data
        self._fed = 0
        self._feed_until_suspect(0)

    def gets(self) -> Any:
        """A text, a whole number, None, a list of these, or what Redis refused as a RedisError; MORE_NEEDED where
        no reply is whole. Raises InvalidResponse for what is no reply, or is too large."""
        reply = self._hiredis.gets()
        while reply is MORE_NEEDED and len(self._data) - self._fed >= _SUSPECT_BYTES:
            if not self._hiredis.has_data():  # not in the middle of a text: hiredis would make the list at once
                raise InvalidResponse("a list of 100,000 elements or more")
            self._feed_until_suspect(self._fed + 1)
            reply = self._hiredis.gets()
        if reply is not MORE_NEEDED:
            self._unread = 0
        elif self._unread > LONGEST_REPLY:
            raise InvalidResponse(f"a reply of more than {LONGEST_REPLY} bytes")
        return reply

    def has_data(self) -> bool:
        """Whether there are bytes that no reply was made of."""
        return self._hiredis.has_data() or self._fed < len(self._data)

    def _feed_until_suspect(self, searched_from: int) -> None:
        found = _SUSPECT.search(self._data, searched_from)
        until = found.start() if found else len(self._data)
        self._hiredis.feed(self._data[self._fed : until])
        self._fed = until


class PoolParser(DefaultParser):  # type: ignore[misc, valid-type]  # redis-py chooses it when it is imported
    """redis-py's parser, with the reader above."""

    def on_connect(self, connection: Any) -> None:
        super().on_connect(connection)
        self._reader = Reader()

    async def read_response(self, disable_decoding: bool = False, push_request: bool = False) -> Any:
        """The next reply; what Redis refused is returned, unless the connection ends with it. Raises RedisError."""
        if not self._connected:
            raise RedisConnectionError("Connection closed by server.")
        while (reply := self._reader.gets()) is MORE_NEEDED:
            await self.read_from_socket()
        if isinstance(reply, RedisConnectionError):
            raise reply
        return reply


class readable:  # noqa: N801  # as contextlib's are written; made by contextmanager it would cost ten times as much
    """Where a reply is taken apart: one of another form than the command has is raised as InvalidResponse."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, _UNREADABLE):
            raise InvalidResponse(f"a reply that cannot be read: {error!r}") from error


def error_of(text: str) -> RedisError:
    """The exception that redis-py has for a refusal."""
    try:
        error: Any = DefaultParser.parse_error(text)  # type: ignore[no-untyped-call]
    except _UNREADABLE:  # a MOVED that names no place
        return ResponseError(text)
    return error if isinstance(error, RedisError) else ResponseError(text)

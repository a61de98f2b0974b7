"""The Redis protocol, version 2: commands as bytes, and bytes as replies."""

from collections.abc import Iterable
from typing import Any

import hiredis
from redis.asyncio.connection import DefaultParser
from redis.exceptions import InvalidResponse, RedisError, ResponseError

MORE_NEEDED = object()
"""What a reader's `gets` returns while no reply is whole."""

Word = str | bytes | int


def pack(*words: Word) -> bytes:
    """One command. Text that was decoded with surrogates becomes the bytes it was."""
    try:
        return _packed(words)
    except UnicodeEncodeError:
        return _packed(each.encode("utf-8", "surrogateescape") if isinstance(each, str) else each for each in words)


def _packed(words: Iterable[Word]) -> bytes:
    packed: bytes = hiredis.pack_command(tuple(words))  # type: ignore[arg-type]  # its stub means a tuple of any length
    return packed


def reader() -> hiredis.Reader:
    """Its `gets` returns texts, whole numbers, None, lists of these, and what Redis refused as a RedisError; it
    raises InvalidResponse where it was fed something else."""
    return hiredis.Reader(
        protocolError=InvalidResponse,
        replyError=error_of,
        encoding="utf-8",
        errors="surrogateescape",
        notEnoughData=MORE_NEEDED,
    )


def error_of(text: str) -> RedisError:
    """The exception that redis-py has for a refusal."""
    try:
        error: Any = DefaultParser.parse_error(text)  # type: ignore[no-untyped-call]
    except ValueError:  # a MOVED that names no place
        return ResponseError(text)
    return error if isinstance(error, RedisError) else ResponseError(text)

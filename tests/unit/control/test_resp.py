"""The Redis protocol: whatever is replied, cut into whatever pieces, is read as what it was."""

import asyncio
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import InvalidResponse, MovedError, NoScriptError, RedisError, ResponseError

from slb.control.endpoint import Endpoint
from slb.control.resp import MORE_NEEDED, Reader, error_of, pack
from slb.control.wire import Wire

TEXTS = st.binary(max_size=20).map(lambda data: data.decode("utf-8", "surrogateescape"))
REPLIES = st.recursive(
    st.none() | st.integers(-(2**62), 2**62) | TEXTS,
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


def encoded(reply: Any) -> bytes:
    """As Redis writes it."""
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, str):
        data = reply.encode("utf-8", "surrogateescape")
        return b"$%d\r\n%b\r\n" % (len(data), data)
    return b"*%d\r\n%b" % (len(reply), b"".join(map(encoded, reply)))


class _NoEndpoint:
    is_awaited = False
    login_within = None
    shown = "nowhere"

    def login(self) -> list[bytes]:
        return []

    async def connect(self, _: asyncio.Protocol) -> None:
        pass

    def failed(self) -> None:
        pass


@given(st.lists(REPLIES, max_size=6), st.data())
async def test_replies_are_read_whatever_pieces_they_come_in(replies: list[Any], data: st.DataObject) -> None:
    found: list[Any] = []
    wire = Wire(cast("Endpoint", _NoEndpoint()), found.append)
    stream = b"".join(map(encoded, replies))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        wire.data_received(stream[start:end])
    assert found == replies


async def test_replies_are_read_byte_by_byte() -> None:
    found: list[Any] = []
    wire = Wire(cast("Endpoint", _NoEndpoint()), found.append)
    replies = ["é\udcff", None, -5, ["a", [], [None, 7]]]
    for byte in b"".join(map(encoded, replies)) + b"-NOSCRIPT x\r\n":
        wire.data_received(bytes([byte]))
    assert found[:-1] == replies
    assert isinstance(found[-1], NoScriptError)


@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_a_command_is_the_list_of_its_words(words: list[str]) -> None:
    assert pack(*words) == encoded(words)


@pytest.mark.parametrize(
    ("text", "kind", "shown"),
    [
        ("ERR no", ResponseError, "no"),
        ("NOSCRIPT none", NoScriptError, "none"),
        ("MOVED 5 10.1.1.1:1", MovedError, "5 10.1.1.1:1"),
        ("MOVED to nowhere at all", ResponseError, "MOVED to nowhere at all"),
    ],
)
def test_errors_have_redis_pys_classes(text: str, kind: type[RedisError], shown: str) -> None:
    error = error_of(text)
    assert type(error) is kind
    assert str(error) == shown


def read(data: bytes, size: int) -> list[Any]:
    """All replies in `data`, fed in pieces of `size` bytes."""
    reader, found = Reader(), []
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
        while (reply := reader.gets()) is not MORE_NEEDED:
            found.append(reply)
    assert not reader.has_data()
    return found


@pytest.mark.parametrize("before", [b"", b"+OK\r\n", b"*2\r\n:1\r\n", b"*2\r\n$10\r\n*1234567\r\n\r\n"])
@pytest.mark.parametrize("kind", [b"*", b"%", b"~", b">"])
@pytest.mark.parametrize("size", [1, 5, 100])
def test_a_list_that_would_be_very_long_is_refused_before_it_is_made(before: bytes, kind: bytes, size: int) -> None:
    with pytest.raises(InvalidResponse, match="elements"):
        read(before + kind + b"1000000000\r\n", size)


@pytest.mark.parametrize("size", [1, 5, 7, 1000])
def test_a_text_may_look_like_the_header_of_a_long_list(size: int) -> None:
    text = "*1000000000\r\n*12\r\n>99999999*" * 3
    found = read(encoded([text, [text], 7]) * 2 + b"+OK *123456789\r\n", size)
    assert found == [[text, [text], 7], [text, [text], 7], "OK *123456789"]

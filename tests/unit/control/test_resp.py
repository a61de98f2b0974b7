"""The Redis protocol: whatever is replied, cut into whatever pieces, is read as what it was."""

import asyncio
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import MovedError, NoScriptError, RedisError, ResponseError

from slb.control.endpoint import Endpoint
from slb.control.resp import error_of, pack
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
    must_be_selected = False
    shown = "nowhere"

    def login(self) -> list[bytes]:
        return []

    async def connect(self, _: asyncio.Protocol) -> None:
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

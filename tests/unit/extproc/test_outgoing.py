"""Answers go to Envoy in the order of what they answer, and one at a time."""

import asyncio
from typing import Any

from slb.extproc.outgoing import Outgoing
from slb.extproc.server import Writer


def _nothing() -> None:
    """Nobody is told."""


async def test_what_is_there_at_once_is_returned_and_not_sent() -> None:
    sent: list[bytes] = []
    out = Outgoing(sent.append)
    out.first(b"pick")
    assert out.collect(_nothing) == b"pick"
    assert out.next(b"reply") == b"reply"
    assert sent == []


async def test_what_comes_later_is_sent_before_what_has_waited_for_it() -> None:
    sent: list[bytes] = []
    out = Outgoing(sent.append)
    assert out.collect(_nothing) == b""
    assert [out.next(b"one"), out.next(b"two")] == [b"", b""]
    out.first(b"pick")
    assert sent == [b"pick", b"one", b"two"]
    assert out.next(b"three") == b"three"


async def test_nothing_is_sent_once_the_stream_has_ended() -> None:
    sent: list[bytes] = []
    out = Outgoing(sent.append)
    out.collect(_nothing)
    out.close()
    out.first(b"pick")
    assert sent == []


async def test_no_more_is_read_while_much_waits() -> None:
    out = Outgoing(_nobody)
    out.collect(_nothing)
    while not out.is_full:
        out.next(b"piece")
    waiting = asyncio.create_task(out.emptied())
    await asyncio.sleep(0)
    assert not waiting.done()
    out.first(b"pick")
    await waiting
    assert not out.is_full


async def test_who_waits_for_room_goes_on_when_the_stream_ends() -> None:
    out = Outgoing(_nobody)
    out.collect(_nothing)
    while not out.is_full:
        out.next(b"piece")
    waiting = asyncio.create_task(out.emptied())
    await asyncio.sleep(0)
    out.close()
    await waiting


def _nobody(_: bytes) -> None:
    """Nobody is told."""


class _Rpc:
    """Takes one message at a time, as gRPC does."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.go_on = asyncio.Event()
        self._is_writing = False

    async def write(self, message: bytes) -> None:
        assert not self._is_writing, "two messages at once"
        self._is_writing = True
        await self.go_on.wait()
        self._is_writing = False
        self.written.append(message)


async def test_a_message_waits_until_the_one_before_it_is_written() -> None:
    rpc: Any = _Rpc()
    writer = Writer(rpc)
    writer.write_later(b"pick")
    await asyncio.sleep(0)
    await writer.write(b"reply")
    writer.write_later(b"third")
    rpc.go_on.set()
    await writer.written()
    assert rpc.written == [b"pick", b"reply", b"third"]


async def test_a_message_that_comes_late_waits_for_one_that_was_there_at_once() -> None:
    rpc: Any = _Rpc()
    writer = Writer(rpc)
    writing = asyncio.create_task(writer.write(b"at once"))
    await asyncio.sleep(0)
    writer.write_later(b"late")
    await asyncio.sleep(0)
    rpc.go_on.set()
    await writing
    await writer.written()
    assert rpc.written == [b"at once", b"late"]

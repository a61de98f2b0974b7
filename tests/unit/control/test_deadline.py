"""A deadline for what is in flight."""

import asyncio
import socket

import pytest

from slb.control.deadline import Deadline


async def test_what_takes_too_long_ends_with_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        async with Deadline(asyncio.get_running_loop().time() + 0.02):
            await asyncio.Event().wait()


async def test_it_can_be_brought_forward_and_not_put_off() -> None:
    now = asyncio.get_running_loop().time()

    async def waits_for_ever() -> None:
        async with Deadline(now + 3600) as deadline:
            deadline.not_after(now + 0.02)
            deadline.not_after(now + 7200)
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await waits_for_ever()


async def test_what_it_was_before_it_was_brought_forward_ends_nothing_later() -> None:
    loop = asyncio.get_running_loop()
    now = loop.time()
    async with Deadline(now + 0.03) as deadline:
        deadline.not_after(now + 0.02)
    async with Deadline(now + 3600):
        await asyncio.sleep(0.05)


async def test_an_answer_that_has_come_while_the_process_was_held_up_is_in_time() -> None:
    loop = asyncio.get_running_loop()
    here, near, there = await _pair()
    async with Deadline(loop.time() + 0.02):
        there.write(b"answer")
        _hold_up(loop, 0.05)
        assert await here.read(6) == b"answer"
    near.close()
    there.close()


def _hold_up(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    end = loop.time() + seconds
    while loop.time() < end:
        pass


async def _pair() -> tuple[asyncio.StreamReader, asyncio.StreamWriter, asyncio.StreamWriter]:
    one, two = socket.socketpair()
    reader, kept = await asyncio.open_connection(sock=one)
    _, writer = await asyncio.open_connection(sock=two)
    return reader, kept, writer

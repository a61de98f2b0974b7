"""A deadline for what is in flight."""

import asyncio
import socket

import pytest

from slb.control import deadline
from slb.control.deadline import Deadline


async def test_what_takes_too_long_ends_with_a_timeout() -> None:
    with pytest.raises(TimeoutError), Deadline(asyncio.get_running_loop().time() + 0.02):
        await asyncio.Event().wait()


async def test_before_it_ends_it_is_told_that_it_is_late() -> None:
    now, late = asyncio.get_running_loop().time(), asyncio.Event()

    async def waits_for_ever() -> None:
        with Deadline(now + 0.06, now + 0.02, late.set):
            await late.wait()
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await waits_for_ever()
    assert late.is_set()


@pytest.mark.parametrize("is_late", [False, True])
async def test_it_may_be_moved_on_and_never_back(is_late: bool) -> None:
    loop, late = asyncio.get_running_loop(), asyncio.Event()
    begun = loop.time()

    async def waits_for_ever() -> None:
        with Deadline(begun + 0.1, begun + 0.02, late.set) as deadline:
            if is_late:
                await late.wait()
            deadline.extend(begun + 0.4)
            deadline.extend(begun + 0.2)
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await waits_for_ever()
    assert late.is_set()
    assert loop.time() - begun >= 0.4


async def test_what_has_ended_is_neither_late_nor_cut_off() -> None:
    now, late = asyncio.get_running_loop().time(), asyncio.Event()
    with Deadline(now + 0.03, now + 0.02, late.set):
        pass
    await asyncio.sleep(0.05)
    assert not late.is_set()


async def test_an_answer_that_has_come_while_the_process_was_held_up_is_in_time() -> None:
    loop = asyncio.get_running_loop()
    here, near, there = await _pair()
    with Deadline(loop.time() + 0.02):
        there.write(b"answer")
        _hold_up(loop, 0.05)
        assert await here.read(6) == b"answer"
    near.close()
    there.close()


async def test_time_in_which_the_process_stood_still_does_not_count() -> None:
    loop, late = asyncio.get_running_loop(), asyncio.Event()
    begun = loop.time()

    async def waits_for_ever() -> None:
        with Deadline(begun + 0.4, begun + 0.2, late.set):
            _hold_up(loop, 1.0)
            await asyncio.sleep(0)  # what is overdue is called now
            await asyncio.sleep(0)
            assert not late.is_set()
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await waits_for_ever()
    assert late.is_set()
    assert loop.time() - begun > 1.2


async def test_a_stall_that_began_within_the_time_there_is_and_ended_in_it_does_not_count_either() -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()

    async def waits_for_ever() -> None:
        with Deadline(begun + 1.0):
            await asyncio.sleep(0.05)
            _hold_up(loop, 0.6)
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await waits_for_ever()
    assert loop.time() - begun > 1.3


async def test_nor_does_a_stall_that_begins_just_before_it_is_told_that_it_is_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deadline, "_GRACE", 0.2)
    loop, late = asyncio.get_running_loop(), asyncio.Event()
    begun = loop.time()

    async def waits_for_ever() -> None:
        with Deadline(begun + 1.0, begun + 0.3, late.set):
            await asyncio.sleep(0.2)
            _hold_up(loop, 1.5)
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await waits_for_ever()
    assert late.is_set()
    assert loop.time() - begun > 2.2


def _hold_up(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    end = loop.time() + seconds
    while loop.time() < end:
        pass


async def _pair() -> tuple[asyncio.StreamReader, asyncio.StreamWriter, asyncio.StreamWriter]:
    one, two = socket.socketpair()
    reader, kept = await asyncio.open_connection(sock=one)
    _, writer = await asyncio.open_connection(sock=two)
    return reader, kept, writer

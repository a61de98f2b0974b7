"""The buffer alone."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.client.buffer import Buffer
from slb.client.refusals import CallRefused


async def turns() -> None:
    """Let what can run, run."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_no_call_overtakes_a_waiting_one() -> None:
    buffer = Buffer(1, 30)
    assert buffer.take()
    waiting = asyncio.create_task(buffer.wait())
    await turns()
    buffer.give_back()
    assert not buffer.take()
    await waiting
    assert (buffer.out, buffer.waiting) == (1, 0)
    buffer.give_back()
    assert buffer.take()


async def test_a_turn_that_comes_together_with_the_end_of_waiting_is_passed_on() -> None:
    buffer = Buffer(1, 30)
    buffer.take()
    first, second = asyncio.create_task(buffer.wait()), asyncio.create_task(buffer.wait())
    await turns()
    buffer.give_back()  # to the first, which has not run yet
    first.cancel()
    await turns()
    assert first.cancelled()
    assert second.done()
    assert (buffer.out, buffer.waiting) == (1, 0)


async def test_a_batch_that_is_given_up_at_once_ends_cancelled_and_gives_back_all_it_had() -> None:
    buffer = Buffer(2, 30)

    async def call() -> None:
        if not buffer.take():
            await buffer.wait()
        try:
            await asyncio.Event().wait()
        finally:
            buffer.give_back()

    batch = [asyncio.create_task(call()) for _ in range(6)]
    await turns()
    assert (buffer.out, buffer.waiting) == (2, 4)
    for each in batch:
        each.cancel()
    assert {type(end) for end in await asyncio.gather(*batch, return_exceptions=True)} == {asyncio.CancelledError}
    assert (buffer.out, buffer.waiting) == (0, 0)


async def test_a_call_behind_one_that_leaves_at_that_moment_goes() -> None:
    buffer = Buffer(1, 30)
    buffer.take()
    first, second = asyncio.create_task(buffer.wait()), asyncio.create_task(buffer.wait())
    await turns()
    first.cancel()
    buffer.give_back()
    await second
    assert (buffer.out, buffer.waiting, first.cancelled()) == (1, 0, True)


async def test_waiting_ends_by_name() -> None:
    buffer = Buffer(1, 0.01)
    buffer.take()
    with pytest.raises(CallRefused, match="queue_timeout: 1 calls are out"):
        await buffer.wait()
    assert (buffer.out, buffer.waiting) == (1, 0)


async def test_a_callers_own_timeout_stays_the_callers() -> None:
    buffer = Buffer(1, 30)
    buffer.take()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await buffer.wait()
    assert (buffer.out, buffer.waiting) == (1, 0)


@given(st.lists(st.sampled_from(["call", "end", "cancel"]), max_size=60), st.integers(1, 4))
def test_never_more_are_out_than_there_is_room_and_none_is_lost(steps: list[str], width: int) -> None:
    asyncio.run(_drive(steps, width))


async def _drive(steps: list[str], width: int) -> None:
    buffer = Buffer(width, 30)
    out, waiting = 0, list[asyncio.Task[None]]()
    for step in steps:
        if step == "call":
            if buffer.take():
                out += 1
            else:
                waiting.append(asyncio.create_task(buffer.wait()))
        elif step == "end" and out:
            buffer.give_back()
            out -= 1
        elif step == "cancel" and waiting:
            waiting.pop(len(waiting) // 2).cancel()
        await turns()
        out += sum(each.done() for each in waiting)
        waiting = [each for each in waiting if not each.done()]
        assert (buffer.out, buffer.waiting) == (out, len(waiting))
        assert out <= width
        assert not waiting or out == width
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)

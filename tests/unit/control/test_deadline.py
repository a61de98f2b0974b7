"""A deadline for what is in flight."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from slb.control import deadline
from slb.control.deadline import Stopwatch
from tests.support.waiting import soon


class Watched:
    """A stopwatch, and what it has called."""

    def __init__(self) -> None:
        self.late, self.over = asyncio.Event(), asyncio.Event()
        self.watch = Stopwatch(self.over.set, self.late.set)


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    made = Watched()
    yield made
    made.watch.close()


async def test_before_it_ends_it_is_reported_as_late(watched: Watched) -> None:
    now = asyncio.get_running_loop().time()
    watched.watch.start(now + 0.06, now + 0.02)
    await watched.late.wait()
    assert not watched.over.is_set()
    await watched.over.wait()


@pytest.mark.parametrize("is_late", [False, True])
async def test_it_may_be_moved_on_and_never_back(watched: Watched, is_late: bool) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    watched.watch.start(begun + 0.1, begun + 0.02)
    if is_late:
        await watched.late.wait()
    watched.watch.extend(begun + 0.4)
    watched.watch.extend(begun + 0.2)
    await watched.over.wait()
    assert watched.late.is_set()
    assert loop.time() - begun >= 0.39


async def test_what_has_ended_is_neither_late_nor_cut_off(watched: Watched) -> None:
    now = asyncio.get_running_loop().time()
    watched.watch.start(now + 0.03, now + 0.02)
    watched.watch.stop()
    await asyncio.sleep(0.05)
    assert not watched.late.is_set()
    assert not watched.over.is_set()


async def test_each_start_has_its_own_time_whenever_the_ones_before_were_due(watched: Watched) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(3):
        now = loop.time()
        watched.watch.start(now + 0.3, now + 0.02)
        watched.watch.stop()
    begun = loop.time()
    watched.watch.start(begun + 0.2, begun + 0.1)
    await watched.late.wait()
    assert loop.time() - begun >= 0.09
    begun = loop.time()
    watched.watch.start(begun + 0.04)
    await watched.over.wait()


async def test_time_in_which_the_process_stood_still_does_not_count(watched: Watched) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    watched.watch.start(begun + 0.4, begun + 0.2)
    _hold_up(loop, 1.0)
    await asyncio.sleep(0)  # what is overdue is called now
    await asyncio.sleep(0)
    assert not watched.late.is_set()
    await watched.over.wait()
    assert watched.late.is_set()
    assert loop.time() - begun > 1.2


async def test_what_was_before_its_start_does_not_count_as_standing_still(watched: Watched) -> None:
    loop = asyncio.get_running_loop()
    now = loop.time()
    watched.watch.start(now + 0.05)
    watched.watch.stop()
    _hold_up(loop, 1.0)
    watched.watch.start(loop.time() + 0.1, loop.time() + 0.05)
    await watched.late.wait()
    assert not watched.over.is_set()
    await watched.over.wait()


async def test_a_stall_that_began_within_the_time_there_is_and_ended_in_it_does_not_count_either(
    watched: Watched,
) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    watched.watch.start(begun + 1.0)
    await asyncio.sleep(0.05)
    _hold_up(loop, 0.6)
    await watched.over.wait()
    assert loop.time() - begun > 1.3


async def test_nor_does_a_stall_that_begins_just_before_it_is_reported_as_late(
    monkeypatch: pytest.MonkeyPatch, watched: Watched
) -> None:
    monkeypatch.setattr(deadline, "_GRACE", 0.2)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    watched.watch.start(begun + 1.0, begun + 0.3)
    await asyncio.sleep(0.2)
    _hold_up(loop, 1.5)
    await watched.over.wait()
    assert watched.late.is_set()
    assert loop.time() - begun > 2.2


def _hold_up(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    end = loop.time() + seconds
    while loop.time() < end:
        pass


async def test_in_a_process_whose_every_turn_is_slow_it_ends_all_the_same(watched: Watched) -> None:
    loop = asyncio.get_running_loop()
    watched.watch.start(loop.time() + 0.3, loop.time() + 0.2)

    def slow_turn() -> None:
        _hold_up(loop, 0.12)
        if not watched.over.is_set():
            loop.call_soon(slow_turn)

    slow_turn()
    await soon(watched.over.wait())
    assert watched.late.is_set()

"""Cuts long work into slices, so that the event loop is never held for long."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import TypeVar

_T = TypeVar("_T")

SLICE = 0.001
"""Seconds of work between two rests: with what one step may add, well under 5 ms."""


class Slices:
    """Call `rest` between steps of work; it gives way once a slice is used up. `worked`: seconds, by the clock,
    without those of others meanwhile."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter, length: float = SLICE) -> None:
        self._clock = clock
        self._length = length
        self._started = clock()
        self._before = 0.0

    @property
    def worked(self) -> float:
        return self._before + self._clock() - self._started

    async def rest(self) -> None:
        """Let others run, where this slice is over."""
        used = self._clock() - self._started
        if used >= self._length:
            self._before += used
            await asyncio.sleep(0)
            self._started = self._clock()


async def rested(items: Iterable[_T | None]) -> AsyncIterator[_T]:
    """These but for None, which stands for a step of work that found nothing; others run between them."""
    slices = Slices()
    for item in items:
        if item is not None:
            yield item
        await slices.rest()


async def step_through(steps: Iterable[None]) -> None:
    """Run a generator that yields between steps of work, giving way after each."""
    for _ in steps:
        await asyncio.sleep(0)


async def same_objects(one: Mapping[str, object], other: Mapping[str, object], slices: Slices) -> bool:
    """Whether both have the same keys with the very same values."""
    if len(one) != len(other):
        return False
    for count, key in enumerate(list(one)):
        if other.get(key) is not one.get(key):
            return False
        if count % 1000 == 0:
            await slices.rest()
    return True

"""Simulated time for asyncio: an hour of sleeping passes in no time, and in the right order.

What runs in it is the same code that runs in real time.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from bench.errors import BenchError

T = TypeVar("T")


class SimulatedLoop(asyncio.SelectorEventLoop):
    """A loop whose clock moves only when everybody sleeps, and then to where the first wakes up."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Leap(self))

    def time(self) -> float:
        """Seconds since its making."""
        return self._now

    def leap(self, seconds: float) -> None:
        """Nobody has anything to do for so long."""
        self._now += seconds


class _Leap(selectors.DefaultSelector):
    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise BenchError("everybody in the simulation waits for ever")
        if timeout > 0:
            self._loop.leap(timeout)
        return []


def simulate(work: Coroutine[Any, Any, T]) -> T:
    """Run to its end in simulated time, which begins at 0."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(work)

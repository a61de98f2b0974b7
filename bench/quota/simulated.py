"""Simulated time for asyncio: an hour of sleeping passes in no time, and in the right order.

What runs in it is the same code that runs in real time.
"""

import asyncio
import selectors
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from bench.errors import BenchError
from bench.processes import ENDING

T = TypeVar("T")


class SimulatedLoop(asyncio.SelectorEventLoop):
    """A loop whose clock moves only when all tasks sleep, and then to where the first wakes up."""

    def __init__(self, signals: list[int]) -> None:
        self._now = 0.0
        super().__init__(_Leap(self, signals))

    def time(self) -> float:
        """Seconds since its making."""
        return self._now

    def leap(self, seconds: float) -> None:
        """No task has anything to do for so long."""
        self._now += seconds


class _Leap(selectors.DefaultSelector):
    def __init__(self, loop: SimulatedLoop, signals: list[int]) -> None:
        super().__init__()
        self._loop = loop
        self._signals = signals

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._signals:
            self._signals.clear()  # the loop runs once more, for tasks to end
            raise KeyboardInterrupt
        if timeout is None:
            raise BenchError("all tasks of the simulation wait for ever")
        if timeout > 0:
            self._loop.leap(timeout)
        return []


def simulate(work: Coroutine[Any, Any, T]) -> T:
    """Run to its end in simulated time, which begins at 0. A signal that would raise wherever the program is raises
    between two turns of the loop: in the midst of a task it would leave that half done."""
    signals: list[int] = []
    before = {number: handler for number in ENDING if callable(handler := signal.getsignal(number))}
    for number in before:
        signal.signal(number, lambda number, _: signals.append(number))
    try:
        with asyncio.Runner(loop_factory=lambda: SimulatedLoop(signals)) as runner:
            return runner.run(work)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

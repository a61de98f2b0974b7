"""Simulated time for asyncio: an hour of sleeping passes in no time, and in the right order.

What runs in it is the same code that runs in real time.
"""

import asyncio
import selectors
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from bench.errors import BenchError
from bench.processes import ENDING

T = TypeVar("T")


class Held:
    """The first signal that came while signals were held back."""

    number: int | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        self.number = number

    def check(self) -> None:
        """Raises KeyboardInterrupt, once, where there was one."""
        if self.number is not None:
            self.number = None
            raise KeyboardInterrupt


class SimulatedLoop(asyncio.SelectorEventLoop):
    """A loop whose clock moves only when everybody sleeps, and then to where the first wakes up."""

    def __init__(self, held: Held) -> None:
        self._now = 0.0
        super().__init__(_Leap(self, held))

    def time(self) -> float:
        """Seconds since its making."""
        return self._now

    def leap(self, seconds: float) -> None:
        """Nobody has anything to do for so long."""
        self._now += seconds


class _Leap(selectors.DefaultSelector):
    def __init__(self, loop: SimulatedLoop, held: Held) -> None:
        super().__init__()
        self._loop = loop
        self._held = held

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._held.check()
        if timeout is None:
            raise BenchError("everybody in the simulation waits for ever")
        if timeout > 0:
            self._loop.leap(timeout)
        return []


def simulate(work: Coroutine[Any, Any, T]) -> T:
    """Run to its end in simulated time, which begins at 0."""
    with held_back() as held, asyncio.Runner(loop_factory=lambda: SimulatedLoop(held)) as runner:
        return runner.run(work)


@contextmanager
def held_back() -> Iterator[Held]:
    """Signals that would raise where the program happens to be are noted instead: raised within a task they would
    leave it half done, and raised within a weak reference's callback they would be lost."""
    held = Held()
    before = {number: handler for number in ENDING if callable(handler := signal.getsignal(number))}
    for number in before:
        signal.signal(number, held.note)
    try:
        yield held
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    held.check()

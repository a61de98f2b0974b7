"""An event loop whose clock moves only when nothing is left to do, and then to the next timer: what happens when is
exact, and a test of an hour takes a moment."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Skips(selectors.DefaultSelector):
    """Waits for no time: it has passed."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing will ever happen"
        self.now += max(0.0, timeout)
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._skips = _Skips()
        super().__init__(self._skips)

    def time(self) -> float:
        return self._skips.now


def in_virtual_time(act: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What `act()` returns, run to its end. It may await timers, and nothing outside this process."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(act())

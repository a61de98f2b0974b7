"""Events that may come in great numbers, logged at most once a period, with how many there were."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Seldom(Generic[_T]):
    """The first event is reported at once, and those of the next `period` seconds together at their end. `tell` is
    called with how many there were, and what is known of the last."""

    def __init__(self, period: float, tell: Callable[[int, _T], None]) -> None:
        self._period = period
        self._tell = tell
        self._untold = 0
        self._pause: asyncio.TimerHandle | None = None

    @property
    def keeps_quiet(self) -> bool:
        """Whether the next event is not reported at once."""
        return self._pause is not None

    def count(self, about: _T) -> None:
        """One more."""
        self._untold += 1
        self._about = about
        if not self.keeps_quiet:
            self._tell_all()

    def _tell_all(self) -> None:
        untold, self._untold = self._untold, 0
        self._pause = asyncio.get_running_loop().call_later(self._period, self._over)
        self._tell(untold, self._about)

    def _over(self) -> None:
        self._pause = None
        if self._untold:
            self._tell_all()

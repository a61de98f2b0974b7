"""Events that may come in great numbers, logged at most once a period, with how many there were."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Seldom(Generic[_T]):
    """The first event is reported at once, and those of the next `period` seconds together at their end. `report`
    is called with how many there were, and what is known of the last."""

    def __init__(self, period: float, report: Callable[[int, _T], None]) -> None:
        self._period = period
        self._report = report
        self._unreported = 0
        self._pause: asyncio.TimerHandle | None = None

    @property
    def keeps_quiet(self) -> bool:
        """Whether the next event is not reported at once."""
        return self._pause is not None

    def count(self, about: _T) -> None:
        """One more."""
        self._unreported += 1
        self._about = about
        if not self.keeps_quiet:
            self._report_all()

    def _report_all(self) -> None:
        count, self._unreported = self._unreported, 0
        self._pause = asyncio.get_running_loop().call_later(self._period, self._over)
        self._report(count, self._about)

    def _over(self) -> None:
        self._pause = None
        if self._unreported:
            self._report_all()

"""Bounds the log lines of requests that never reach an upstream, of which any client can send any number."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

import structlog

_AT_ONCE = 10.0  # seconds' worth of lines that may come together: a burst is seen whole
_REPORT_EVERY = 10.0

_log = structlog.get_logger("slb")


def later(seconds: float, call: Callable[[], None]) -> None:
    """Call `call` in so many seconds; not at all where no loop runs, as at exit or in a plain function."""
    with suppress(RuntimeError):
        asyncio.get_running_loop().call_later(seconds, call)


class Throttle:
    """A token bucket of `rate` bytes a second, 0 for no limit. Suppressed lines are counted and logged."""

    def __init__(
        self, rate: int = 0, clock: Callable[[], float] = time.monotonic, report_every: float = _REPORT_EVERY
    ) -> None:
        self._clock = clock
        self._report_every = report_every
        self._at = clock()
        self._suppressed = 0
        self._rate = self._level = 0.0
        self.set_rate(rate)

    def set_rate(self, rate: int) -> None:
        """Apply this rate from now on; the bucket is full."""
        self._rate = float(rate)
        self._level = self._rate * _AT_ONCE

    def allows(self) -> bool:
        """Whether a line of any length may be written; where not, it is counted."""
        if not self._rate:
            return True
        now = self._clock()
        self._level = min(self._rate * _AT_ONCE, self._level + (now - self._at) * self._rate)
        self._at = now
        if self._level > 0:
            return True
        if not self._suppressed:
            later(self._report_every, self.report)
        self._suppressed += 1
        return False

    def spend(self, size: int) -> None:
        self._level -= size

    def report(self) -> None:
        """Log how many lines were suppressed since the last report, if any."""
        lines, self._suppressed = self._suppressed, 0
        if lines:
            _log.warning("access_log_suppressed", lines=lines, limit=f"access_log_refused = {self._rate:g}")


_T = TypeVar("_T")


class Seldom(Generic[_T]):
    """Reports the first event at once, those of the next `period` seconds together: how many, and what is known of
    the last."""

    def __init__(self, period: float, report: Callable[[int, _T], None]) -> None:
        self._period = period
        self._report = report
        self._unreported = 0
        self._pause: asyncio.TimerHandle | None = None

    @property
    def keeps_quiet(self) -> bool:
        return self._pause is not None

    def count(self, about: _T) -> None:
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

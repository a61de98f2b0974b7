"""Bounds the log lines of requests that never reach an upstream: anybody can send any number of them."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import structlog

_AT_ONCE = 10.0  # seconds' worth of lines that may come together: a burst is seen whole
_REPORT_EVERY = 10.0

_log = structlog.get_logger("slb")


def later(seconds: float, call: Callable[[], None]) -> None:
    """Call `call` in so many seconds; not at all where no loop runs, as at exit or in a plain function."""
    with suppress(RuntimeError):
        asyncio.get_running_loop().call_later(seconds, call)


class Throttle:
    """A token bucket of `rate` bytes a second, 0 for no limit. What it holds back it counts, and logs every ten
    seconds: so whatever is sent, the log grows by `rate`, one line more, and that event."""

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
        """Let this one hold from now on; the bucket is full."""
        self._rate = float(rate)
        self._level = self._rate * _AT_ONCE

    def allows(self) -> bool:
        """Whether a line may be written, however long; where not, it is counted."""
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
        """So many bytes were written."""
        self._level -= size

    def report(self) -> None:
        """Log how many lines were held back since it was logged last, if any were."""
        lines, self._suppressed = self._suppressed, 0
        if lines:
            _log.warning("access_log_suppressed", lines=lines, limit=f"access_log_refused = {self._rate:g}")

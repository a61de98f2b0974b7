"""Deadlines that are fair to an answer which has come and only has not been read yet, and to one that could not
come because this process did not run."""

import asyncio
from collections.abc import Callable

_GRACE = 0.005
"""Of the time there is, for the first: this process may have been held up, or frozen."""

_RESOLUTION = 0.001
"""By so much a timer may be early."""

_STEP = 0.1
"""Seconds between two looks at the clock. Where one is late by more than so much, this process stood still."""


class Stopwatch:
    """Once started it calls `on_late` at `late_at` and `on_end` at `at`, by the event loop's clock, unless it is
    stopped before. Both move on by the time for which this process stood still: an answer had no way to be heard.
    To start and to stop it costs little: the event loop's timer stays armed, and then looks what is due."""

    def __init__(self, on_end: Callable[[], None], on_late: Callable[[], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_end = on_end
        self._on_late = on_late
        self._runs = False
        self._is_late = False
        self._was_overdue = False
        self._since = self._at = self._late_at = 0.0
        self._nearly_at = self._look_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self, at: float, late_at: float | None = None) -> None:
        """From now on; `late_at` is before `at`, or None where nothing is to be called then."""
        self._runs, self._is_late = True, late_at is None
        self._since, self._at, self._late_at = self._loop.time(), at, late_at or at
        self._nearly_at = 0.0
        self._was_overdue = False
        self._arm()

    def stop(self) -> None:
        """Nothing is called any more."""
        self._runs = False

    def close(self) -> None:
        """The same, for good: nothing of it is left in the event loop."""
        self._runs = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def extend(self, at: float) -> None:
        """It ends at `at`, where that is later; `late_at` stays."""
        self._at = max(self._at, at)

    @property
    def _due(self) -> float:
        return self._at if self._is_late else self._late_at

    def _arm(self) -> None:
        """A timer that is early is as good: it looks, and arms the next."""
        now = self._loop.time()
        look_at = max(now, min(self._due - _GRACE, now + _STEP))
        if self._timer is None or self._look_at > look_at:
            self._call_at(look_at)

    def _call_at(self, expected: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._look_at = expected
        self._timer = self._loop.call_at(expected, self._look, expected)

    def _look(self, expected: float) -> None:
        self._timer = None
        if not self._runs:
            return
        now = self._loop.time()
        overdue = now - max(expected, self._since)
        was_overdue, self._was_overdue = self._was_overdue, overdue > _STEP
        if self._was_overdue and not was_overdue:  # one look after the other: it runs, and is slow
            self._at += overdue
            self._late_at += overdue
            self._arm()
        elif now < self._due - _GRACE - _RESOLUTION:
            self._arm()
        elif self._nearly_at != self._due:
            self._nearly_at = self._due
            self._call_at(now + _GRACE)
        else:
            self._reached()

    def _reached(self) -> None:
        if self._is_late:
            self._runs = False
            self._on_end()
        else:
            self._is_late = True
            self._arm()
            if self._on_late is not None:
                self._on_late()

"""A deadline that is fair to an answer which has come and only has not been read yet, and to one that could not
come because this process did not run."""

import asyncio
from collections.abc import Callable
from types import TracebackType

_GRACE = 0.005
"""Of the time there is, for the first: this process may have been held up, or frozen."""

_STEP = 0.1
"""Seconds between two looks at the clock. Where one is late by more than so much, this process stood still."""


class Deadline:
    """What runs inside `with` raises TimeoutError at `at`, by the event loop's clock. `on_late` is called
    before that, at `late_at`, where it has not ended by then. Both move on by the time for which this process stood
    still: whoever is waited for had no way to be heard. `with` gives this object."""

    def __init__(self, at: float, late_at: float = 0.0, on_late: Callable[[], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None
        self._cancellations = 0
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None
        self._at = at
        self._late_at = late_at
        self._on_late = on_late

    def __enter__(self) -> "Deadline":
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancellations = self._task.cancelling()
        self._arm()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        is_ours = self._is_over and task is not None and task.uncancel() <= self._cancellations
        if is_ours and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def extend(self, at: float) -> None:
        """It ends at `at`, where that is later; `late_at` stays."""
        self._at = max(self._at, at)
        if self._on_late is None and self._timer is not None:
            self._timer.cancel()
            self._arm()

    def _arm(self) -> None:
        due = (self._at if self._on_late is None else self._late_at) - _GRACE
        step_at = self._loop.time() + _STEP
        if step_at < due:
            self._call_at(step_at, self._arm)
        else:
            self._call_at(due, self._nearly)

    def _call_at(self, expected: float, then: Callable[[], None]) -> None:
        self._timer = self._loop.call_at(expected, self._called, expected, then)

    def _called(self, expected: float, then: Callable[[], None]) -> None:
        overdue = self._loop.time() - expected
        if overdue > _STEP:
            self._at += overdue
            self._late_at += overdue
            self._arm()
        else:
            then()

    def _nearly(self) -> None:
        self._call_at(self._loop.time() + _GRACE, self._reached)

    def _reached(self) -> None:
        on_late, self._on_late = self._on_late, None
        if on_late is None:
            self._end()
        else:
            self._arm()
            on_late()

    def _end(self) -> None:
        """As asyncio.timeout does it, but for less: a lane has a deadline for each batch."""
        if self._task is not None:
            self._is_over = True
            self._task.cancel()

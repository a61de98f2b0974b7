"""A check that turns its upstream up and down again and again: its turns are told together, as a number. Pure: no
I/O, no clock.

A turn is told for itself while it is one of the first three within five minutes. With the fourth the upstream
flaps. From then on turns are only counted, and told once each five minutes, until five minutes go by without one.
Every instance sees all turns, whichever makes the check, so all count alike; the one that made the last turn tells.
"""

from collections import deque
from typing import NamedTuple

WINDOW = 300.0
"""Seconds."""
ALONE = 3
"""Turns within a window that are told one by one."""


class Flapping(NamedTuple):
    """So many turns in so many seconds. `ours`: this instance made the last one, and tells the fleet."""

    turns: int
    seconds: float
    ours: bool


class Turns:
    """Those of one check of one upstream. `flapping`: turns are counted, and not told one by one."""

    __slots__ = ("_begun", "_counted", "_ours", "_times")

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=ALONE + 1)
        self._begun: float | None = None
        self._counted = 0
        self._ours = False

    @property
    def flapping(self) -> bool:
        return self._begun is not None

    def turned(self, now: float, ours: bool) -> Flapping | None:
        """One more turn; `over` comes first. What to tell where flapping begins with it."""
        if self._begun is not None:
            self._counted += 1
            self._ours = ours
            return None
        self._times.append(now)
        first = self._times[0]
        if len(self._times) <= ALONE or now - first > WINDOW:
            return None
        self._times.clear()
        self._begun, self._counted = now, 0
        return Flapping(ALONE + 1, now - first, ours)

    def over(self, now: float) -> Flapping | None:
        """To be called now and then: what to tell of five minutes that are over."""
        if self._begun is None or now < self._begun + WINDOW:
            return None
        counted, self._counted = self._counted, 0
        if not counted:
            self._begun = None
            return None
        # Counted from the end of the last, so that all instances tell of the same minutes.
        self._begun = max(self._begun + WINDOW, now - WINDOW)
        return Flapping(counted, WINDOW, self._ours)

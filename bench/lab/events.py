"""Simulated time: it stands still while something happens, and leaps to what happens next."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

Action = Callable[[], None]


class Schedule:
    """What is still to happen, in order of time; equals in the order in which they were scheduled. Seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Action]] = []
        self._numbers = count()

    def clock(self) -> float:
        """For whoever takes a clock."""
        return self.now

    def at(self, when: float, action: Action) -> None:
        """Have `action` called at `when`. Raises ValueError for what is past."""
        if when < self.now:
            raise ValueError(f"{when} is before {self.now}")
        heappush(self._due, (when, next(self._numbers), action))

    def run(self, until: float) -> None:
        """Let everything happen that is due at `until` or before, also what comes of it."""
        due = self._due
        while due and due[0][0] <= until:
            self.now, _, action = heappop(due)
            action()
        self.now = until

    def drain(self) -> None:
        """Let everything happen; for ever, where something schedules itself anew each time."""
        while self._due:
            self.run(self._due[0][0])

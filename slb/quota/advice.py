"""How many callers would do: the formulas of seed and docs over what was decided in the last minute."""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from slb.quotas import Advice

WINDOW = 60
"""Seconds."""

LOW, HIGH = 25, 1_000
"""Milliseconds of waiting: none to speak of, and as bad as it gets. Longer waits need not be told apart."""

FEWEST = 4
"""Callers, where the models can take so many."""


@dataclass
class Decided:
    """`waits`: how often callers were told to wait so many milliseconds, at most `HIGH`."""

    calls: int = 0
    admits: int = 0
    waits: Counter[int] = field(default_factory=Counter)

    def add(self, other: "Decided") -> None:
        """Both together."""
        self.calls += other.calls
        self.admits += other.admits
        self.waits.update(other.waits)


class Window:
    """What was decided, by the second."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, Decided]] = deque()

    def admitted(self, now: int) -> None:
        """Milliseconds."""
        decided = self._second(now)
        decided.calls += 1
        decided.admits += 1

    def told_to_wait(self, now: int, wait: int) -> None:
        """Both in milliseconds."""
        decided = self._second(now)
        decided.calls += 1
        decided.waits[min(wait, HIGH)] += 1

    def total(self, now: int) -> Decided:
        """Of the last minute."""
        self._forget(now)
        total = Decided()
        for _, decided in self._seconds:
            total.add(decided)
        return total

    def _second(self, now: int) -> Decided:
        second = now // 1000
        if not self._seconds or self._seconds[-1][0] != second:
            self._forget(now)
            self._seconds.append((second, Decided()))
        return self._seconds[-1][1]

    def _forget(self, now: int) -> None:
        while self._seconds and self._seconds[0][0] <= now // 1000 - WINDOW:
            self._seconds.popleft()


def advice(decided: Decided, in_flight: int, capacity: int) -> Advice:
    """`in_flight` requests now, of at most `capacity` that all models together take at the same time."""
    admit_rate = decided.admits / decided.calls if decided.calls else 1.0
    slow = (percentile(decided.waits, 0.95) - LOW) / (HIGH - LOW)
    score = _clamp(0.5 * _clamp(slow, 0, 1) + 0.5 * (1 - admit_rate), 0, 1)
    wanted = in_flight + round((capacity - in_flight) * (1 - score))
    return Advice(score, int(min(max(wanted, FEWEST), capacity)))


def percentile(counts: Mapping[int, int], share: float) -> int:
    """The smallest value that so large a share of all is at or below; 0 where there is none."""
    rank, seen = ceil(share * sum(counts.values())), 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= rank:
            return value
    return 0


def _clamp(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)

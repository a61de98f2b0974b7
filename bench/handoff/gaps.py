"""What pods note of themselves: how long each was idle between two requests, and when its requests end. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from bench.table import percentile

SPREAD = 0.25
"""Out of step, a service takes so much more or less than the mean, at random."""


class Gap(NamedTuple):
    """`seconds` between the end of one request at a pod and the beginning of the next; `same`: whether both came
    through the same instance."""

    seconds: float
    same: bool


class Book:
    """Fed by the pods themselves. `crowded`: how often a request came to a pod that was not free."""

    def __init__(self) -> None:
        self.gaps: list[Gap] = []
        self.crowded = 0
        self._present: Counter[str] = Counter()
        self._freed: dict[str, tuple[float, str]] = {}

    def began(self, pod: str, instance: str, now: float) -> None:
        """A request has come to it."""
        freed = self._freed.pop(pod, None)
        if self._present[pod]:
            self.crowded += 1
        elif freed is not None:
            self.gaps.append(Gap(now - freed[0], freed[1] == instance))
        self._present[pod] += 1

    def ended(self, pod: str, instance: str, now: float) -> None:
        """It has served one."""
        self._present[pod] -= 1
        if not self._present[pod]:
            self._freed[pod] = now, instance

    def take(self) -> tuple[list[Gap], int]:
        """The gaps since the last take, and how many came to a pod that was not free."""
        taken = self.gaps, self.crowded
        self.gaps, self.crowded = [], 0
        return taken


@dataclass(frozen=True)
class Schedule:
    """When requests end. `in_step`: all pods at one moment, every `service` seconds; else each on its own."""

    service: float
    in_step: bool
    rng: Random

    def end_of(self, now: float) -> float:
        """Of a request that begins now; in step it takes at least half a service, so that latecomers are in."""
        if not self.in_step:
            return now + self.service * self.rng.uniform(1 - SPREAD, 1 + SPREAD)
        steps = int((now + self.service / 2) / self.service) + 1
        return steps * self.service


@dataclass(frozen=True)
class Handoffs:
    """One run: what the pods saw. `who` says what was between them and the clients."""

    who: str
    instances: int
    in_step: bool
    gaps: Sequence[Gap]
    crowded: int

    def milliseconds(self, share: float, same: bool | None = None) -> float:
        """Of all gaps, or of those on the same instance, or of those on another; NaN without any."""
        return percentile(list(self._of(same)), share) * 1e3

    def _of(self, same: bool | None) -> Iterable[float]:
        return (gap.seconds for gap in self.gaps if same is None or gap.same is same)

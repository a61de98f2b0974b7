"""What pods note of their requests: how many each has, and how long it is idle between two; and when they end."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random


@dataclass
class Book:
    """Filled by the pods of one process. `gaps`: seconds between the end of one request at a pod and the beginning
    of the next, and whether both came through one instance; `crowded`: how often a request came to a pod that was
    not free. `present`, `most`: by pod, how many requests it has now, and the most it ever had at once."""

    gaps: list[tuple[float, bool]] = field(default_factory=list)
    crowded: int = 0
    present: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    _freed: dict[str, tuple[float, str]] = field(default_factory=dict)

    def begin(self, pod: str, instance: str, now: float) -> None:
        """A request has come."""
        freed = self._freed.pop(pod, None)
        if self.present[pod]:
            self.crowded += 1
        elif freed is not None:
            self.gaps.append((now - freed[0], freed[1] == instance))
        self.present[pod] += 1
        self.most[pod] = max(self.most[pod], self.present[pod])

    def end(self, pod: str, instance: str, now: float) -> None:
        """A request has been served, or its connection is gone."""
        self.present[pod] -= 1
        if not self.present[pod]:
            self._freed[pod] = now, instance

    def take(self) -> dict[str, object]:
        """As JSON takes it; gaps and crowded are those since the last take."""
        taken = {"gaps": self.gaps, "crowded": self.crowded, "present": +self.present, "most": self.most}
        self.gaps, self.crowded = [], 0
        return taken


@dataclass(frozen=True)
class Schedule:
    """When requests end. In step all pods end at one moment, every `service` seconds; else a request takes that,
    and up to `spread` of it more or less."""

    rng: Random
    service: float
    spread: float = 0.25
    in_step: bool = False

    def end_of(self, now: float) -> float:
        """Of a request that begins now; in step it takes at least half a service, so that latecomers are in."""
        if not self.in_step:
            return now + self.service * self.rng.uniform(1 - self.spread, 1 + self.spread)
        return (int((now + self.service / 2) / self.service) + 1) * self.service


class Noted:
    """A request at a pod. It ends once: it is answered, or its connection is gone."""

    def __init__(self, book: Book, pod: str, instance: str, clock: Callable[[], float]) -> None:
        self._names = pod, instance
        self._book = book
        self._clock = clock
        self._ended = False
        book.begin(pod, instance, clock())

    def end(self) -> bool:
        """Whether it had not ended yet."""
        first, self._ended = not self._ended, True
        if first:
            self._book.end(*self._names, self._clock())
        return first

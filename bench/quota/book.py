"""What was admitted, settled and ended, and when: the lab's own account, from which all its figures come."""

from collections.abc import Iterator
from dataclasses import dataclass, field

FOREVER = float("inf")


@dataclass(slots=True)
class Entry:
    """One admitted task. Times are seconds of the lab's clock; `ended` and `actual` are there once it has ended.
    Who asked at `asked` was told at `admitted`: the moment of the decision lies between."""

    model: str
    estimate: int
    asked: float
    admitted: float
    ended: float = FOREVER
    actual: int | None = None

    def known(self, now: float) -> int:
        """Its tokens, as far as the router could know by then."""
        return self.estimate if self.actual is None or now < self.ended else self.actual


@dataclass
class Tries:
    """Asks of who was told to wait, obeyed, and came back."""

    again: int = 0
    again_admitted: int = 0
    came_back: list[tuple[float, bool]] = field(default_factory=list)
    """When, by the lab's clock, and whether they were admitted."""

    def count(self, admitted: bool, at: float) -> None:
        self.again += 1
        self.again_admitted += admitted
        self.came_back.append((at, admitted))

    @property
    def kept(self) -> float:
        """The share of waits that came true: the next try was admitted."""
        return self.again_admitted / self.again if self.again else float("nan")

    def kept_since(self, since: float) -> float:
        """The same of those who came back later than that."""
        later = [admitted for at, admitted in self.came_back if at > since]
        return sum(later) / len(later) if later else float("nan")


@dataclass
class Book:
    """Entries by model, in the order of their decisions as they became known."""

    entries: dict[str, list[Entry]] = field(default_factory=dict)
    tries: Tries = field(default_factory=Tries)
    waits: list[int] = field(default_factory=list)
    """Milliseconds, all that were told."""
    late: list[float] = field(default_factory=list)
    """By how many seconds callers came back later than they had been told: what the load side itself costs."""
    answered: list[float] = field(default_factory=list)
    """When, since the start, in order."""
    drained: float = 0.0
    """When the last task was answered."""
    exhausted: float = 0.0
    """When the last task of the backlog was taken up: until then all models were wanted."""
    repeated: int = 0
    """Tasks that were begun, lost, and begun again."""

    @property
    def waited_out(self) -> float:
        """The share of all waits told that somebody came back from."""
        return self.tries.again / len(self.waits) if self.waits else float("nan")

    def enter(self, entry: Entry) -> Entry:
        self.entries.setdefault(entry.model, []).append(entry)
        return entry

    def all(self) -> Iterator[Entry]:
        for entries in self.entries.values():
            yield from entries

"""What happened in a run: which asks came, which slots they got and gave back, and when something was broken.

Times are seconds of one clock. A run may be seen from outside, where a grant shows when its request reaches the
upstream and a release when the upstream is done: both lie within the lease, so what overlaps here overlapped there.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf


@dataclass(frozen=True, slots=True)
class Queued:
    """`ask` wants a slot of one of `usable`. `number`: its place among all of its pool and class."""

    time: float
    ask: str
    instance: str
    pool: str
    priority: str
    number: int
    usable: frozenset[str]


@dataclass(frozen=True, slots=True)
class Granted:
    """`ask`, which may have been queued before, has a slot of `member` through `instance`."""

    time: float
    ask: str
    instance: str
    pool: str
    member: str
    priority: str


@dataclass(frozen=True, slots=True)
class Released:
    """The slot `ask` had is free."""

    time: float
    ask: str


@dataclass(frozen=True, slots=True)
class Left:
    """`ask` waits no longer: it was refused, timed out, or its client has gone."""

    time: float
    ask: str


@dataclass(frozen=True, slots=True)
class Expired:
    """Others may use what `instance` held."""

    time: float
    instance: str


@dataclass(frozen=True, slots=True)
class Returned:
    """`instance` was only frozen: what it still has running counts again, even above the capacity."""

    time: float
    instance: str


@dataclass(frozen=True, slots=True)
class Scored:
    """What Redis counts in flight, read at one moment; absent members have 0."""

    time: float
    pool: str
    scores: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Observed:
    """So many requests are at `member` at once, as it sees it itself."""

    time: float
    member: str
    concurrency: int


Event = Queued | Granted | Released | Left | Expired | Returned | Scored | Observed


@dataclass(slots=True)
class Span:
    """From `start` to `end`, infinite while it goes on."""

    start: float
    end: float = inf

    def meets(self, start: float, end: float) -> bool:
        """Whether they have a moment in common."""
        return self.start <= end and start <= self.end


@dataclass(slots=True)
class History:
    """`disturbed`: when Redis was away, had lost its data, or was settling. `stalled`: when an instance was frozen
    or dead. `remaining`: what was still there in Redis at the end, name -> count."""

    clock: Callable[[], float]
    events: list[Event] = field(default_factory=list)
    disturbed: list[Span] = field(default_factory=list)
    stalled: dict[str, list[Span]] = field(default_factory=dict)
    remaining: dict[str, int] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """In any order: what is read from a log comes late."""
        self.events.append(event)

    def stall(self, instance: str) -> Span:
        """From now on `instance` does nothing; it is over when the span gets an end."""
        span = Span(self.clock())
        self.stalled.setdefault(instance, []).append(span)
        return span

    @contextmanager
    def redis_disturbed(self) -> Iterator[Span]:
        """While Redis is not whole."""
        span = Span(self.clock())
        self.disturbed.append(span)
        try:
            yield span
        finally:
            span.end = self.clock()

    def whole(self, start: float, end: float) -> bool:
        """Whether Redis was whole all the time between."""
        return not any(span.meets(start, end) for span in self.disturbed)

    def was_stalled(self, instance: str, start: float, end: float) -> bool:
        """Whether the instance was frozen or dead at some time between."""
        return any(span.meets(start, end) for span in self.stalled.get(instance, ()))

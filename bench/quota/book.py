"""What was admitted, settled and ended, and when: the lab's own account, from which all its figures come, by other
sums than the router's."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from itertools import accumulate

from bench.quota.work import MINUTE, Model


@dataclass(slots=True)
class Entry:
    """One task that was admitted. Times are seconds of the lab's clock; `ended` and `actual` are there once it has
    ended."""

    model: str
    estimate: int
    admitted: float
    ended: float = math.inf
    actual: int | None = None

    def known(self, now: float = math.inf) -> int:
        """Its tokens, as far as the router could know by then."""
        return self.estimate if self.actual is None or now < self.ended else self.actual


@dataclass
class Book:
    """`entries`: by model, in their order. `waits`: milliseconds, all that were answered. `came_back`: of callers
    that had waited so long, when, and whether they were admitted then. `answered`, `repeated`: tasks that were
    answered, and those that were begun, lost, and begun again. `drained`, `exhausted`: when the last task was
    answered, and when the last one was taken up; until then all models were wanted."""

    entries: dict[str, list[Entry]] = field(default_factory=dict)
    waits: list[int] = field(default_factory=list)
    came_back: list[tuple[float, bool]] = field(default_factory=list)
    answered: int = 0
    repeated: int = 0
    drained: float = 0.0
    exhausted: float = 0.0

    def enter(self, entry: Entry) -> Entry:
        self.entries.setdefault(entry.model, []).append(entry)
        return entry

    def kept(self, since: float = -math.inf) -> float:
        """The share of waits that came true, of callers that came back after `since`: they were admitted."""
        later = [admitted for at, admitted in self.came_back if at > since]
        return sum(later) / len(later) if later else math.nan

    @property
    def waited_out(self) -> float:
        """The share of all waits that a caller came back from."""
        return len(self.came_back) / len(self.waits) if self.waits else math.nan


@dataclass(frozen=True)
class Part:
    """One model's. `most`: tokens in its fullest 60 s, in units of its limit and one bucket; `rate`: the long-run
    rate in units of the limit, while all was wanted; `in_use`: the share of its slots that was taken meanwhile, on
    average; `share`, `off`: of all tokens that were admitted, what it got, and by how much that is more than its
    weight makes due, relative to that."""

    model: Model
    calls: int
    at_once: int
    most: float
    rate: float
    idle: float
    in_use: float
    share: float
    off: float


@dataclass(frozen=True)
class Standing:
    """What one way of draining came to."""

    label: str
    book: Book
    models: Sequence[Model]

    @property
    def idle(self) -> float:
        """The share of all quotas together that was left unused until the last task was taken up."""
        quotas = [model.burst + model.rate * self.book.exhausted for model in self.models]
        return sum(part.idle * quota for part, quota in zip(self.parts, quotas, strict=True)) / sum(quotas)

    @property
    def fullest(self) -> float:
        return max(part.most for part in self.parts)

    @property
    def over_cap(self) -> int:
        """The most tasks that any model ever had beyond its slots."""
        return max(0, *(part.at_once - part.model.slots for part in self.parts))

    @property
    def share_error(self) -> float:
        """By how much the model that is furthest from its weight's share is off, relative to that."""
        return max(abs(part.off) for part in self.parts)

    @cached_property
    def parts(self) -> list[Part]:
        """Model by model."""
        weights, until = sum(model.weight for model in self.models), self.book.exhausted
        settled = min(MINUTE, until / 4)  # the first buckets are spent by then
        whole = sum(each.known() for entries in self.book.entries.values() for each in entries) or 1
        parts = []
        for model in self.models:
            entries = self.book.entries.get(model.name, [])
            share = sum(each.known() for each in entries) / whole
            most = most_in_a_minute(entries) / (model.limit + model.burst)
            rate, unused = long_run(entries, model.rate, settled, until), idle(entries, model, until)
            held, off = in_use(entries, model.slots, until), share * weights / model.weight - 1
            parts.append(Part(model, len(entries), most_at_once(entries), most, rate, unused, held, share, off))
        return parts


def most_in_a_minute(entries: Sequence[Entry], minute: float = MINUTE) -> int:
    """The most tokens admitted in any 60 s window, each task counted when it was admitted with what could be known
    of it at the window's end: its estimate, or what it came to."""
    counted: dict[int, int] = {}
    inside: deque[int] = deque()
    ends: list[tuple[float, int]] = []
    most = total = 0
    ordered = sorted(entries, key=lambda each: each.admitted)
    for number, entry in enumerate(ordered):
        now = entry.admitted
        while inside and ordered[inside[0]].admitted <= now - minute:
            total -= counted.pop(inside.popleft())
        while ends and ends[0][0] <= now:
            ended = heappop(ends)[1]
            if ended in counted:
                total += ordered[ended].known(now) - counted[ended]
                counted[ended] = ordered[ended].known(now)
        inside.append(number)
        heappush(ends, (entry.ended, number))
        counted[number] = entry.estimate
        total += entry.estimate
        most = max(most, total)
    return most


def long_run(entries: Sequence[Entry], rate: float, since: float, until: float) -> float:
    """The rate at which tokens were admitted from `since` to `until`, as a share of `rate`."""
    tokens = sum(entry.known() for entry in entries if since < entry.admitted <= until)
    return tokens / (rate * (until - since)) if until > since else math.nan


def idle(entries: Sequence[Entry], model: Model, until: float) -> float:
    """The share of the quota, its first bucket included, that was left unused until then."""
    used = sum(entry.known() for entry in entries if entry.admitted <= until)
    return max(0.0, 1 - used / (model.burst + model.rate * until))


def most_at_once(entries: Sequence[Entry]) -> int:
    """Tasks in flight, as their callers see it: from having the answer to having ended."""
    changes = [(entry.admitted, 1) for entry in entries] + [(entry.ended, -1) for entry in entries]
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def in_use(entries: Sequence[Entry], slots: int, until: float) -> float:
    """The share of the slots that was taken until then, on average."""
    held = sum(min(entry.ended, until) - entry.admitted for entry in entries if entry.admitted < until)
    return held / (slots * until) if until else math.nan

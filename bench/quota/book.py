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
    """One admitted task. Times are seconds of the lab's clock; `ended` and `actual` are there once it has ended.
    It was asked for at `asked`, and its caller had the answer at `admitted`: it was decided in between."""

    model: str
    estimate: int
    asked: float
    admitted: float
    ended: float = math.inf
    actual: int | None = None

    def known(self, now: float) -> int:
        """Its tokens, as far as the router could know by then."""
        return self.estimate if self.actual is None or now < self.ended else self.actual


@dataclass
class Book:
    """`entries`: by model, in the order in which their callers had the answer. `waits`: milliseconds, all that were
    answered. `came_back`: of callers that had waited so long, when, and whether they were admitted then.
    `answered`, `repeated`: tasks that were answered, and those that were begun, lost, and begun again. `drained`,
    `exhausted`: when the last task was answered, and when the last one was taken up; until then all models were
    wanted."""

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
    average; `share`, `due`: of all tokens that were admitted, what it got, and what its weight makes due."""

    model: Model
    calls: int
    at_once: int
    most: float
    rate: float
    idle: float
    in_use: float
    share: float
    due: float

    @property
    def off(self) -> float:
        """By how much its share is more than due, relative to that."""
        return self.share / self.due - 1


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
    def slowest_rate(self) -> float:
        return min(part.rate for part in self.parts)

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
        weights = sum(model.weight for model in self.models)
        tokens = {name: sum(each.known(math.inf) for each in found) for name, found in self.book.entries.items()}
        whole = sum(tokens.values()) or 1  # none, where the run ended before its first minute did
        return [
            self._part(model, tokens.get(model.name, 0) / whole, model.weight / weights) for model in self.models
        ]

    def _part(self, model: Model, share: float, due: float) -> Part:
        entries, until = self.book.entries.get(model.name, []), self.book.exhausted
        settled = min(MINUTE, until / 4)  # the first buckets are spent by then
        return Part(
            model,
            len(entries),
            most_at_once(entries),
            most_in_a_minute(entries) / (model.limit + model.burst),
            long_run(entries, model.rate, settled, until),
            idle(entries, model.rate, model.burst, until),
            in_use(entries, model.slots, until),
            share,
            due,
        )


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
    tokens = sum(entry.known(math.inf) for entry in entries if since < entry.admitted <= until)
    return tokens / (rate * (until - since)) if until > since else math.nan


def idle(entries: Sequence[Entry], rate: float, burst: float, until: float) -> float:
    """The share of the quota, its first bucket included, that was left unused until then."""
    used = sum(entry.known(math.inf) for entry in entries if entry.admitted <= until)
    return max(0.0, 1 - used / (burst + rate * until))


def most_at_once(entries: Sequence[Entry]) -> int:
    """Tasks in flight, as their callers see it: from having the answer to having ended."""
    changes = [(entry.admitted, 1) for entry in entries] + [(entry.ended, -1) for entry in entries]
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def in_use(entries: Sequence[Entry], slots: int, until: float) -> float:
    """The share of the slots that was taken until then, on average."""
    held = sum(min(entry.ended, until) - entry.admitted for entry in entries if entry.admitted < until)
    return held / (slots * until) if until else math.nan

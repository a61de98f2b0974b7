"""What callers were told: come back then, and so many tokens and a slot of this model are kept for you.

A caller that comes back is known by its idempotency key; without one by its estimate and the models it named,
since callers that ask for the same may stand in for each other. Nobody else gets what is promised, however small
their request: this is what keeps large requests from starving.

Who has to wait very long is told to come back sooner, only to be told the rest, and keeps the place meanwhile. A
promise nobody comes for ends a little after they were told to come: of callers that have gone nothing stays.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from heapq import heappop, heappush
from typing import NamedTuple

GRACE = 2_000
"""Milliseconds a caller may be late."""

EARLY = 5
"""Milliseconds it may be early: clocks are read in whole ones."""


class Promise(NamedTuple):
    """`due` and `back`, when they were told to come, in milliseconds; `number` is its own; `subset`: the models
    that would do, as text; `key` may be empty; `kept`: for how many milliseconds slots were kept when it was one
    that was waited for; 0: it was tokens."""

    due: int
    back: int
    number: int
    model: str
    estimate: int
    subset: str
    key: str
    kept: int


class Held(NamedTuple):
    """What is promised of one model, to so many callers."""

    callers: int = 0
    tokens: int = 0


class _Soon(NamedTuple):
    """So many of a model's promised `tokens` are due by then."""

    by: int = 0
    tokens: int = 0


class Promises:
    """Those that stand."""

    def __init__(self) -> None:
        self._numbers = 0
        self._live: dict[int, Promise] = {}
        self._keyed: dict[str, Promise] = {}
        self._alike: defaultdict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)  # each by back
        self._ends: list[tuple[int, int]] = []
        self._held: dict[str, Held] = {}
        self._soon: dict[str, _Soon] = {}
        self._dues: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self._live)

    def held(self, model: str) -> Held:
        """What is promised of `model`."""
        return self._held.get(model, Held())

    def soon(self, model: str, by: int) -> int:
        """How many tokens of `model` are promised to those due by then, which never goes back."""
        known, dues = self._soon.get(model, _Soon()), self._dues[model]
        if by > known.by:
            news = dues[bisect_left(dues, (known.by + 1,)) : bisect_left(dues, (by + 1,))]
            known = _Soon(by, known.tokens + sum(self._live[number].estimate for _, number in news))
            self._soon[model] = known
        return known.tokens

    def due_by(self, model: str, at: int) -> int:
        """How many come for `model` by then."""
        return bisect_left(self._dues[model], (at + 1,))

    def last_due(self, model: str) -> int:
        """When the last comes; 0 where nobody does."""
        return self._dues[model][-1][0] if self._dues[model] else 0

    def before(self, promise: Promise) -> int:
        """How many of its model are due sooner."""
        return bisect_left(self._dues[promise.model], (promise.due,))

    def make(self, due: int, back: int, model: str, estimate: int, subset: str, key: str, kept: int) -> None:
        """Promise it."""
        self._numbers += 1
        self._add(Promise(due, back, self._numbers, model, estimate, subset, key, kept))

    def change(self, promise: Promise, due: int, back: int) -> None:
        """They were told anew; their place is due then."""
        self.drop(promise)
        self._add(promise._replace(due=due, back=back))

    def _add(self, promise: Promise) -> None:
        self._live[promise.number] = promise
        if promise.key:
            self._keyed[promise.key] = promise
        else:
            insort(self._alike[promise.estimate, promise.subset], (promise.back, promise.number))
        insort(self._dues[promise.model], (promise.due, promise.number))
        heappush(self._ends, (promise.back + GRACE, promise.number))
        self._hold(promise, 1)

    def find(self, now: int, estimate: int, subset: str, key: str) -> Promise | None:
        """The promise whoever asks for this comes for."""
        if key:
            keyed = self._keyed.get(key)
            return keyed if keyed and (keyed.estimate, keyed.subset) == (estimate, subset) else None
        alike = self._alike.get((estimate, subset))
        return self._live[alike[0][1]] if alike and alike[0][0] <= now + EARLY else None

    def drop(self, promise: Promise) -> None:
        """It is kept, or void."""
        del self._live[promise.number]
        dues = self._dues[promise.model]
        del dues[bisect_left(dues, (promise.due, promise.number))]
        if promise.key:
            if self._keyed.get(promise.key) is promise:
                del self._keyed[promise.key]
        else:
            alike = self._alike[promise.estimate, promise.subset]
            del alike[bisect_left(alike, (promise.back, promise.number))]
            if not alike:
                del self._alike[promise.estimate, promise.subset]
        self._hold(promise, -1)

    def expire(self, now: int) -> None:
        """Nobody came for these."""
        while self._ends and self._ends[0][0] < now:
            end, number = heappop(self._ends)
            promise = self._live.get(number)
            if promise is not None and promise.back + GRACE == end:
                self.drop(promise)

    def void(self, model: str) -> None:
        """Its limits have changed: what was told by the old ones is worth nothing."""
        for promise in [each for each in self._live.values() if each.model == model]:
            self.drop(promise)
        self._soon.pop(model, None)

    def is_for_another(self, key: str, estimate: int, subset: str) -> bool:
        """Whether something else was promised under this key."""
        keyed = self._keyed.get(key)
        return keyed is not None and (keyed.estimate, keyed.subset) != (estimate, subset)

    def _hold(self, promise: Promise, sign: int) -> None:
        callers, tokens = self.held(promise.model)
        self._held[promise.model] = Held(callers + sign, tokens + sign * promise.estimate)
        by, soon = self._soon.get(promise.model, _Soon())
        if promise.due <= by:
            self._soon[promise.model] = _Soon(by, soon + sign * promise.estimate)

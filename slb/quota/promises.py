"""What callers were told: come back then, and so many tokens and a slot of this model are kept for you.

A caller that comes back is known by its idempotency key; without one by its estimate and the models it named,
since callers that ask for the same may stand in for each other. Nobody else gets what is promised, however small
their request: this is what keeps large requests from starving. A promise nobody comes for ends a little after it
was due.
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
    """`due` in milliseconds; `number` is its own; `subset`: the models that would do, as text; `key` may be
    empty; `for_slot`: it is a slot that was waited for, and not tokens."""

    due: int
    number: int
    model: str
    estimate: int
    subset: str
    key: str
    for_slot: bool


class Held(NamedTuple):
    """What is promised of one model, to so many callers."""

    callers: int = 0
    tokens: int = 0


class Promises:
    """Those that stand."""

    def __init__(self) -> None:
        self._numbers = 0
        self._live: dict[int, Promise] = {}
        self._keyed: dict[str, Promise] = {}
        self._alike: defaultdict[tuple[int, str], list[Promise]] = defaultdict(list)  # each by due
        self._ends: list[tuple[int, int]] = []
        self._held: dict[str, Held] = {}
        self._dues: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self._live)

    def held(self, model: str) -> Held:
        """What is promised of `model`."""
        return self._held.get(model, Held())

    def due_by(self, model: str, at: int) -> int:
        """How many come for `model` by then."""
        return bisect_left(self._dues[model], (at + 1,))

    def last_due(self, model: str) -> int:
        """When the last comes; 0 where nobody does."""
        return self._dues[model][-1][0] if self._dues[model] else 0

    def make(self, due: int, model: str, estimate: int, subset: str, key: str, for_slot: bool) -> None:
        """Promise it."""
        self._numbers += 1
        promise = Promise(due, self._numbers, model, estimate, subset, key, for_slot)
        self._live[promise.number] = promise
        if key:
            self._keyed[key] = promise
        else:
            insort(self._alike[estimate, subset], promise)
        insort(self._dues[model], (due, promise.number))
        heappush(self._ends, (due + GRACE, promise.number))
        self._hold(promise, 1)

    def find(self, now: int, estimate: int, subset: str, key: str) -> Promise | None:
        """The promise whoever asks for this comes for."""
        if key:
            keyed = self._keyed.get(key)
            return keyed if keyed and (keyed.estimate, keyed.subset) == (estimate, subset) else None
        alike = self._alike.get((estimate, subset))
        return alike[0] if alike and alike[0].due <= now + EARLY else None

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
            del alike[bisect_left(alike, promise)]
            if not alike:
                del self._alike[promise.estimate, promise.subset]
        self._hold(promise, -1)

    def expire(self, now: int) -> None:
        """Nobody came for these."""
        while self._ends and self._ends[0][0] < now:
            promise = self._live.get(heappop(self._ends)[1])
            if promise is not None:
                self.drop(promise)

    def void(self, model: str) -> None:
        """Its limits have changed: what was told by the old ones is worth nothing."""
        for promise in [each for each in self._live.values() if each.model == model]:
            self.drop(promise)

    def is_for_another(self, key: str, estimate: int, subset: str) -> bool:
        """Whether something else was promised under this key."""
        keyed = self._keyed.get(key)
        return keyed is not None and (keyed.estimate, keyed.subset) != (estimate, subset)

    def _hold(self, promise: Promise, sign: int) -> None:
        callers, tokens = self.held(promise.model)
        self._held[promise.model] = Held(callers + sign, tokens + sign * promise.estimate)

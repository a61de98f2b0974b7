"""Callers of the quota router, in simulated time: each has one request after another, and keeps its waits."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from slb.quota.script import decision_of
from slb.quotas import Admitted, Limits, Rules, Wait
from tests.redis.conftest import Maker
from tests.redis.quota_scheduler import complete_ask, schedule_ask

Size = Callable[[Random], int]
Duration = Callable[[Random], int]

STEP = 10
"""Milliseconds: what comes within so many is asked together. So callers are late by up to as much."""


@dataclass
class _Caller:
    """Its request, from the first ask on: how large, since when, and how often it came back after its wait; `task`:
    what it runs. `number`: of whose request it is."""

    number: int = 0
    key: str = ""
    size: int = 0
    since: int = 0
    tries: int = 0
    task: Admitted | None = None


class World:
    """`size` draws an estimate, `duration` the milliseconds of a call, which comes to `spent` times its estimate.
    `kept` of those that had `tried_again` were admitted on their first try after a wait, from `counts_from` on; one
    that came back for the rest of its wait has not yet. `without`: the longest that any caller went without
    being admitted; `used`: milliseconds that slots were in use; `begun`: how many requests of each caller were
    admitted; `ended`: when the last call did. With `once` a caller has one request only, and all come together."""

    def __init__(
        self,
        make: Maker,
        models: Mapping[str, Limits],
        size: Size,
        duration: Duration,
        keyed: bool = True,
        rules: Rules | None = None,
        seed: int = 6,
        spent: float | None = None,
        once: bool = False,
    ) -> None:
        self.rng = Random(seed)
        self.scheduler = make(models, rules)
        self.models = dict(models)
        self.admitted: list[tuple[int, str, int]] = []
        self.tried_again = self.kept = 0
        self.most_running: Counter[str] = Counter()
        self.waited: dict[int, list[int]] = {}
        self.counts_from = self.without = self.used = 0
        self._until = 0
        self._running: Counter[str] = Counter()
        self._size, self._duration, self._keyed = size, duration, keyed
        self._spent = spent
        self._once = once
        self.begun: Counter[int] = Counter()
        self.ended = 0
        self._numbers = count()
        self._due: list[tuple[int, int, _Caller]] = []

    def run(self, callers: int, seconds: int) -> None:
        """From the start."""
        self._until = 1000 * seconds
        for number in range(callers):
            self._at(self.rng.randrange(STEP if self._once else 1000), _Caller(number))
        while self._due and self._due[0][0] < self._until:
            now = -(-self._due[0][0] // STEP) * STEP
            coming = []
            while self._due and self._due[0][0] <= now:
                coming.append(heappop(self._due)[2])
            self._step(now, coming)
        waiting = [self._until - each.since for _, _, each in self._due if each.size and each.task is None]
        self.without = max(self.without, *waiting, 0)

    def rate(self, model: str, seconds: tuple[int, int]) -> float:
        """What was admitted between these, as a share of the limit."""
        first, last = seconds
        tokens = sum(size for at, name, size in self.admitted if name == model and first <= at / 1000 < last)
        return tokens / (last - first) * 60 / self.models[model].max_tokens_per_minute

    def share(self, model: str) -> float:
        """Of all tokens admitted."""
        sizes = [(name, size) for _, name, size in self.admitted]
        return sum(size for name, size in sizes if name == model) / sum(size for _, size in sizes)

    def mean_wait(self, size: int) -> float:
        """Milliseconds."""
        return sum(self.waited[size]) / len(self.waited[size])

    def most_in_a_minute(self, model: str, since: int = 0) -> int:
        """Tokens admitted, as estimated, in the fullest window of 60 s that begins at that second or later."""
        taken = [(at, size) for at, name, size in self.admitted if name == model and at >= 1000 * since]
        first = tokens = most = 0
        for at, size in taken:
            tokens += size
            while taken[first][0] <= at - 60_000:
                tokens -= taken[first][1]
                first += 1
            most = max(most, tokens)
        return most

    def _at(self, when: int, caller: _Caller) -> None:
        heappush(self._due, (when, next(self._numbers), caller))

    def _step(self, now: int, coming: list[_Caller]) -> None:
        """Callers whose call is done report that, and ask anew a little later; the others ask."""
        asking = [caller for caller in coming if caller.task is None]
        asks = [self._done(now, caller, caller.task) for caller in coming if caller.task is not None]
        done = len(asks)
        asks += [self._ask(now, caller) for caller in asking]
        replies = self.scheduler.ask(now, *asks)
        for caller, reply in zip(asking, replies[done:], strict=True):
            decision = decision_of(reply)
            assert isinstance(decision, Admitted | Wait)
            self._wait(now, caller, decision)

    def _done(self, now: int, caller: _Caller, task: Admitted) -> list[Any]:
        self._running[task.model] -= 1
        self.ended = now
        if not self._once:
            self._at(now + self.rng.randint(1, 5), _Caller(caller.number))
        return complete_ask(task.task, None if self._spent is None else round(caller.size * self._spent))

    def _ask(self, now: int, caller: _Caller) -> list[Any]:
        if not caller.size:
            caller.key, caller.size, caller.since = f"k{next(self._numbers)}", self._size(self.rng), now
        key, jitter = caller.key if self._keyed else "", self.rng.randrange(1001)
        return schedule_ask(f"t{next(self._numbers)}", caller.size, None, key, jitter)

    def _wait(self, now: int, caller: _Caller, decision: Admitted | Wait) -> None:
        counts = caller.tries == 1 and now >= self.counts_from
        self.tried_again += counts
        self.kept += counts and isinstance(decision, Admitted)
        if isinstance(decision, Wait):
            is_whole_wait = decision.ms < 0.9 * self.scheduler.rules.longest_wait
            caller.tries += is_whole_wait or caller.tries > 0
            self._at(now + decision.ms + self.rng.randint(1, 5), caller)
            return
        model = decision.model
        self.waited.setdefault(caller.size, []).append(now - caller.since)
        self.admitted.append((now, model, caller.size))
        self.begun[caller.number] += 1
        self._running[model] += 1
        self.most_running[model] = max(self.most_running[model], self._running[model])
        self.without = max(self.without, now - caller.since)
        caller.task = decision
        duration = self._duration(self.rng)
        self.used += min(duration, self._until - now)
        self._at(now + duration, caller)

"""Callers of a scheduler, in simulated time: each has one request after another, and obeys what it is told."""

from collections import Counter
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from itertools import count
from random import Random

from slb.quota.scheduler import Scheduler
from slb.quotas import Admitted, Limits, Rules, Wait

Size = Callable[[Random], int]
Duration = Callable[[Random], int]


class World:
    """`size` draws an estimate, `duration` the milliseconds of a call. A caller is up to `late` milliseconds late,
    and tells that a call came to `spent` times its estimate.
    `kept` of those who had `tried_again` were admitted on their first try after a wait, from `counts_from` on; who
    was told to come back only to be told the rest has not yet. `without`: the longest that any caller went without
    being admitted; `used`: milliseconds that slots were in use."""

    def __init__(
        self,
        models: Mapping[str, Limits],
        size: Size,
        duration: Duration,
        keyed: bool = True,
        late: int = 5,
        rules: Rules | None = None,
        seed: int = 6,
        spent: float | None = None,
    ) -> None:
        self.rng = Random(seed)
        self.scheduler = Scheduler(models, rules)
        self.models = dict(models)
        self.admitted: list[tuple[int, str, int]] = []
        self.tried_again = self.kept = 0
        self.most_running: Counter[str] = Counter()
        self.waited: dict[int, list[int]] = {}
        self.counts_from = self.without = self.used = 0
        self._since: dict[str, int] = {}
        self._until = 0
        self._running: Counter[str] = Counter()
        self._size, self._duration, self._keyed, self._late = size, duration, keyed, late
        self._spent = spent
        self._numbers = count()
        self._due: list[tuple[int, int, Callable[[int], None]]] = []

    def run(self, callers: int, seconds: int) -> None:
        """From the start."""
        self._until = 1000 * seconds
        for _ in range(callers):
            self._at(self.rng.randrange(1000), self._ask_anew)
        for second in range(seconds):
            self._at(1000 * second, lambda now: None)
        while self._due[0][0] < self._until:
            now, _, act = heappop(self._due)
            self.scheduler.advance(now)
            act(now)
        self.without = max(self.without, *(self._until - since for since in self._since.values()), 0)

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

    def most_in_a_minute(self, model: str) -> int:
        """Tokens admitted in the fullest window of 60 s."""
        taken = [(at, size) for at, name, size in self.admitted if name == model]
        first = tokens = most = 0
        for at, size in taken:
            tokens += size
            while taken[first][0] <= at - 60_000:
                tokens -= taken[first][1]
                first += 1
            most = max(most, tokens)
        return most

    def _at(self, when: int, act: Callable[[int], None]) -> None:
        heappush(self._due, (when, next(self._numbers), act))

    def _ask_anew(self, now: int) -> None:
        who = f"k{next(self._numbers)}"
        self._since[who] = now
        self._ask(now, now, self._size(self.rng), who, 0)

    def _ask(self, now: int, since: int, size: int, who: str, tries: int) -> None:
        task, key = f"t{next(self._numbers)}", who if self._keyed else ""
        decision = self.scheduler.schedule(now, task, size, key=key, jitter=self.rng.randrange(1001))
        counts = tries == 1 and now >= self.counts_from
        self.tried_again += counts
        self.kept += counts and isinstance(decision, Admitted)
        lateness = self.rng.randint(1, self._late)
        if isinstance(decision, Wait):
            is_told_all = decision.ms < 0.9 * self.scheduler.rules.longest_wait
            tries += is_told_all or tries > 0
            self._at(now + decision.ms + lateness, lambda then: self._ask(then, since, size, who, tries))
            return
        assert isinstance(decision, Admitted)
        self.waited.setdefault(size, []).append(now - since)
        self.admitted.append((now, decision.model, size))
        self._running[decision.model] += 1
        self.most_running[decision.model] = max(self.most_running[decision.model], self._running[decision.model])
        self.without = max(self.without, now - self._since.pop(who))
        duration = self._duration(self.rng)
        self.used += min(duration, self._until - now)
        self._at(now + duration, lambda then: self._done(then, decision, size))

    def _done(self, now: int, task: Admitted, size: int) -> None:
        self._running[task.model] -= 1
        self.scheduler.complete(now, task.task, None if self._spent is None else round(size * self._spent))
        self._at(now + self.rng.randint(1, self._late), self._ask_anew)

"""What one instance admits by itself while Redis is away: an equal part of each limit, by the number of instances
last known. First come, first served, without places and weights; estimates are not settled."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from slb.quotas import Admitted, Decision, Denied, Limits, Rules, TaskState, Wait, too_large

REASON = "redis_down"
NO_SHARE = "no_local_share"  # this instance's part of a limit is nothing, or less than what is asked for

AWAY_WAIT = 1_000  # milliseconds of the wait that a caller gets while Redis is away; up to a tenth is added

_UNIT = 60_000  # tokens are counted in parts so small that a token a minute is one part a millisecond


@dataclass(slots=True)
class _Part:
    """This instance's part of one model: `tokens` in the bucket at `at`, and tasks that run."""

    limits: Limits
    at: int
    tokens: int = 0
    running: int = 0

    def refill(self, now: int) -> None:
        most = self.limits.bucket * _UNIT
        self.tokens = min(most, self.tokens + (now - self.at) * self.limits.max_tokens_per_minute)
        self.at = now

    def has_room(self, estimate: int) -> bool:
        return self.running < self.limits.max_concurrent_requests and self.tokens >= estimate * _UNIT


@dataclass(frozen=True, slots=True)
class _Task:
    """`lapses`: at so many milliseconds. `models`: the acceptable ones; None for all."""

    model: str
    estimate: int
    models: Sequence[str] | None
    key: str
    lapses: int


class LocalShare:
    """`clock`: milliseconds, monotonic. Buckets begin empty: the shared ones may have been used up."""

    def __init__(self, rules: Rules, clock: Callable[[], int], instances: Callable[[], int]) -> None:
        self._rules = rules
        self._clock = clock
        self._instances = instances
        self._is_alone = False
        self._whole: dict[str, Limits] = {}
        self._parts: dict[str, _Part] = {}
        self._running: dict[str, _Task] = {}  # the one whose lease lapses first stands first
        self._ended: dict[str, tuple[TaskState, int]] = {}  # in the order of their ends
        self._keys: dict[str, str] = {}

    def follow(self, models: Iterable[tuple[str, Limits]]) -> None:
        """Use these models and limits, the last ones that were read, while Redis is away."""
        if self._is_alone:
            return
        self._is_alone = True
        now, parts = self._clock(), max(1, self._instances())
        self._whole = dict(models)
        self._parts = {name: _Part(limits.share(parts), now) for name, limits in self._whole.items()}
        for task in self._running.values():
            if task.model in self._parts:
                self._parts[task.model].running += 1

    def advance(self, is_alone: bool) -> None:
        """To be called every second: lapses leases, and forgets what ended long ago."""
        self._is_alone = self._is_alone and is_alone
        now = self._clock()
        for task in list(takewhile(lambda task: self._running[task].lapses <= now, self._running)):
            self._end(task, "abandoned")
        for task in list(takewhile(lambda task: self._ended[task][1] <= now - self._rules.kept, self._ended)):
            del self._ended[task]

    def schedule(self, task: str, estimate: int, models: Sequence[str] | None, key: str, jitter: int) -> Decision:
        """Admit it as `task` where a slot and tokens are free; else a wait. `jitter`: random, 0 to 1000."""
        if again := self._again(estimate, models, key):
            return again
        away = AWAY_WAIT + AWAY_WAIT * jitter // 10_000
        named = self._whole.keys() if models is None else set(models)
        if not named or named - self._whole.keys():
            return Wait(away, REASON)  # it may be there where there is Redis
        fitting = [name for name in named if estimate <= self._whole[name].bucket]
        if not fitting:
            return too_large({name: self._whole[name] for name in named})
        if all(self._whole[name].paused for name in fitting):
            return Wait(away, "paused")
        if not (usable := self._usable(fitting, estimate)):
            return Wait(away, NO_SHARE)
        ready = [name for name, part in usable.items() if part.has_room(estimate)]
        if not ready:
            return Wait(away, REASON)
        model = max(sorted(ready), key=lambda name: usable[name].tokens / usable[name].limits.bucket)
        return self._admit(task, _Task(model, estimate, models, key, self._clock() + self._rules.lease))

    def _again(self, estimate: int, models: Sequence[str] | None, key: str) -> Decision | None:
        task = self._keys.get(key)
        if task is None:
            return None
        known = self._running[task]
        is_same = (known.estimate, _names(known.models)) == (estimate, _names(models))
        return Admitted(known.model, task) if is_same else Denied("idempotency_mismatch")

    def _usable(self, names: Iterable[str], estimate: int) -> dict[str, _Part]:
        usable = {name: part for name in names if not (part := self._parts[name]).limits.paused}
        for part in usable.values():
            part.refill(self._clock())
        return {name: part for name, part in usable.items() if estimate <= part.limits.bucket}

    def _admit(self, task: str, known: _Task) -> Admitted:
        part = self._parts[known.model]
        part.tokens -= known.estimate * _UNIT
        part.running += 1
        self._running[task] = known
        if known.key:
            self._keys[known.key] = task
        return Admitted(known.model, task)

    def has(self, task: str) -> bool:
        return task in self._running or task in self._ended

    def complete(self, task: str) -> TaskState | None:
        """The task's state. Its slot is free; its tokens stay taken as estimated."""
        if task in self._running:
            self._end(task, "completed")
        return self._state(task)

    def heartbeat(self, task: str) -> TaskState | None:
        """The task's state. A running one gets a new lease."""
        if known := self._running.pop(task, None):
            self._running[task] = replace(known, lapses=self._clock() + self._rules.lease)
        return self._state(task)

    def _state(self, task: str) -> TaskState | None:
        return "running" if task in self._running else self._ended.get(task, (None,))[0]

    def _end(self, task: str, state: TaskState) -> None:
        known = self._running.pop(task)
        self._ended[task] = state, self._clock()
        self._keys.pop(known.key, None)
        if part := self._parts.get(known.model):
            part.running -= 1


def _names(models: Sequence[str] | None) -> frozenset[str] | None:
    return None if models is None else frozenset(models)

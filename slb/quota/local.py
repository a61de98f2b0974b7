"""What one instance admits by itself while Redis is away: its share of each limit, one of as many parts as there
were instances when Redis was last heard of."""

from collections.abc import Callable, Sequence
from uuid import uuid4

from slb.quota.scheduler import Rules, Scheduler
from slb.quotas import MOST_TOKENS, Decision, Denied, Limits, TaskState, Wait

REASON = "redis_down"
AWAY_WAIT = 1_000
"""Milliseconds a caller is told to wait while Redis is away."""

_PASSING = ("estimate_exceeds_limit", "no_models")


class LocalShare:
    """`clock` in milliseconds, never going back. Its buckets are empty when it begins: what the shared ones held
    may have been used already."""

    def __init__(self, rules: Rules, clock: Callable[[], int], instances: Callable[[], int]) -> None:
        self._clock = clock
        self._instances = instances
        self._scheduler = Scheduler({}, rules, clock())
        self._is_alone = False
        self._largest = 0

    def follow(self, models: Sequence[tuple[str, Limits]]) -> None:
        """Redis is away: what holds from now on, as it was last known."""
        if self._is_alone:
            return
        self._is_alone = True
        now, parts = self._clock(), max(1, self._instances())
        for model in self._scheduler.limits().keys() - dict(models).keys():
            self._scheduler.delete(now, model)
        for model, limits in models:
            self._scheduler.put(now, model, limits.share(parts))
        self._scheduler.empty()
        self._largest = max((limits.bucket for _, limits in models), default=MOST_TOKENS)

    def advance(self, is_alone: bool) -> None:
        """Every second: leases lapse here too."""
        self._is_alone = self._is_alone and is_alone
        self._scheduler.advance(self._clock())

    def schedule(self, estimate: int, models: Sequence[str] | None, key: str, jitter: int) -> Decision:
        """As `Scheduler.schedule`; but what is only too large for a share, or not known here, has to wait for
        Redis, and every wait says so."""
        task = f"tsk_local_{uuid4().hex}"
        decision = self._scheduler.schedule(self._clock(), task, estimate, models, key, jitter)
        if isinstance(decision, Wait):
            return decision._replace(reason=decision.reason or REASON)
        if isinstance(decision, Denied) and estimate <= self._largest and decision.reason in _PASSING:
            return Wait(AWAY_WAIT, REASON)
        return decision

    def knows(self, task: str) -> bool:
        """Whether it was admitted here."""
        return self._scheduler.knows(task)

    def complete(self, task: str, actual: int | None) -> TaskState | None:
        """As `Scheduler.complete`."""
        return self._scheduler.complete(self._clock(), task, actual)

    def heartbeat(self, task: str) -> TaskState | None:
        """As `Scheduler.heartbeat`."""
        return self._scheduler.heartbeat(self._clock(), task)

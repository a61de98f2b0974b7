"""What one instance admits by itself while Redis is away: its share of each limit, one of as many parts as there
were instances when Redis was last heard of."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from slb.quota.scheduler import Rules, Scheduler
from slb.quotas import TOO_LARGE, Decision, Denied, Limits, TaskState, Wait, too_large

REASON = "redis_down"
NO_SHARE = "no_local_share"
"""Redis is away, and this instance's part of a limit is nothing, or less than what is asked for."""

AWAY_WAIT = 1_000
"""Milliseconds a caller is told to wait while Redis is away."""

LONGEST_ALONE = 5_000
"""Milliseconds a caller is told at most by one instance alone; it keeps its place. Redis may be back at any moment,
and then it should not sleep through it."""

_UNKNOWN = ("no_models", "unknown_model")


def is_unknown(decision: Decision) -> bool:
    """Whether it is of models that may be there where there is Redis, and what it had."""
    return isinstance(decision, Denied) and decision.reason in _UNKNOWN


class LocalShare:
    """`clock` in milliseconds, never going back. Its buckets are empty when it begins: what the shared ones held
    may have been used already."""

    def __init__(self, rules: Rules, clock: Callable[[], int], instances: Callable[[], int]) -> None:
        self._clock = clock
        self._instances = instances
        short = replace(rules, longest_wait=min(rules.longest_wait, LONGEST_ALONE))
        self._scheduler = Scheduler({}, short, clock())
        self._is_alone = False
        self._whole: dict[str, Limits] = {}

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
        self._whole = dict(models)

    def advance(self, is_alone: bool) -> None:
        """Every second: leases lapse here too."""
        self._is_alone = self._is_alone and is_alone
        self._scheduler.advance(self._clock())

    def schedule(self, task: str, estimate: int, models: Sequence[str] | None, key: str, jitter: int) -> Decision:
        """As `Scheduler.schedule`; but what is only too large for a share, or not known here, has to wait for
        Redis, and every wait says so."""
        decision = self._scheduler.schedule(self._clock(), task, estimate, models, key, jitter)
        away = AWAY_WAIT + AWAY_WAIT * jitter // 10_000
        if isinstance(decision, Wait) and decision.reason == "":
            return Wait(decision.ms, REASON)
        if is_unknown(decision):
            return Wait(away, REASON)
        if isinstance(decision, Wait) or (isinstance(decision, Denied) and decision.reason == TOO_LARGE):
            return self._for_want_of_a_share(estimate, models or list(self._whole), away)
        return decision

    def _for_want_of_a_share(self, estimate: int, models: Sequence[str], away: int) -> Decision:
        """What somebody is told whom no model takes here, but may elsewhere."""
        fitting = [self._whole[name] for name in models if estimate <= self._whole[name].bucket]
        if any(not each.paused for each in fitting):
            return Wait(away, NO_SHARE)
        return Wait(away, "paused") if fitting else too_large({name: self._whole[name] for name in models})

    def knows(self, task: str) -> bool:
        """Whether it was admitted here."""
        return self._scheduler.knows(task)

    def complete(self, task: str, actual: int | None) -> TaskState | None:
        """As `Scheduler.complete`."""
        return self._scheduler.complete(self._clock(), task, actual)

    def heartbeat(self, task: str) -> TaskState | None:
        """As `Scheduler.heartbeat`."""
        return self._scheduler.heartbeat(self._clock(), task)

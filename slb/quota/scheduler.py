"""Who may call which model now, and how long the others wait: weighted deficit round robin over what token buckets
and slots allow. Pure: times come in as milliseconds and never go back, jitter and task ids from outside.

Its twin `control/lua/quota.lua` decides the same in Redis, for all instances at once; a property test holds them
together. What was changed against the seed, and why, stands in docs/quota.md.

A model can take a request when it has a slot and tokens for it beyond what is promised to others. Where several
can, each is given its weight, round by round, until one has saved up the estimate; among those that have, the next
in turn takes it. Models that cannot take it save too, but no more than a bucket: so shares follow the weights as
far as limits allow, and no further.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from slb.quota.advice import Decided, Window, advice
from slb.quota.bucket import Bucket
from slb.quota.promises import EARLY, Promises
from slb.quota.tasks import Task, Tasks
from slb.quota.waiting import Ask, Model, Places, shortest
from slb.quotas import (
    Abandoned,
    Admitted,
    Advice,
    Decision,
    Denied,
    Limits,
    ModelState,
    Rules,
    TaskState,
    Wait,
    too_large,
)

PAUSED_WAIT = 1_000
AWAY = 5_000
"""Milliseconds without any call after which leases may have lapsed for want of a router that could renew them; half
a lease where that is less."""


class Scheduler:
    """All models; every method first takes up what has happened by `now`."""

    def __init__(
        self, models: Mapping[str, Limits] | None = None, rules: Rules | None = None, now: int = 0
    ) -> None:
        self.rules = rules or Rules()
        self._now = now
        self._spare_until = now + self.rules.lease
        self._models: dict[str, Model] = {}
        self._cursor = ""
        self._tasks = Tasks()
        self._promises = Promises()
        self._places = Places(self._promises, self.rules.longest_wait)
        self._window = Window()
        for model, limits in (models or {}).items():
            self.put(now, model, limits)

    # -- models

    def put(self, now: int, model: str, limits: Limits) -> None:
        """Let these hold from the next decision on; what is in flight stays, even over a lower limit."""
        self.advance(now)
        known = self._models.get(model)
        if known is None:
            bucket = Bucket(limits.max_tokens_per_minute, limits.bucket, self._now)
            self._models[model] = Model(model, limits, bucket)
            self._models = dict(sorted(self._models.items()))
            return
        if replace(known.limits, weight=limits.weight) != limits or known.gone:  # a weight moves nobody's place
            self._void(known)
        known.limits, known.gone = limits, 0
        known.bucket.resize(limits.max_tokens_per_minute, limits.bucket)
        known.save(0)

    def delete(self, now: int, model: str) -> bool:
        """Whether it was there. Its tasks may still be completed."""
        self.advance(now)
        known = self._models.get(model)
        if known is None or known.gone:
            return False
        known.gone = max(1, self._now)
        self._void(known)
        return True

    def _void(self, model: Model) -> None:
        self._promises.void(model.name)
        model.head = 0

    def empty(self) -> None:
        """Nothing is left in any bucket."""
        for model in self._models.values():
            model.bucket.level = min(0, model.bucket.level)

    def knows(self, task: str) -> bool:
        """Whether it was admitted here, and is not forgotten."""
        return task in self._tasks

    def limits(self) -> dict[str, Limits]:
        """Of all models."""
        return {name: model.limits for name, model in self._models.items() if not model.gone}

    def models(self, now: int) -> list[ModelState]:
        """All, by name."""
        self.advance(now)
        return [self._shown(name, model) for name, model in self._models.items() if not model.gone]

    def _shown(self, name: str, model: Model) -> ModelState:
        callers, tokens = self._promises.held(name)
        level, minute = model.bucket.level / 60_000, model.bucket.minute
        return ModelState(name, model.limits, len(model.running), level, model.deficit, tokens, callers, minute)

    def learned(self, model: str) -> tuple[int, ...]:
        """How long its slots are held, how long one is kept, its bucket's margin, how many tasks were seen, when
        the last comes of those who found no slot, and what tasks had estimated and came to."""
        known = self._models[model]
        holding, bucket = known.holding, known.bucket
        return (
            holding.long,
            holding.stretch,
            bucket.margin,
            holding.seen,
            known.head,
            bucket.estimated,
            bucket.spent,
        )

    # -- decisions

    def schedule(
        self,
        now: int,
        task: str,
        estimate: int,
        models: Iterable[str] | None = None,
        key: str = "",
        jitter: int = 0,
    ) -> Decision:
        """Admit it as `task`, or say how long to wait. `models`: those that will do (None: all). `key`: who asks
        again with it gets the answer it has not heard, and the place it was promised. `jitter`: 0 to 1000, at
        random."""
        self.advance(now)
        named = sorted(set(models)) if models is not None else None
        subset = ",".join(named or ())
        if again := self._again(key, estimate, subset):
            return again
        usable = self._usable(named, estimate, jitter)
        if isinstance(usable, Denied | Wait):
            return self._counted(usable)
        promise = self._promises.find(self._now, estimate, subset, key)
        of, is_due = self._models, promise is not None and promise.due <= self._now + EARLY
        lacks = {name: self._places.lack(self._now, of[name], estimate, promise) for name in usable}
        ready = [name for name in usable if lacks[name].ms == 0]
        if promise and is_due:
            of[promise.model].came_back(promise, bool(ready))
        if ready:
            if promise:
                self._promises.drop(promise)
            return self._counted(self._admit(self._pick(ready, estimate), task, estimate, key, subset))
        if promise and not is_due:
            return self._counted(self._places.rest(self._now, promise, of[promise.model], jitter))
        if promise:
            self._promises.drop(promise)
        name, ask = shortest(lacks, self._cursor), Ask(estimate, subset, key, jitter)
        return self._counted(self._places.give(self._now, of[name], lacks[name], ask, promise))

    def _again(self, key: str, estimate: int, subset: str) -> Admitted | Denied | None:
        """What somebody is told whose key has a task that runs, or stands for something else."""
        task = self._tasks.of_key(key)
        known = self._tasks.get(task) if task is not None else None
        if task is None or known is None:
            is_other = self._promises.is_for_another(key, estimate, subset)
            return Denied("idempotency_mismatch") if is_other else None
        is_same = (known.estimate, known.subset) == (estimate, subset)
        return Admitted(known.model, task) if is_same else Denied("idempotency_mismatch")

    def _usable(self, named: Sequence[str] | None, estimate: int, jitter: int) -> list[str] | Denied | Wait:
        there = [name for name, model in self._models.items() if not model.gone]
        if unknown := set(named or ()) - set(there):
            return Denied("unknown_model", min(unknown))
        asked = [name for name in there if named is None or name in named]
        if not asked:
            return Denied("no_models")
        large = [name for name in asked if estimate <= self._models[name].limits.bucket]
        if not large:
            return too_large({name: self._models[name].limits for name in asked})
        usable = [name for name in large if not self._models[name].limits.paused]
        return usable or Wait(PAUSED_WAIT + PAUSED_WAIT * jitter // 10_000, "paused")

    def _pick(self, ready: Sequence[str], estimate: int) -> str:
        """Rounds are given until one of `ready` has saved the estimate; the first of those, from the one that was
        served last."""
        of = self._models
        rounds = min(max(0, -(-(estimate - of[name].deficit) // of[name].limits.weight)) for name in ready)
        if rounds:
            for model in of.values():
                if not model.limits.paused and not model.gone:
                    model.save(rounds * model.limits.weight)
        rich = [name for name in ready if of[name].deficit >= estimate]
        return next((name for name in rich if name >= self._cursor), rich[0])

    def _admit(self, name: str, task: str, estimate: int, key: str, subset: str) -> Admitted:
        model = self._models[name]
        self._cursor = name
        model.deficit -= estimate
        model.bucket.take(estimate)
        model.running[task] = self._now
        lapses = self._now + self.rules.lease
        self._tasks.begin(task, Task(name, estimate, self._now, key, subset, lapses))
        return Admitted(name, task)

    def _counted(self, decision: Decision) -> Decision:
        if isinstance(decision, Admitted):
            self._window.admitted(self._now)
        elif isinstance(decision, Wait):
            self._window.told_to_wait(self._now, decision.ms)
        return decision

    # -- tasks

    def complete(self, now: int, task: str, actual: int | None = None) -> TaskState | None:
        """What it is now; None where it was never admitted, or is forgotten. `actual` tokens settle the estimate.
        Only a running one changes anything."""
        self.advance(now)
        known = self._tasks.get(task)
        if known is None or known.state != "running":
            return known.state if known else None
        model = self._end(task, known, "completed")
        model.holding.saw(self._now - known.at)
        if actual is not None:
            model.save(known.estimate - actual)
            if actual <= known.estimate:
                model.bucket.give_back(known.estimate - actual, known.at)
            else:
                actual = known.estimate + model.bucket.charge(actual - known.estimate, known.at)
            model.bucket.settled(known.estimate, actual)
        return known.state

    def heartbeat(self, now: int, task: str) -> TaskState | None:
        """What it is; its lease is renewed where it runs."""
        self.advance(now)
        known = self._tasks.get(task)
        if known is not None and known.state == "running":
            self._tasks.renew(task, self._now + self.rules.lease)
        return known.state if known else None

    def abandoned(self, now: int) -> list[Abandoned]:
        """What was reclaimed in the last hour, the oldest first."""
        self.advance(now)
        return [
            Abandoned(task, each.model, each.estimate, each.ended, each.key)
            for task, each in self._tasks.ended()
            if each.state == "abandoned"
        ]

    def advice(self, now: int) -> Advice:
        """How many callers would do."""
        return advice(self.decided(now), *self.occupied(now))

    def decided(self, now: int) -> Decided:
        """In the last minute."""
        self.advance(now)
        return self._window.total(self._now)

    def occupied(self, now: int) -> tuple[int, int]:
        """How many requests are in flight, and how many all models together take that are not paused."""
        self.advance(now)
        in_flight = sum(len(model.running) for model in self._models.values())
        return in_flight, sum(each.max_concurrent_requests for each in self.limits().values() if not each.paused)

    def advance(self, now: int) -> list[str]:
        """Refill, reclaim what has lapsed, forget what is over; the reclaimed tasks. Call it every second where
        nothing else is called: after a longer silence nobody is reclaimed for one lease."""
        before, self._now = self._now, max(now, self._now)
        if self._now - before > min(AWAY, self.rules.lease // 2):
            self._spare_until = self._now + self.rules.lease
        if self._now > before:
            for model in self._models.values():
                model.bucket.refill(self._now)
            self._promises.expire(self._now)
            self._tasks.forget(self._now - self.rules.kept)
        reclaimed = self._reclaim() if self._now >= self._spare_until else []
        for name in [name for name, model in self._models.items() if model.is_over(self._now - self.rules.kept)]:
            del self._models[name]
        return reclaimed

    def _reclaim(self) -> list[str]:
        reclaimed = []
        for task, known in self._tasks.lapsed(self._now):
            model = self._end(task, known, "abandoned")
            model.bucket.give_back(known.estimate, known.at)
            model.save(known.estimate)
            reclaimed.append(task)
        return reclaimed

    def _end(self, task: str, known: Task, state: TaskState) -> Model:
        self._tasks.end(task, state, self._now)
        model = self._models[known.model]
        del model.running[task]
        return model

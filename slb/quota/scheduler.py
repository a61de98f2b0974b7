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
from dataclasses import dataclass, field

from slb.quota.advice import Decided, Window, advice
from slb.quota.bucket import Bucket
from slb.quota.holding import Holding
from slb.quota.promises import EARLY, Promise, Promises
from slb.quota.tasks import Task, Tasks
from slb.quotas import Abandoned, Admitted, Advice, Decision, Denied, Limits, ModelState, TaskState, Wait

TICK = 100
"""Milliseconds: waits end on whole ones of these."""

FLOOR = 50
"""Milliseconds: nobody is told to come back sooner."""

LEEWAY = 20
"""Milliseconds by which tokens may be late for who comes when told: callers are not on time to the millisecond, and
what a full bucket cannot hold while one is late it would lack for the next."""

PAUSED_WAIT = 1_000
MOST_PROMISES = 10_000
AWAY = 5_000
"""Milliseconds without any call after which leases may have lapsed for want of a router that could renew them; half
a lease where that is less."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Milliseconds. `lease`: how long a task lives without a heartbeat; `longest_wait`: what a caller is told at
    most, but for jitter; `kept`: how long it is known what became of a task."""

    lease: int = 150_000
    longest_wait: int = 300_000
    kept: int = 3_600_000


@dataclass
class _Model:
    limits: Limits
    bucket: Bucket
    deficit: int = 0
    holding: Holding = field(default_factory=Holding)
    running: dict[str, int] = field(default_factory=dict)
    """task -> when it was admitted, the oldest first."""
    gone: int = 0
    """When it was deleted, 0 where it was not. What it has running is known on, and its bucket until it is full
    and nothing of the last minute counts any more; or for an hour."""

    def is_over(self, before: int) -> bool:
        """Whether it is gone, and setting it anew would let nobody have more than setting it again."""
        return self.gone > 0 and not self.running and (self.gone <= before or self.bucket.is_unused)

    def kept(self) -> int:
        """For how long before somebody is due a slot is kept for them."""
        return self.holding.kept(self.limits.max_concurrent_requests)

    def came_back(self, promise: Promise, found_room: bool) -> None:
        """Somebody who was told when there would be room."""
        if promise.for_slot:
            self.holding.came_back(found_room, self.limits.max_concurrent_requests)
        else:
            self.bucket.came_back(promise.estimate, found_room)

    def wait_for_slot(self, behind: int, now: int) -> int:
        """Milliseconds, for who comes after somebody who will be there in `behind`."""
        oldest = now - next(iter(self.running.values()), now)
        return self.holding.wait(self.limits.max_concurrent_requests, behind, oldest)

    def save(self, tokens: int) -> None:
        """Credit, or with a minus debt, of at most one bucket."""
        most = self.limits.bucket
        self.deficit = max(-most, min(most, self.deficit + tokens))


class Scheduler:
    """All models; every method first takes up what has happened by `now`."""

    def __init__(
        self, models: Mapping[str, Limits] | None = None, rules: Rules | None = None, now: int = 0
    ) -> None:
        self.rules = rules or Rules()
        self._now = now
        self._spare_until = now + self.rules.lease
        self._models: dict[str, _Model] = {}
        self._cursor = ""
        self._tasks = Tasks()
        self._promises = Promises()
        self._window = Window()
        for model, limits in (models or {}).items():
            self.put(now, model, limits)

    # -- models

    def put(self, now: int, model: str, limits: Limits) -> None:
        """Let these hold from the next decision on; what is in flight stays, even over a lower limit."""
        self.advance(now)
        known = self._models.get(model)
        if known is None:
            self._models[model] = _Model(limits, Bucket(limits.max_tokens_per_minute, limits.bucket, self._now))
            self._models = dict(sorted(self._models.items()))
            return
        if known.limits != limits or known.gone:
            self._promises.void(model)
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
        self._promises.void(model)
        return True

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

    def _shown(self, name: str, model: _Model) -> ModelState:
        callers, tokens = self._promises.held(name)
        level, minute = model.bucket.level / 60_000, model.bucket.minute
        return ModelState(name, model.limits, len(model.running), level, model.deficit, tokens, callers, minute)

    def learned(self, model: str) -> tuple[int, int, int]:
        """How long its slots are held, how far those who wait for one are apart, and the margin of its bucket."""
        holding = self._models[model].holding
        return holding.long, holding.stretch, self._models[model].bucket.margin

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
        waits = {name: self._wait(name, estimate, promise) for name in usable}
        ready = [name for name in usable if max(waits[name]) == 0]
        if promise and promise.due <= self._now + EARLY:
            self._models[promise.model].came_back(promise, bool(ready))
        if ready:
            if promise:
                self._promises.drop(promise)
            return self._counted(self._admit(self._pick(ready, estimate), task, estimate, key, subset))
        if promise and promise.due > self._now + EARLY:  # it came back early: nothing has changed
            return self._counted(Wait(max(FLOOR, promise.due - self._now)))
        if promise:
            self._promises.drop(promise)
        return self._counted(self._promise(usable, waits, estimate, subset, key, jitter))

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
        if named is not None and not set(named) <= set(there):
            return Denied("unknown_model")
        asked = [name for name in there if named is None or name in named]
        if not asked:
            return Denied("no_models")
        large = [name for name in asked if estimate <= self._models[name].limits.bucket]
        if not large:
            return Denied("estimate_exceeds_limit")
        usable = [name for name in large if not self._models[name].limits.paused]
        return usable or Wait(PAUSED_WAIT + PAUSED_WAIT * jitter // 10_000, "paused")

    def _wait(self, name: str, estimate: int, promise: Promise | None) -> tuple[int, int]:
        """Milliseconds until there are tokens, and until there is a slot. What is promised to others goes first,
        unless one's own promise is due."""
        model = self._models[name]
        limits, promises = model.limits, self._promises
        tokens, leeway = promises.held(name).tokens, 0
        taken, behind = (
            len(model.running) + promises.due_by(name, self._now + model.kept()),
            promises.last_due(name),
        )
        if promise and promise.model == name:
            if promise.due <= self._now + EARLY:
                tokens, leeway, taken = 0, LEEWAY, len(model.running)
            else:
                tokens -= estimate
                taken -= int(promise.due <= self._now + model.kept())
        for_tokens = model.bucket.wait(estimate, tokens, leeway)
        if taken < limits.max_concurrent_requests:
            return for_tokens, 0
        return for_tokens, model.wait_for_slot(max(0, behind - self._now), self._now)

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

    def _promise(
        self,
        usable: Sequence[str],
        waits: Mapping[str, tuple[int, int]],
        estimate: int,
        subset: str,
        key: str,
        jitter: int,
    ) -> Wait:
        """Later than what is needed by up to a tenth, never sooner; and by no more than a quarter of the time the
        bucket could still fill in, since what it cannot hold is lost."""
        turns = [name for name in usable if name >= self._cursor] + [name for name in usable if name < self._cursor]
        name = min(turns, key=lambda each: max(waits[each]))
        for_tokens, for_slot = waits[name]
        base = min(max(for_tokens, for_slot), self.rules.longest_wait)
        extra = base * jitter // 10_000
        is_promised = base == max(for_tokens, for_slot) and len(self._promises) < MOST_PROMISES
        if is_promised and for_tokens >= for_slot:
            bucket = self._models[name].bucket
            extra = min(extra, (bucket.cap - estimate * 60_000) // bucket.limit // 4)
        due = -(-(self._now + base + extra) // TICK) * TICK
        if due - self._now < FLOOR:
            due += TICK
        if is_promised:
            self._promises.make(due, name, estimate, subset, key, for_slot > for_tokens)
        return Wait(due - self._now)

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
                model.bucket.charge(actual - known.estimate, known.at)
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

    def _end(self, task: str, known: Task, state: TaskState) -> _Model:
        self._tasks.end(task, state, self._now)
        model = self._models[known.model]
        del model.running[task]
        return model

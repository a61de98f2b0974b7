"""How long somebody has to wait, and the place they are given meanwhile. Milliseconds and whole numbers, as in Lua.

A place is a promise of tokens and a slot for a moment. Whoever would have to wait for longer than callers may be
told comes back sooner, is told the rest, and keeps their place.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from slb.quota.bucket import UNIT, Bucket
from slb.quota.holding import Holding
from slb.quota.promises import EARLY, Promise, Promises
from slb.quotas import Limits, Wait

TICK = 100
"""Milliseconds: waits end on whole ones of these."""

FLOOR = 50
"""Milliseconds: nobody is told to come back sooner."""

LEEWAY = 20
"""Milliseconds by which tokens may be late for who comes when told: callers are not on time to the millisecond, and
what a full bucket cannot hold while one is late it would lack for the next."""

MOST_PROMISES = 10_000
MOST_NAMELESS = 5_000
"""Callers without a key that do not wait as told leave room for those that have one."""

FARTHEST = 86_400_000
"""Milliseconds: nothing is promised for later than in a day."""


class Ask(NamedTuple):
    """What somebody asks for. `subset`: the models that would do, as text; `key` may be empty; `jitter`: 0 to 1000,
    at random."""

    estimate: int
    subset: str
    key: str
    jitter: int


class Lack(NamedTuple):
    """Milliseconds until there are tokens, and until there is a slot; `apart`: those of the latter between whoever
    comes before and this one."""

    tokens: int
    slot: int
    apart: int

    @property
    def ms(self) -> int:
        """Until there is both."""
        return max(self.tokens, self.slot)


@dataclass
class Model:
    """One model, and what it has running."""

    name: str
    limits: Limits
    bucket: Bucket
    deficit: int = 0
    holding: Holding = field(default_factory=Holding)
    running: dict[str, int] = field(default_factory=dict)
    """task -> when it was admitted, the oldest first."""
    head: int = 0
    """When the last comes of those who found no slot when they were told to."""
    gone: int = 0
    """When it was deleted, 0 where it was not. What it has running is known on, and its bucket until it is full
    and nothing of the last minute counts any more; or for an hour."""

    def is_over(self, before: int) -> bool:
        """Whether it is gone, and setting it anew would let nobody have more than setting it again."""
        return self.gone > 0 and not self.running and (self.gone <= before or self.bucket.is_unused)

    @property
    def slots(self) -> int:
        """How many there are."""
        return self.limits.max_concurrent_requests

    def kept(self) -> int:
        """For how long before somebody is due a slot is kept for them."""
        return self.holding.kept(self.slots)

    def apart(self, now: int) -> int:
        """Milliseconds between two who wait for a slot."""
        return self.holding.apart(self.slots, oldest=now - next(iter(self.running.values()), now))

    def came_back(self, promise: Promise, found_room: bool) -> None:
        """Somebody who was told when there would be room."""
        if promise.kept:
            self.holding.came_back(found_room, self.slots, promise.kept)
        else:
            self.bucket.came_back(promise.estimate, found_room)

    def save(self, tokens: int) -> None:
        """Credit, or with a minus debt, of at most one bucket."""
        most = self.limits.bucket
        self.deficit = max(-most, min(most, self.deficit + tokens))


class Places:
    """All that are given. `longest`: milliseconds a caller is told to wait at most."""

    def __init__(self, promises: Promises, longest: int) -> None:
        self._promises = promises
        self._longest = longest

    def lack(self, now: int, model: Model, estimate: int, promise: Promise | None) -> Lack:
        """Of this model. What is promised to others goes first, unless one's own promise is due."""
        own = promise if promise and promise.model == model.name else None
        if own and own.due <= now + EARLY:
            is_full = len(model.running) >= model.slots
            return Lack(model.bucket.wait(estimate, 0, LEEWAY), *self._slot(now, model, is_full, own.kept > 0))
        is_taken = self._is_taken(now, model, own)
        return Lack(self._tokens(now, model, estimate, own), *self._slot(now, model, is_taken))

    def _tokens(self, now: int, model: Model, estimate: int, own: Promise | None) -> int:
        """Whoever has to wait comes after all that wait already. But what is there nobody has to wait for, unless
        it is needed for those who come before a bucket would be full again anyway."""
        bucket, promises = model.bucket, self._promises
        wait = bucket.wait(estimate, promises.held(model.name).tokens - (estimate if own else 0))
        if wait and bucket.level >= estimate * UNIT:
            by = now + bucket.fills_in
            soon = promises.soon(model.name, by) - (estimate if own and own.due <= by else 0)
            return wait if bucket.wait(estimate, soon) else 0
        return wait

    def _is_taken(self, now: int, model: Model, own: Promise | None) -> bool:
        """Whether every slot is in use, or kept for who will be there soon."""
        soon = now + model.kept()
        others = self._promises.due_by(model.name, soon) - int(own is not None and own.due <= soon)
        return len(model.running) + others >= model.slots

    def _slot(self, now: int, model: Model, is_taken: bool, is_overdue: bool = False) -> tuple[int, int]:
        """Until there is one, and after whoever comes before. Who came when told and found none goes before all but
        those to whom the same has happened."""
        if not is_taken:
            return 0, 0
        if is_overdue and model.kept():
            return max(0, model.head - now) + model.kept(), model.kept()
        apart = model.apart(now)
        return max(0, self._promises.last_due(model.name) - now) + apart, apart

    def give(self, now: int, model: Model, lack: Lack, ask: Ask, overdue: Promise | None) -> Wait:
        """Later than what is needed by up to a tenth, never sooner; and by no more than a quarter of the time the
        bucket could still fill in, since what it cannot hold is lost, or of the time between two who wait for a
        slot, which would stand empty. `overdue`: the place they had until now."""
        for_slot = lack.slot > lack.tokens
        most = lack.apart if for_slot else (model.bucket.cap - ask.estimate * UNIT) // model.bucket.limit
        due = _tick(now, now + lack.ms + min(lack.ms * ask.jitter // 10_000, most // 4))
        back = self._back(now, due, ask.jitter)
        if lack.ms <= FARTHEST and len(self._promises) < (MOST_PROMISES if ask.key else MOST_NAMELESS):
            kept = max(1, model.kept()) if for_slot else 0
            if kept and overdue and overdue.kept and overdue.model == model.name:
                model.head = due
            self._promises.make(due, back, model.name, ask.estimate, ask.subset, ask.key, kept)
        return Wait(back - now)

    def rest(self, now: int, promise: Promise, model: Model, jitter: int) -> Wait:
        """What somebody is told who comes before their place is due: nothing has changed. But who came only to be
        told the rest may find that those before them have gone, or take less than was thought."""
        due = promise.due
        if promise.back < due:
            due = min(due, self._sooner(now, promise, model))
        back = self._back(now, due, jitter)
        if (due, back) != (promise.due, promise.back):
            self._promises.change(promise, due, back)
        return Wait(max(FLOOR, back - now))

    def _sooner(self, now: int, promise: Promise, model: Model) -> int:
        """When it would be due by how many there are before it now. What each of them takes is not looked up, so a
        quarter of the tokens is added."""
        before = self._promises.before(promise)
        callers, tokens = self._promises.held(model.name)
        wait = model.bucket.wait(promise.estimate, tokens // callers * before) * 5 // 4
        if promise.kept:
            wait = max(wait, (before + 1) * model.apart(now))
        return _tick(now, now + wait)

    def _back(self, now: int, due: int, jitter: int) -> int:
        """When to come: then, or where that is too long, sooner by up to a tenth of the longest wait, so that not
        all who are told it come at once."""
        if due - now <= self._longest:
            return due
        return (now + self._longest - self._longest * jitter // 10_000) // TICK * TICK


def shortest(lacks: Mapping[str, Lack], cursor: str) -> str:
    """The model that can take it first; of several the next in turn."""
    turns = [name for name in lacks if name >= cursor] + [name for name in lacks if name < cursor]
    return min(turns, key=lambda name: lacks[name].ms)


def _tick(now: int, at: int) -> int:
    """The first tick from then on that is not too soon."""
    due = -(-at // TICK) * TICK
    return due if due - now >= FLOOR else due + TICK

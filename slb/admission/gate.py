"""Where a request waits for its slot. Redis decides for the whole fleet; while it is slow or gone, this instance
does."""

import asyncio
from collections.abc import Callable, Container, Sequence
from operator import attrgetter
from random import Random
from typing import cast

from slb.admission.candidates import RouteCandidates, renewed
from slb.admission.entry import Entry, Lease, Wait, Waiter, is_patient
from slb.admission.local_pool import LocalPool
from slb.admission.pool_mode import PoolMode
from slb.admission.shown import Mode
from slb.admission.waits import Waits
from slb.balance.asking import Ask, Candidate, Turn
from slb.balance.upstream import LiveUpstream
from slb.control.batch import Seen
from slb.control.lane import Lane
from slb.errors import NO_UPSTREAM, POOL_SATURATED, QUEUE_FULL, QUEUE_TIMEOUT, SLOTS_UNKNOWN
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror
from slb.routing.table import Route

LaneMaker = Callable[[str, Callable[[Sequence[Ask]], None]], Lane]

_REASONS = {
    reason.name: reason for reason in (POOL_SATURATED, QUEUE_FULL, QUEUE_TIMEOUT, SLOTS_UNKNOWN, NO_UPSTREAM)
}
_DETAILS = {
    "pool_saturated": "all upstreams of {} have as many requests in flight as they may",
    "queue_full": "as many requests wait for {} as may",
    "queue_timeout": "no upstream of {} became free in time",
    "slots_unknown": "Redis does not tell in time which slots of {} are free",
    "no_upstream": "{} has no upstream that takes requests",
}

_member = attrgetter("member")

_NEWS = 0.05
"""Seconds for which is believed that only jobs wait: so long at most a request waits that has come meanwhile."""


class Gate:
    """Of one pool. `instances`: how many share its capacity. Either `lane` decides, for Redis, or `local`.
    `waiting`: how many requests queue, by route and class; `oldest` of such a place: seconds; `seen`: by route the
    last local decision."""

    def __init__(
        self,
        pool: str,
        make_lane: LaneMaker,
        mirror: Mirror,
        metrics: Metrics,
        instances: Callable[[], int],
        rng: Random,
    ) -> None:
        self.pool = pool
        self._mirror = mirror
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self.candidates = RouteCandidates(rng)
        self._waits = Waits(metrics, self._timed_out, self._impatient)
        self.waiting = self._waits.queued
        self.oldest = self._waits.oldest
        self.lane = make_lane(pool, self._lane_changed)
        self.local = LocalPool(
            self.lane.held, lambda: max(self.lane.epochs.holders, instances()), rng.randrange(1 << 16)
        )
        self._arrivals = 0
        self._mode = PoolMode(pool, self.lane)
        self.seen: dict[str, Seen] = {}

    # -- for the exchange

    def enter(
        self,
        route: Route,
        avoided: tuple[LiveUpstream, ...],
        deprioritized: tuple[LiveUpstream, ...],
        turn: Turn | None,
        waiter: Waiter,
        key: bytes = b"",
        earlier: Entry | None = None,
        probed: tuple[LiveUpstream, ...] = (),
    ) -> Entry:
        """Ask for a slot of an upstream that serves and is not `avoided`, nor `probed` (another request tries it);
        of a `deprioritized` one only where no other has room. `key`: for the policy. `earlier`: the entry of the
        request's last attempt. The answer may come before this returns."""
        route = self._mirror.table.routes.get(route.path, route)  # at a second attempt it may be another by now
        deprioritized = tuple(each for each in route.serving if each in deprioritized) if deprioritized else ()
        probed = tuple(each for each in route.serving if each in probed) if probed else ()
        candidates = serving = self.candidates.of(route)
        ordered = route.settings.policy != "least_inflight"
        if ordered:
            candidates = self.candidates.ordered(route, avoided, deprioritized, key, probed)
        avoid = tuple(map(_member, (*avoided, *probed))) if avoided or probed else ()
        reluctant = tuple(map(_member, deprioritized)) if deprioritized else ()
        self._arrivals += 1
        now = self._loop.time()
        wait = Wait(now, route.settings.queue_timeout)
        patient = is_patient(route.settings, turn)
        entry = Entry(
            self, route, waiter, candidates, avoid, reluctant, ordered, turn, self._arrivals, wait, patient
        )
        if earlier is not None:
            entry.follow(earlier)
        if len(avoid) >= len(candidates) and {each.member for each in candidates}.issubset(avoid):
            self.refused(entry, NO_UPSTREAM.name)
        else:
            self._bring(entry, serving)
        return entry

    def leave(self, entry: Entry) -> None:
        """The request has ended."""
        if entry.waiter is not None:
            self._waits.end(entry)
            (self.local if entry.is_here else self.lane).leave(entry)

    def release(self, member: str) -> None:
        """A slot is free again."""
        self.lane.release(member)
        if len(self.local):
            self.local.freed()

    def may_keep(self, route: Route, member: str) -> bool:
        """Whether a slot of `member` may go over from a job of this route to the next, without being given back:
        the upstream serves yet, and Redis has said a moment ago, or is about to say, that only jobs wait there."""
        state = self.lane.state
        is_news = self.lane.in_flight or self._loop.time() < state.told + _NEWS
        return state.is_shared and is_news and state.others <= 0 and self.candidates.has(route, member)

    def take(self, member: str) -> None:
        """A slot is in use that nobody has asked for: it counts all the same, also above the cap."""
        self.lane.held[member] += 1
        self.lane.send_all()

    def refresh(self) -> None:
        """Apply what has changed in their routes to waiting requests."""
        for path in {path for path, _ in self.waiting} | self.lane.unanswered():
            route = self._mirror.table.routes.get(path)
            candidates = self.candidates.of(route) if route is not None else ()
            self.lane.view(path, candidates)
            self.local.views(path, candidates)
            self.lane.dismiss(path, candidates)

    def keep_views(self, views: Container[str]) -> None:
        """Forget all other routes."""
        self.lane.keep_views(views)
        self.candidates.keep(views)
        for kept in (self.lane.explained.seen, self.seen):
            for view in [view for view in kept if view not in views]:
                del kept[view]

    @property
    def mode(self) -> Mode:
        """What decides: Redis, or this instance alone."""
        return self._mode.now

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held or waits, in Redis either."""
        return self.lane.is_idle and not self.waiting

    # -- where it is decided

    def _bring(self, entry: Entry, serving: tuple[Candidate, ...]) -> None:
        lane = self.lane
        if lane.takes(entry):
            entry.is_here = False
            if entry.patient and entry.wait.timer is None:
                self._waits.bound(entry, lane.timing)
            lane.view(entry.view, serving)
            lane.ask(entry)
        else:
            self._decide_here(entry)

    def _decide_here(self, entry: Entry) -> None:
        """Redis does not answer in time: `when_unsure` of the route decides."""
        settings = entry.route.settings
        if settings.max_inflight and settings.when_unsure == "refuse":
            self.refused(entry, SLOTS_UNKNOWN.name)
            return
        entry.is_here = True
        self._metrics.ledger.local_decisions += 1
        self.seen[entry.view] = Seen(entry, dict(self.lane.held), self._loop.time())
        self.local.ask(entry)

    def _impatient(self, entry: Entry) -> None:
        """Redis answers other requests, but not this one: under a cap this instance must not decide."""
        entry.wait.timer, entry.patient = None, False
        self.lane.leave(entry)
        if entry.route.settings.max_inflight:
            self.refused(entry, SLOTS_UNKNOWN.name)
        else:
            self._decide_here(entry)

    def _lane_changed(self, undecided: Sequence[Ask]) -> None:
        self._mode.log()
        for ask in (*self.local.drain_waiting(), *undecided):
            self._bring_again(cast("Entry", ask))

    def _granted_here(self, entry: Entry) -> None:
        """A slot given without Redis may be one above the cap, so it is counted."""
        self.lane.send_all()  # a batch in flight that names all held slots lacks this one
        if entry.route.settings.max_inflight:
            self._metrics.ledger.local_grants += 1
            self._mode.count_unsure()

    def _bring_again(self, entry: Entry) -> None:
        """With the candidates its route has now: an upstream that has left could be granted again and again."""
        route = self._mirror.table.routes.get(entry.view)
        candidates = self.candidates.of(route) if route is not None else ()
        if route is None or {each.member for each in candidates}.issubset(entry.avoid):
            self.refused(entry, NO_UPSTREAM.name)
            return
        entry.candidates = renewed(entry.candidates, candidates) if entry.ordered else candidates
        entry.route = route
        self._bring(entry, candidates)

    # -- answers

    def granted(self, entry: Entry, member: str) -> None:
        if entry.is_here:
            self._granted_here(entry)
        waiter, upstream = entry.waiter, self._mirror.upstream(member)
        if waiter is None:
            self.release(member)
            return
        if upstream is None:  # it has left while this one waited
            self.release(member)
            self._bring_again(entry)
            return
        queued = self._waits.end(entry)
        # The next attempt of a request that was granted at once goes before all that have queued since: number_of
        # in ledger.lua leaves a number free for it.
        entry.number = entry.number or self.lane.state.number + 1
        entry.chosen = member
        if queued is not None:
            self._metrics.queue.wait[entry.view].observe(queued)
        waiter.admitted(Lease(upstream, entry))

    def refused(self, entry: Entry, reason: str) -> None:
        waiter = entry.waiter
        if waiter is not None:
            self._waits.end(entry)
            self._explain(entry)
            entry.reason = reason
            self._metrics.queue.shed[reason, entry.view] += 1
            waiter.rejected(_REASONS[reason], _DETAILS[reason].format(entry.view))

    def queued(self, entry: Entry, position: int, number: int) -> None:
        """It waits; maybe not for the first time, where the queue has moved between Redis and here."""
        entry.number = number or entry.number
        self._explain(entry)
        self._waits.queue(entry, position, self.lane.timing)

    def _explain(self, entry: Entry) -> None:
        """It has something to tell: keep what Redis found last, where it was not asked for this one."""
        if entry.scores is None and not entry.is_here and (seen := self.lane.explained.seen.get(entry.view)):
            entry.scores = seen.ask.scores

    def _timed_out(self, entry: Entry) -> None:
        if entry.waiter is not None:
            (self.local if entry.is_here else self.lane).leave(entry)
            self.refused(entry, QUEUE_TIMEOUT.name)

"""Where a request waits for its slot. Redis decides for the whole fleet; while it is slow or gone, this instance
does, by what it holds itself."""

import asyncio
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from operator import attrgetter
from random import Random
from typing import NamedTuple, cast

import structlog

from slb.admission.entry import Entry, Lease, Waiter
from slb.admission.local_pool import LocalPool
from slb.admission.shown import Mode
from slb.balance.asking import Ask, Candidate, Turn
from slb.balance.order import second_choices
from slb.balance.upstream import LiveUpstream
from slb.balance.view import RouteView
from slb.control.batch import Seen
from slb.control.lane import Lane
from slb.errors import NO_UPSTREAM, POOL_SATURATED, QUEUE_FULL, QUEUE_TIMEOUT, SLOTS_UNKNOWN
from slb.observe.metrics import Metrics
from slb.observe.seldom import Seldom
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

_TELL_EVERY = 1.0
"""Seconds between two log lines of a pool on what was decided without Redis: it may be late many times a second."""

_member = attrgetter("member")

_log = structlog.get_logger()


class _Known(NamedTuple):
    """A route's candidates, as they were when it had this view. `of`: by member."""

    view: RouteView
    candidates: tuple[Candidate, ...]
    of: Mapping[str, Candidate]


class Gate:
    """One pool's. `instances`: how many share its capacity, as far as is known. `seen`: by view the last decision
    made here."""

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
        self._candidates: dict[str, _Known] = {}
        self.waiting: Counter[tuple[str, str]] = Counter()
        self.lane = make_lane(pool, self._lane_changed)
        self._local = LocalPool(
            self.lane.held, lambda: max(self.lane.epochs.holders, instances()), rng.randrange(1 << 16)
        )
        self._rng = rng
        self._arrivals = 0
        self._mode: Mode = "shared"
        self._unsure = Seldom(_TELL_EVERY, self._tell_unsure)
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
    ) -> Entry:
        """Ask for a slot of one of those that serve: of none to be `avoided`, and of one that is `deprioritized`
        only where no other has room. `key`: what the policy goes by, if it does. `earlier`: that of the request's
        last attempt, whose place and time to wait this one has. The answer may come before this returns."""
        route = self._mirror.table.routes.get(route.path, route)  # at a second attempt it may be another by now
        deprioritized = tuple(each for each in route.serving if each in deprioritized) if deprioritized else ()
        candidates = serving = self.candidates(route)
        ordered = route.settings.policy != "least_inflight"
        if ordered:
            of = self._candidates[route.path].of
            ranked = (*self._ranked(route, deprioritized, avoided, key), *deprioritized)
            candidates = tuple(map(of.__getitem__, map(_member, ranked)))
        avoid = tuple(map(_member, avoided)) if avoided else ()
        reluctant = tuple(map(_member, deprioritized)) if deprioritized else ()
        self._arrivals += 1
        arrival, now = self._arrivals, self._loop.time()
        entry = Entry(self, route, waiter, candidates, avoid, reluctant, ordered, turn, arrival, now)
        if earlier is not None:
            entry.follow(earlier)
        if len(avoid) >= len(candidates) and {each.member for each in candidates}.issubset(avoid):
            self.refused(entry, NO_UPSTREAM.name)
        else:
            self._bring(entry, serving)
        return entry

    def _ranked(
        self, route: Route, without: tuple[LiveUpstream, ...], avoided: tuple[LiveUpstream, ...], key: bytes
    ) -> Sequence[LiveUpstream]:
        """By the policy; at a further attempt only by a key: any other turn is another request's."""
        if avoided and not key:
            return second_choices(route.view.left(without), self._rng)
        return route.policy.order(route.view, key, without or None)

    def leave(self, entry: Entry) -> None:
        """Its request has ended before it was answered."""
        if entry.waiter is not None:
            self._decided(entry)
            (self._local if entry.is_here else self.lane).leave(entry)

    def release(self, member: str) -> None:
        """A slot is free again."""
        self.lane.release(member)
        if len(self._local):
            self._local.freed()

    def candidates(self, route: Route) -> tuple[Candidate, ...]:
        """Those of a route, the same object while nothing changes."""
        known = self._candidates.get(route.path)
        if known is not None and known.view is route.view:
            return known.candidates
        cap = route.settings.max_inflight
        made = tuple(Candidate(each.member, cap * each.spec.slots, each.spec.slots) for each in route.serving)
        if known is not None and made == known.candidates:
            made = known.candidates
        self._candidates[route.path] = _Known(route.view, made, {each.member: each for each in made})
        return made

    def serving(self, routes: Mapping[str, Route]) -> set[str]:
        """The candidates of all routes of this pool that have asked here, as they are now."""
        asked = [routes[path] for path in self._candidates if path in routes]
        ours = [each for each in asked if each.is_counted and (each.settings.pool or each.path) == self.pool]
        return {upstream.member for route in ours for upstream in route.serving}

    def refresh(self) -> None:
        """Let waiting requests follow what has become of their routes."""
        for path in {path for path, _ in self.waiting} | self.lane.unanswered():
            route = self._mirror.table.routes.get(path)
            candidates = self.candidates(route) if route is not None else ()
            self.lane.view(path, candidates)
            self._local.views(path, candidates)
            self.lane.dismiss(path, candidates)

    def last_seen(self, view: str) -> Seen | None:
        """The last decision of a route that is still known, made here or by Redis."""
        found = [seen[view] for seen in (self.lane.explained.seen, self.seen) if view in seen]
        return max(found, key=lambda each: each.at, default=None)

    def keep_views(self, views: Container[str]) -> None:
        """What was kept of all routes but these goes: of those that are none any more, or of other pools by now."""
        self.lane.keep_views(views)
        for kept in (self.lane.explained.seen, self.seen, self._candidates):
            for view in [view for view in kept if view not in views]:
                del kept[view]

    @property
    def mode(self) -> Mode:
        """What decides: Redis, or this instance alone."""
        lane = self.lane
        if not lane.state.ready:
            return "local"
        if lane.settling:
            return "settling"
        return "late" if lane.state.late else "shared"

    def capacity_here(self, candidate: Candidate) -> int:
        """What this instance may use of it while Redis does not decide; 0 for any number."""
        return self._local.capacity(candidate)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held, nothing waits, and Redis knows it."""
        return self.lane.is_idle and not self.waiting

    # -- where it is decided

    def _bring(self, entry: Entry, serving: tuple[Candidate, ...]) -> None:
        """`serving`: its route's candidates."""
        lane = self.lane
        if lane.takes(entry):
            entry.is_here = False
            if entry.patient and entry.timer is None:
                self._bound(entry)
            lane.view(entry.view, serving)
            lane.ask(entry)
        else:
            self._decide_here(entry)

    def _decide_here(self, entry: Entry) -> None:
        """Redis does not tell in time: what becomes of it is its route's choice."""
        settings = entry.route.settings
        if settings.max_inflight and settings.when_unsure == "refuse":
            self.refused(entry, SLOTS_UNKNOWN.name)
            return
        entry.is_here = True
        self._metrics.local_decisions += 1
        self.seen[entry.view] = Seen(entry, dict(self.lane.held), self._loop.time())
        self._local.ask(entry)

    def _bound(self, entry: Entry) -> None:
        """It waits for its answer no longer than it may: in the queue, or for a Redis that is not silent."""
        timing = self.lane.timing
        patience = timing.settle + timing.silence
        wait, then = (entry.left, self._timed_out) if entry.turn else (patience, self._impatient)
        left = entry.arrived + wait - self._loop.time()
        entry.timer = self._loop.call_later(max(left, 0.0), then, entry)

    def _impatient(self, entry: Entry) -> None:
        """Redis answers still, but not this one: under a cap it is not for this instance to decide."""
        entry.timer, entry.patient = None, False
        self.lane.leave(entry)
        if entry.route.settings.max_inflight:
            self.refused(entry, SLOTS_UNKNOWN.name)
        else:
            self._decide_here(entry)

    def _lane_changed(self, undecided: Sequence[Ask]) -> None:
        self._tell_mode()
        for ask in (*self._local.drain_waiting(), *undecided):
            self._bring_again(cast("Entry", ask))

    def _tell_mode(self) -> None:
        """That it is late is logged where it decides a request: those that wait do not notice."""
        lane, before = self.lane, self._mode
        now = self._mode = self.mode
        if now == "local" and before != now:
            _log.warning("ledger_local", pool=self.pool, error=lane.state.error)
        elif now == "settling" and before != now:
            _log.warning("ledger_settling", pool=self.pool, holders=lane.epochs.holders)
        elif before in ("local", "settling") and now not in (before, "settling"):
            _log.info("ledger_shared", pool=self.pool)
        if before == "settling" and lane.state.ready and not lane.settling and lane.epochs.unheard:
            _log.warning("ledger_unheard", pool=self.pool, holders=lane.epochs.unheard)

    def _granted_here(self, entry: Entry) -> None:
        """It may be one more than the cap."""
        self.lane.say_all()  # a batch in flight that has all it held does not have this
        if entry.route.settings.max_inflight:
            self._metrics.local_grants += 1
            if self.lane.state.ready:
                self._unsure.count(self.mode)

    def _tell_unsure(self, grants: int, mode: Mode) -> None:
        _log.warning("ledger_unsure", pool=self.pool, mode=mode, local_grants=grants)

    def _bring_again(self, entry: Entry) -> None:
        """With the candidates its route has by now: one that has left would be granted for ever."""
        route = self._mirror.table.routes.get(entry.view)
        left = {each.member: each for each in self.candidates(route)} if route is not None else {}
        if route is None or left.keys() <= set(entry.avoid):
            self.refused(entry, NO_UPSTREAM.name)
            return
        known = [left.pop(each.member) for each in entry.candidates if each.member in left] if entry.ordered else []
        entry.candidates = (*known, *left.values()) if entry.ordered else self.candidates(route)
        entry.route = route
        self._bring(entry, self.candidates(route))

    # -- answers

    def granted(self, entry: Entry, member: str) -> None:
        """The ledger, or this instance in its place, has given it a slot, which counts as held from now on."""
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
        queued, before = entry.queues, entry.waited
        self._decided(entry)
        # One that was granted at once comes, if it comes again, before all that have queued since: number_of in
        # ledger.lua leaves the room.
        entry.number = entry.number or self.lane.state.number + 1
        entry.chosen = member
        if queued:
            self._metrics.queue_wait[entry.view].observe(entry.waited - before)
        waiter.admitted(Lease(upstream, entry))

    def refused(self, entry: Entry, reason: str) -> None:
        """There is no slot for it."""
        waiter = entry.waiter
        if waiter is not None:
            self._decided(entry)
            entry.reason = reason
            self._metrics.shed[reason] += 1
            waiter.rejected(_REASONS[reason], _DETAILS[reason].format(entry.view))

    def queued(self, entry: Entry, position: int, number: int) -> None:
        """It waits; at first, or anew where the queue has moved between Redis and here."""
        entry.number = number or entry.number
        if entry.waiter is None or entry.queues or entry.turn is None:
            return
        entry.queues = True
        if entry.position is None:
            entry.position = position
            self._metrics.queue_positions[entry.view].update(count=1, sum=position)
        self.waiting[entry.view, entry.turn.priority] += 1
        if entry.timer is None:
            self._bound(entry)

    def _timed_out(self, entry: Entry) -> None:
        if entry.waiter is not None:
            (self._local if entry.is_here else self.lane).leave(entry)
            self.refused(entry, QUEUE_TIMEOUT.name)

    def _decided(self, entry: Entry) -> None:
        entry.waiter = None
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None
        passed = self._loop.time() - entry.arrived
        entry.left -= passed
        if entry.queues and entry.turn is not None:
            entry.queues = False
            entry.waited += passed
            place = entry.view, entry.turn.priority
            self.waiting[place] -= 1
            if not self.waiting[place]:
                del self.waiting[place]

"""Why a route's last request went to its upstream."""

from collections.abc import Callable
from operator import attrgetter
from typing import Literal

from slb.admission.entry import Entry
from slb.admission.gate import Gate
from slb.admission.gates import Gates
from slb.admission.route_now import route_now
from slb.admission.shown import Decision, MemberDecision, RouteNow, Verdict
from slb.balance.asking import Candidate
from slb.balance.eligible import why_out
from slb.balance.upstream import LiveUpstream
from slb.control.batch import Seen
from slb.routing.mirror import Mirror
from slb.routing.table import Route

_DECIMALS = 3
"""Of seconds that are shown: milliseconds."""


def last_seen(gate: Gate, path: str) -> Seen | None:
    """The last decision of a route, by Redis or by this instance; None where none is kept."""
    found = [seen[path] for seen in (gate.lane.explained.seen, gate.seen) if path in seen]
    return max(found, key=lambda each: each.at, default=None)


class Explainer:
    """`clock`: the event loop's."""

    def __init__(self, gates: Gates, mirror: Mirror, clock: Callable[[], float]) -> None:
        self._gates = gates
        self._mirror = mirror
        self._clock = clock

    def explain(self, path: str) -> Decision | None:
        """The last decision of the route `path`; None where there is no such route, or no decision yet."""
        route = self._mirror.table.routes.get(path)
        if route is None:
            return None
        if not route.is_counted:
            return self._by_policy(route)
        gate = self._gates.known(route.settings.pool or path)
        seen = last_seen(gate, path) if gate is not None else None
        if gate is None or seen is None or not isinstance(seen.ask, Entry):
            return None
        capacity = gate.local.capacity if seen.ask.is_here else attrgetter("capacity")
        return self._by_slot(route, seen.ask, seen, capacity)

    def now(self, path: str, key: bytes) -> RouteNow | None:
        """What a request of `path` (in normal form) would find at this process now; `key`: where its route goes by
        one. None where no route takes it."""
        route = self._mirror.table.match(path)
        return None if route is None else route_now(self._gates, route, key, self._clock())

    def _by_policy(self, route: Route) -> Decision:
        """Picks are not recorded: this is what the next pick goes by."""
        members = [
            MemberDecision(member=each.member, score=each.inflight, capacity=0, verdict=self._standing(route, each))
            for each in route.members
        ]
        return Decision(
            decided_by="policy",
            policy=route.settings.policy,
            seconds_ago=None,
            outcome=None,
            chosen=None,
            reason=None,
            priority=None,
            position=None,
            waited=0.0,
            members=members,
        )

    def _standing(self, route: Route, upstream: LiveUpstream) -> Verdict:
        fades = route.view.fading_until and upstream.seen + route.settings.fade_in > self._clock()
        if fades and upstream in route.serving:
            return "fading"
        return "eligible" if upstream in route.serving else _why_out(route, upstream)

    def _by_slot(self, route: Route, entry: Entry, seen: Seen, capacity: Callable[[Candidate], int]) -> Decision:
        now = self._clock()
        wait = entry.wait
        waited = wait.waited + (now - wait.arrived if wait.queued else 0.0)
        return Decision(
            decided_by="here" if entry.is_here else "redis",
            policy=route.settings.policy,
            seconds_ago=round(max(now - seen.at, 0.0), _DECIMALS),
            outcome=_outcome(entry),
            chosen=entry.chosen or None,
            reason=entry.reason or None,
            priority=entry.turn.priority if entry.turn is not None and wait.position is not None else None,
            position=wait.position,
            waited=round(waited, _DECIMALS),
            members=_Verdicts(route, entry, seen, capacity).of_all(),
        )


class _Verdicts:
    """Of the members of a route, at one decision."""

    def __init__(self, route: Route, entry: Entry, seen: Seen, capacity: Callable[[Candidate], int]) -> None:
        self._route = route
        self._entry = entry
        self._scores = seen.scores or {}
        self._recorded = seen.scores is not None
        self._candidates = {each.member: each for each in entry.candidates}
        self._capacity = capacity
        chosen = self._candidates.get(entry.chosen)
        self._load = self._scores.get(chosen.member, 0) / chosen.slots if chosen is not None else 0.0

    def of_all(self) -> list[MemberDecision]:
        return [self._of(each) for each in self._route.members]

    def _of(self, upstream: LiveUpstream) -> MemberDecision:
        member = upstream.member
        candidate = self._candidates.get(member)
        return MemberDecision(
            member=member,
            score=self._scores.get(member, 0) if candidate is not None and self._recorded else None,
            capacity=self._capacity(candidate) if candidate is not None else 0,
            verdict=self._verdict(upstream, candidate),
        )

    def _verdict(self, upstream: LiveUpstream, candidate: Candidate | None) -> Verdict:
        entry = self._entry
        if upstream.member == entry.chosen:
            return "chosen"
        if upstream.member in entry.avoid:
            return "tried"
        if candidate is None:
            return _why_out(self._route, upstream)
        if not self._recorded:
            return "not recorded"
        capacity, score = self._capacity(candidate), self._scores.get(candidate.member, 0)
        if capacity and score >= capacity:
            return "full"
        return "fading" if candidate.member in entry.reluctant else self._compared(score / candidate.slots)

    def _compared(self, load: float) -> Verdict:
        """Of one that had room."""
        if not self._entry.chosen:
            return "passed over"
        if self._entry.ordered:
            return "not first in order"
        if load == self._load:
            return "tie"
        return "higher score" if load > self._load else "passed over"


def _outcome(entry: Entry) -> Literal["granted", "refused", "waiting", "left"]:
    if entry.chosen:
        return "granted"
    if entry.reason:
        return "refused"
    return "waiting" if entry.waiter is not None else "left"


def _why_out(route: Route, upstream: LiveUpstream) -> Verdict:
    """Why it was no candidate, as far as can still be seen."""
    if upstream.spec.drain:
        return "draining"
    return why_out(upstream, route.settings) or "not a candidate"

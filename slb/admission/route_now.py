"""What a request of a route finds: its candidates, what each is picked by, and why others are none.

It is read at once, as things are at one moment, and put in words when somebody asks.
"""

from collections.abc import Iterator
from typing import Literal

from slb.admission.gates import Gates
from slb.admission.shown import CandidateNow, RouteNow
from slb.balance.eligible import condition, why_out
from slb.balance.standing import Standing, least_of
from slb.balance.upstream import LiveUpstream
from slb.errors import NO_UPSTREAM, POOL_SATURATED, SLOTS_UNKNOWN
from slb.model import RouteSettings
from slb.routing.table import Route

DECIMALS = 3
_TAKES_REQUESTS = frozenset({"up", "unchecked", "failing", "stuck"})
"""Conditions of an upstream that serves; any other is a reason why it does not."""

_NOBODY = Standing("", {}, ())


def route_now(gates: Gates, route: Route, key: bytes, now: float) -> RouteNow:
    """`key`: the request's, for a policy that goes by one; `now`: on the clock of `LiveUpstream.seen`."""
    return RouteState(gates, route, key, now).shown()


class RouteState:
    """One route at the moment at which this is made. Nothing that changes later is looked at later."""

    __slots__ = (
        *("_apart", "_decided_by", "_drawn", "_fading", "_fleet", "_full", "_inflight", "_next", "_panic"),
        *("_members", "_path", "_probed", "_queued", "_serving", "_settings", "_specs", "_standing"),
    )

    def __init__(self, gates: Gates, route: Route, key: bytes, now: float) -> None:
        view = route.view
        gate = gates.known(route.settings.pool or route.path) if route.is_counted else None
        self._path = route.path  # and no more of the route: its policy may have rings, which are large
        self._members = route.members
        self._settings = route.settings
        self._serving = view.upstreams
        self._panic = route.panic
        self._decided_by: Literal["redis", "here", "policy"] = "policy"
        if route.is_counted:
            self._decided_by = "here" if gate is not None and gate.mode == "local" else "redis"
        self._queued = gate.lane.state.queued if gate is not None and gate.lane.state.ready else None
        self._fleet = gates.known_scores_of(route) if route.is_counted else None
        self._specs = [each.spec for each in route.members]
        self._inflight = [each.inflight for each in route.members]
        self._fading = view.fading(now)
        self._drawn = view.drawn(now) if self._fading else frozenset()
        self._probed = view.probed if self._fading else frozenset()
        draws_equals, self._standing = (
            self._standing_of(route, key) if view.upstreams else (False, Standing("", {}, ()))
        )
        self._full = frozenset(each for each in view.upstreams if self._is_full(each))
        self._next = self._preferred(draws_equals)
        serving = frozenset(view.upstreams)
        self._apart = {
            each: self._judged(each, each in serving)
            for each in route.members
            if each.failures or each.on_probation or each not in serving or each in view.ill
        }

    def shown(self) -> RouteNow:
        outcome, reason = self._outcome()
        return RouteNow(
            route=self._path,
            policy=self._settings.policy,
            decided_by=self._decided_by,
            outcome=outcome,
            reason=reason,
            by=self._standing.by,
            queued=self._queued,
            panic=self._panic,
            members=sorted(self._candidates(), key=lambda each: each["member"]),
        )

    def _standing_of(self, route: Route, key: bytes) -> tuple[bool, Standing]:
        """What the choice would go by, and whether it draws among equals."""
        left = route.view.left(self._probed)
        if self._settings.policy == "least_inflight":
            where = "everywhere, a second ago," if self._fleet is not None else "of this instance"
            by = f"requests in flight {where} per slot, the least first"
            return True, least_of(by, left, lambda each: round(self._taken(each) / each.spec.slots, DECIMALS))
        return False, route.policy.standing(route.view.permitting(left), key)

    def _taken(self, upstream: LiveUpstream) -> int:
        """Its slots that are held, as far as is known here."""
        return upstream.inflight if self._fleet is None else self._fleet.get(upstream.member, 0)

    def _is_full(self, upstream: LiveUpstream) -> bool:
        capacity = self._settings.max_inflight * upstream.spec.slots
        return 0 < capacity <= self._taken(upstream)

    def _preferred(self, draws_equals: bool) -> LiveUpstream | None:
        """Where a request would go, as far as that is not left to chance."""
        passed = self._standing.passed if self._decided_by == "policy" else ()
        left = [each for each in self._standing.ranked if each not in self._full and each not in passed]
        if len(left) < 2:
            return left[0] if left else None
        scores = self._standing.scores
        is_tie = draws_equals and scores[left[0]] == scores[left[1]]
        return None if is_tie or left[0] in self._drawn else left[0]

    def _outcome(self) -> tuple[Literal["sent", "waits", "refused"], str]:
        settings = self._settings
        if not self._serving:
            return "refused", NO_UPSTREAM.name
        if self._decided_by == "here" and settings.max_inflight and settings.when_unsure == "refuse":
            return "refused", SLOTS_UNKNOWN.name
        if not (self._full | self._probed).issuperset(self._serving):
            return "sent", ""
        return ("waits", "") if settings.when_full == "queue" else ("refused", POOL_SATURATED.name)

    def _candidates(self) -> Iterator[CandidateNow]:
        for upstream, spec, inflight in zip(self._members, self._specs, self._inflight, strict=True):
            verdict, why = self._apart.get(upstream, ("", ""))
            yield CandidateNow(
                member=spec.member,
                verdict=verdict or self._verdict(upstream),
                why=why or self._standing.passed.get(upstream, ""),
                score=self._standing.scores.get(upstream),
                inflight=inflight,
                fleet=None if self._fleet is None else self._fleet.get(spec.member, 0),
                capacity=self._settings.max_inflight * spec.slots,
                slots=spec.slots,
                weight=spec.weight,
                zone=spec.zone,
                node=spec.node,
                share=round(self._fading.get(upstream, 1.0), DECIMALS),
            )

    def _verdict(self, upstream: LiveUpstream) -> str:
        """Of one that takes requests."""
        if upstream in self._full:
            return "full"
        if upstream in self._drawn:
            return "fading"
        if self._decided_by == "policy" and upstream in self._standing.passed:
            return "passed over"
        return "next" if upstream is self._next else "eligible"

    def _judged(self, upstream: LiveUpstream, serves: bool) -> tuple[str, str]:
        """Its verdict, empty where it takes requests, and more words for it."""
        if upstream.spec.drain:
            return "draining", ""
        out = why_out(upstream, self._settings)
        why = _in_words(upstream, self._settings, out)
        if not serves:
            state = condition(upstream, self._settings)
            return "not a candidate" if state in _TAKES_REQUESTS else state, why
        if out:
            why = "; ".join(each for each in (f"{out}, and used in the panic", why) if each)
        return "on probation" if upstream in self._probed else "", why


def _in_words(upstream: LiveUpstream, settings: RouteSettings, out: str | None) -> str:
    """What is known of its health."""
    words = (
        [upstream.why] if out and upstream.why else [upstream.spared] if upstream.stuck and upstream.spared else []
    )
    check = settings.health_check
    if out == "down" and check is not None:
        words.append(f"by the check of {check.path}")
    if upstream.failures:
        words.append(
            "its last request failed" if upstream.failures == 1 else f"{upstream.failures} failed in a row"
        )
    if upstream.on_probation and not out:
        alone = "" if upstream.proven else "one request at a time until an answer proves it, and "
        words.append(f"on probation: {alone}second attempts go elsewhere")
    return "; ".join(words)

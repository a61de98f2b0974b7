"""What a request of a route would find now: its candidates, what each is picked by, and why others are none.

Nothing of it is kept while requests are served. It is made of the present state when somebody asks.
"""

from operator import attrgetter
from typing import Literal

from slb.admission.gates import Gates
from slb.admission.shown import CandidateNow, RouteNow
from slb.balance.eligible import condition, why_out
from slb.balance.standing import Standing, least_of
from slb.balance.upstream import LiveUpstream
from slb.errors import NO_UPSTREAM, POOL_SATURATED, SLOTS_UNKNOWN
from slb.model import RouteSettings
from slb.routing.table import Route

_DECIMALS = 3
_TAKES_REQUESTS = frozenset({"up", "unchecked", "failing", "stuck"})
"""Conditions of an upstream that serves; any other is a reason why it does not."""
_member = attrgetter("member")


def route_now(gates: Gates, route: Route, key: bytes, now: float) -> RouteNow:
    """`key`: the request's, for a policy that goes by one; `now`: on the clock of `LiveUpstream.seen`."""
    return _Found(gates, route, key, now).shown()


class _Found:
    def __init__(self, gates: Gates, route: Route, key: bytes, now: float) -> None:
        self._route = route
        self._settings = route.settings
        self._gate = gates.known(route.settings.pool or route.path) if route.is_counted else None
        self._fleet = gates.known_scores_of(route) if route.is_counted else None
        self._fading = route.view.fading(now)
        self._standing = self._standing_of(key) if route.serving else Standing("", {}, ())
        self._full = {each for each in route.serving if self._is_full(each)}
        self._next = self._preferred()

    def shown(self) -> RouteNow:
        outcome, reason = self._outcome()
        gate = self._gate
        return RouteNow(
            route=self._route.path,
            policy=self._settings.policy,
            decided_by=self._decided_by,
            outcome=outcome,
            reason=reason,
            by=self._standing.by,
            queued=gate.lane.state.queued if gate is not None and gate.lane.state.ready else None,
            panic=self._route.panic,
            members=[self._of(each) for each in sorted(self._route.members, key=_member)],
        )

    @property
    def _decided_by(self) -> Literal["redis", "here", "policy"]:
        if not self._route.is_counted:
            return "policy"
        return "here" if self._gate is not None and self._gate.mode == "local" else "redis"

    def _standing_of(self, key: bytes) -> Standing:
        route = self._route
        if self._settings.policy != "least_inflight":
            return route.policy.standing(route.view, key)
        where = "everywhere, a second ago," if self._fleet is not None else "of this instance"
        by = f"requests in flight {where} per slot, the least first"
        return least_of(by, route.serving, lambda each: round(self._taken(each) / each.spec.slots, _DECIMALS))

    def _taken(self, upstream: LiveUpstream) -> int:
        """Its slots that are held, as far as is known here."""
        return upstream.inflight if self._fleet is None else self._fleet.get(upstream.member, 0)

    def _capacity(self, upstream: LiveUpstream) -> int:
        return self._settings.max_inflight * upstream.spec.slots

    def _is_full(self, upstream: LiveUpstream) -> bool:
        capacity = self._capacity(upstream)
        return 0 < capacity <= self._taken(upstream)

    def _preferred(self) -> LiveUpstream | None:
        """Where a request would go, as far as that is not left to chance."""
        passed = () if self._route.is_counted else self._standing.passed
        left = [each for each in self._standing.ranked if each not in self._full and each not in passed]
        warm = [each for each in left if each not in self._fading]
        scores = self._standing.scores
        if len(warm) > 1 and self._settings.policy == "least_inflight" and scores[warm[0]] == scores[warm[1]]:
            return None  # equals take turns, in Redis
        return warm[0] if warm else None

    def _outcome(self) -> tuple[Literal["sent", "waits", "refused"], str]:
        settings = self._settings
        if not self._route.serving:
            return "refused", NO_UPSTREAM.name
        if self._decided_by == "here" and settings.max_inflight and settings.when_unsure == "refuse":
            return "refused", SLOTS_UNKNOWN.name
        if len(self._full) < len(self._route.serving):
            return "sent", ""
        return ("waits", "") if settings.when_full == "queue" else ("refused", POOL_SATURATED.name)

    def _of(self, upstream: LiveUpstream) -> CandidateNow:
        verdict, why = self._judged(upstream)
        spec, score = upstream.spec, self._standing.scores.get(upstream)
        return CandidateNow(
            member=upstream.member,
            verdict=verdict,
            why=why,
            score=score,
            inflight=upstream.inflight,
            fleet=None if self._fleet is None else self._fleet.get(upstream.member, 0),
            capacity=self._capacity(upstream),
            slots=spec.slots,
            weight=spec.weight,
            zone=spec.zone,
            node=spec.node,
            share=round(self._fading.get(upstream, 1.0), _DECIMALS),
        )

    def _judged(self, upstream: LiveUpstream) -> tuple[str, str]:
        """Its verdict, and more words for it."""
        if upstream.spec.drain:
            return "draining", ""
        out = why_out(upstream, self._settings)
        why = _in_words(upstream, self._settings, out)
        if upstream not in self._route.serving:
            state = condition(upstream, self._settings)
            return "not a candidate" if state in _TAKES_REQUESTS else state, why
        if out:
            why = "; ".join(each for each in (f"{out}, and used in the panic", why) if each)
        if upstream in self._full:
            return "full", why
        if upstream in self._fading:
            return "fading", why
        if not self._route.is_counted and upstream in self._standing.passed:
            return "passed over", self._standing.passed[upstream]
        return "next" if upstream is self._next else "eligible", why


def _in_words(upstream: LiveUpstream, settings: RouteSettings, out: str | None) -> str:
    """What is known of its health."""
    words = [upstream.why] if out and upstream.why else [upstream.spared] if upstream.stuck else []
    check = settings.health_check
    if out == "down" and check is not None:
        words.append(f"by the check of {check.path}")
    if upstream.failures:
        words.append(
            "its last request failed" if upstream.failures == 1 else f"{upstream.failures} failed in a row"
        )
    if upstream.on_probation and not out:
        words.append("on probation: second attempts go elsewhere")
    return "; ".join(words)

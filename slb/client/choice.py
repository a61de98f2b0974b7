"""Where a call goes: to one of its route's upstreams, or, where there is none to pick, to the fallback."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import structlog
from aiohttp import ClientTimeout

from slb.addresses import AddressRules, is_address
from slb.balance.eligible import untried
from slb.balance.upstream import LiveUpstream
from slb.client.hash_key import Options, found
from slb.client.refusals import CallRefused
from slb.client.target import Target
from slb.client.traffic import Traffic
from slb.errors import NO_ROUTE, NO_UPSTREAM, NOT_READY, Reason
from slb.model import RouteSettings
from slb.routing.mirror import Mirror
from slb.routing.table import Route

_log = structlog.get_logger()


class Plan(NamedTuple):
    """What holds for a route until it changes. `allowed`: those of `serving` whose addresses may be upstreams'."""

    route: Route
    serving: tuple[LiveUpstream, ...]
    allowed: tuple[LiveUpstream, ...]
    timeout: ClientTimeout


class Question(NamedTuple):
    """What is to be sent: the key given with it (None: find it), and what was given for aiohttp."""

    method: str
    target: Target
    key: bytes | None
    options: Options


class Destination(NamedTuple):
    """upstream: None for the fallback, and `plan` too where there is no route. why: the reason for the fallback."""

    url: str
    upstream: LiveUpstream | None
    plan: Plan | None
    why: str = ""


class Chooser:
    """`fallback`: the URL before the target, empty where there is none. `clock` is the mirror's."""

    def __init__(
        self,
        mirror: Mirror,
        traffic: Traffic,
        fallback: str,
        rules: AddressRules,
        clock: Callable[[], float],
        rng: Random,
    ) -> None:
        self._mirror = mirror
        self._traffic = traffic
        self._fallback = fallback
        self._rules = rules
        self._clock = clock
        self._rng = rng
        self._plans: dict[str, Plan] = {}
        mirror.on_swap(lambda _: self._plans.clear())

    def first(self, question: Question) -> Destination:
        """Where the first attempt goes. Raises CallRefused where there is no upstream and no fallback."""
        mirror = self._mirror
        route = mirror.table.match(question.target.normal)
        if route is None:
            reason = NO_ROUTE if mirror.ready else NOT_READY
            return self._elsewhere(question, None, reason, f"no route takes {question.target.normal}")
        plan = self._plan(route)
        if not self._traffic.goes_by_ring(route.settings.client_percentage) and self._fallback:
            return self._to_fallback(question, plan, "percentage")
        if route.settings.max_inflight:
            detail = f"{route.path} has max_inflight, which only slb's instances count: calls go by the fallback"
            return self._elsewhere(question, plan, NO_UPSTREAM, detail, "max_inflight")
        if not plan.allowed:
            detail = f"{route.path} has no upstream that takes requests"
            return self._elsewhere(question, plan, NO_UPSTREAM, detail)
        return self._picked(question, plan, plan.allowed)

    def again(self, question: Question, failed: Destination) -> Destination | None:
        """Where the second attempt goes: never where the first did. None where there is nowhere else to go."""
        if failed.upstream is None or failed.plan is None:
            return None
        plan = self._plan(self._mirror.table.routes.get(failed.plan.route.path, failed.plan.route))
        left = untried(plan.allowed, (failed.upstream,))
        if not left:
            return self._to_fallback(question, plan, NO_UPSTREAM.name) if self._fallback else None
        if plan.route.policy.ring is not None:
            return self._picked(question, plan, left)
        least = min(upstream.inflight for upstream in left)
        # Not by the policy: a round that a retry moved on would begin at the same bad upstream again.
        upstream = self._rng.choice([each for each in left if each.inflight == least])
        return _to(upstream, plan, question.target)

    def _picked(self, question: Question, plan: Plan, upstreams: tuple[LiveUpstream, ...]) -> Destination:
        route = plan.route
        try:
            if route.policy.ring is not None:
                return _to(route.policy.pick(upstreams, self._key(question, route)), plan, question.target)
            return _to(route.policy.pick(self._warm(route, upstreams)), plan, question.target)
        except CallRefused:
            raise
        except Exception:
            if not self._fallback:
                raise
            _log.exception("routing_failed", route=route.path)
            return self._to_fallback(question, plan, "routing_failed")

    def _warm(self, route: Route, upstreams: tuple[LiveUpstream, ...]) -> tuple[LiveUpstream, ...]:
        if not route.fading_until:
            return upstreams
        return self._permitted(route.candidates(self._clock(), self._rng)) or upstreams

    def _key(self, question: Question, route: Route) -> bytes:
        if question.key is not None:
            return question.key
        return found(route.settings.hash_key, question.target, question.options)

    def _elsewhere(
        self, question: Question, plan: Plan | None, reason: Reason, detail: str, why: str = ""
    ) -> Destination:
        if not self._fallback:
            raise CallRefused(reason, detail)
        return self._to_fallback(question, plan, why or reason.name)

    def _to_fallback(self, question: Question, plan: Plan | None, why: str) -> Destination:
        target = question.target
        return Destination(self._fallback + target.path + target.query, None, plan, why)

    def _plan(self, route: Route) -> Plan:
        plan = self._plans.get(route.path)
        if plan is None or plan.route is not route or plan.serving is not route.serving:
            plan = Plan(route, route.serving, self._permitted(route.serving), _timeout(route.settings))
            self._plans[route.path] = plan
        return plan

    def _permitted(self, upstreams: tuple[LiveUpstream, ...]) -> tuple[LiveUpstream, ...]:
        """The very same tuple where all are."""
        refused = [each for each in upstreams if self._refusal(each)]
        return untried(upstreams, refused) if refused else upstreams

    def _refusal(self, upstream: LiveUpstream) -> str | None:
        """Names are held to the rules when they are resolved."""
        spec = upstream.spec
        return self._rules.refusal(spec.host, spec.port) if is_address(spec.host) else None


def _to(upstream: LiveUpstream, plan: Plan, target: Target) -> Destination:
    """A member is the authority of http, and the whole origin of https."""
    member = upstream.member
    origin = member if member.startswith("https://") else f"http://{member}"
    settings = plan.route.settings
    if settings.strip_prefix and plan.route.path != "/":
        return Destination(origin + target.without(plan.route.path), upstream, plan)
    return Destination(origin + target.path + target.query, upstream, plan)


def _timeout(settings: RouteSettings) -> ClientTimeout:
    return ClientTimeout(
        total=settings.request_timeout or None,
        sock_connect=settings.connect_timeout,
        sock_read=settings.first_byte_timeout,
    )

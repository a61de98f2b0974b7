"""Where a call goes: to one of its route's upstreams, or, where there is none to pick, to the fallback."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import structlog
from aiohttp import ClientTimeout
from aiohttp.typedefs import LooseHeaders
from multidict import CIMultiDict
from yarl import URL

from slb.addresses import AddressRules
from slb.balance.choice import choose
from slb.balance.eligible import untried
from slb.balance.ring import endpoint
from slb.balance.upstream import LiveUpstream
from slb.client.hash_key import key_of
from slb.client.refusals import CallRefused
from slb.client.target import Target
from slb.errors import BAD_REQUEST, NO_ROUTE, NO_UPSTREAM, NOT_READY, ConfigError, InvalidName, Reason
from slb.names import normal_member
from slb.routing.forwarded import route_of
from slb.routing.mirror import Mirror
from slb.routing.table import Route

WHOLE = 100.0


class Traffic:
    """`percentage` of the calls, 0 to 100, go by the ring, none unless `enabled`; a route may lower that."""

    def __init__(self, percentage: float, enabled: bool, has_fallback: bool, rng: Random) -> None:
        self._rng = rng
        self._has_fallback = has_fallback
        self.set_percentage(percentage)
        self.set_enabled(enabled)

    def set_percentage(self, value: float) -> None:
        """Raises ConfigError where it is not from 0 to 100, or the rest has nowhere to go."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= WHOLE:
            raise ConfigError(f"percentage = {value!r}: a number from 0 to 100")
        if value < WHOLE and not self._has_fallback:
            raise ConfigError(f"percentage = {value!r}: set fallback, the URL that the rest of the calls go to")
        self.percentage = float(value)

    def set_enabled(self, value: bool) -> None:
        """False sends every call to the fallback. Raises ConfigError where there is none."""
        if not isinstance(value, bool):
            raise ConfigError(f"enabled = {value!r}: True or False")
        if not value and not self._has_fallback:
            raise ConfigError("enabled = False: set fallback, the URL that all calls go to instead")
        self.enabled = value

    def goes_by_ring(self, allowed: float) -> bool:
        """Whether the next call does, `allowed` being its route's percentage; always without a fallback."""
        share = min(self.percentage if self.enabled else 0.0, allowed)
        return share >= WHOLE or self._rng.random() * WHOLE < share or not self._has_fallback


_log = structlog.get_logger()

_NONE: frozenset[LiveUpstream] = frozenset()


@dataclass(slots=True)
class Question:
    """What is to be sent: the key given with it (None: find it), and the arguments for aiohttp."""

    method: str
    target: Target
    key: bytes | None
    options: dict[str, Any]


class Plan:
    """What a call by a route needs, while `whole` is the route's view. `view`: that of the upstreams that are
    `permitted`. `find_key` is None where the policy uses no key."""

    __slots__ = ("find_key", "percentage", "route", "strips", "timeout", "view", "whole")

    def __init__(self, route: Route, permitted: tuple[LiveUpstream, ...]) -> None:
        settings = route.settings
        self.route = route
        self.whole = route.view
        self.view = route.view.permitting(permitted)
        self.timeout = ClientTimeout(
            total=settings.request_timeout or None,
            sock_connect=settings.connect_timeout,
            sock_read=settings.first_byte_timeout,
        )
        self.percentage = settings.client_percentage
        self.find_key = None if route.policy.ring is None else key_of(settings.hash_key)
        self.strips = settings.strip_prefix


@dataclass(slots=True)
class Destination:
    """`upstream`: None for the fallback, `plan` too where there is no route; `why`: the reason for the fallback."""

    url: URL
    upstream: LiveUpstream | None
    plan: Plan | None
    why: str = ""


class Chooser:
    """`fallback`: the URL before the target, empty for none. Upstreams that `rules` refuse are never called.
    `clock` is the mirror's. `headers`: the session's own."""

    def __init__(
        self,
        mirror: Mirror,
        traffic: Traffic,
        fallback: str,
        rules: AddressRules,
        clock: Callable[[], float],
        rng: Random,
        headers: LooseHeaders | None,
    ) -> None:
        self._mirror = mirror
        self._traffic = traffic
        self._fallback = fallback
        self._rules = rules
        self._logged: set[str] = set()
        self._clock = clock
        self._rng = rng
        self._headers = CIMultiDict(headers or ())
        self._plans: dict[str, Plan] = {}
        mirror.on_swap(lambda _: self._plans.clear())
        mirror.on_swap(self._logged.difference_update)

    def first(self, question: Question) -> Destination:
        """Where the first attempt goes. Raises CallRefused where there is no upstream and no fallback."""
        target = question.target
        try:
            route = route_of(self._mirror.table, target.path, target.normal)
        except InvalidName as error:
            raise CallRefused(BAD_REQUEST, str(error)) from None
        if route is None:
            if not self._mirror.ready:
                return self._elsewhere(question, None, NOT_READY, "no table has come from Redis yet")
            return self._elsewhere(question, None, NO_ROUTE, f"no route takes {target.normal}")
        plan = self._plan(route)
        if not self._traffic.goes_by_ring(plan.percentage):
            return self._to_fallback(question, plan, "percentage")
        if route.settings.max_inflight:
            detail = f"{route.path} has max_inflight, which only slb's instances count: calls go by the fallback"
            return self._elsewhere(question, plan, NO_UPSTREAM, detail, "max_inflight")
        if not plan.view.upstreams:
            detail = f"{route.path} has no upstream that takes requests"
            return self._elsewhere(question, plan, NO_UPSTREAM, detail)
        return self._picked(question, plan, _NONE)

    def again(self, question: Question, failed: Destination) -> Destination | None:
        """Where the second attempt goes, never where the first one did. None where there is no other place."""
        if failed.upstream is None or failed.plan is None:
            return None
        plan = self._plan(self._mirror.table.routes.get(failed.plan.route.path, failed.plan.route))
        without = plan.view.avoiding(frozenset((failed.upstream,)), (failed.upstream,))
        if not plan.view.left(without):
            return self._to_fallback(question, plan, NO_UPSTREAM.name) if self._fallback else None
        return self._picked(question, plan, without)

    def may_lead_to(self, url: URL) -> bool:
        """Whether a redirect to `url` may be followed: it stays with the table's upstreams, or the fallback."""
        if self._fallback and url.origin() == URL(self._fallback).origin():
            return True
        try:
            upstream = self._mirror.upstream(normal_member(str(url.origin())))
        except InvalidName:
            return False
        return upstream is not None and self._rules.literal_refusal(upstream.spec) is None

    def _picked(self, question: Question, plan: Plan, without: frozenset[LiveUpstream]) -> Destination:
        try:
            key = self._key(question, plan)
            upstream = choose(plan.route.policy, plan.view, key, without, self._clock, self._rng)
            url = question.target.at(endpoint(upstream), plan.route.path, plan.strips)
            return Destination(url, upstream, plan)
        except Exception as error:
            if isinstance(error, CallRefused) or not self._fallback:
                raise
            _log.exception("routing_failed", route=plan.route.path)
            return self._to_fallback(question, plan, "routing_failed")

    def _key(self, question: Question, plan: Plan) -> bytes:
        if plan.find_key is None:
            return b""
        if question.key is not None:
            return question.key
        return plan.find_key(question.target, question.options, self._headers)

    def _elsewhere(
        self, question: Question, plan: Plan | None, reason: Reason, detail: str, why: str = ""
    ) -> Destination:
        if not self._fallback:
            raise CallRefused(reason, detail)
        return self._to_fallback(question, plan, why or reason.name)

    def _to_fallback(self, question: Question, plan: Plan | None, why: str) -> Destination:
        return Destination(question.target.at(self._fallback), None, plan, why)

    def _plan(self, route: Route) -> Plan:
        plan = self._plans.get(route.path)
        if plan is None or plan.whole is not route.view:
            plan = self._plans[route.path] = Plan(route, self._permitted(route.serving))
        return plan

    def _permitted(self, upstreams: tuple[LiveUpstream, ...]) -> tuple[LiveUpstream, ...]:
        """The very same tuple where none is refused. A refusal is logged once while a route names the upstream."""
        refused = {each: why for each in upstreams if (why := self._rules.literal_refusal(each.spec))}
        for each, why in refused.items():
            if each.member not in self._logged:
                self._logged.add(each.member)
                _log.warning("upstream_skipped", upstream=each.member, reason=why)
        return untried(upstreams, refused) if refused else upstreams

"""Whom a request goes to: by the route's policy, here and at once; or by the fleet, where it needs a slot."""

from slb.admission.entry import Entry
from slb.admission.gates import turn_of
from slb.balance.eligible import untried
from slb.balance.upstream import LiveUpstream
from slb.proxy.context import ProxyContext
from slb.proxy.fields import field_value
from slb.proxy.hash_key import key_of
from slb.proxy.interfaces import Seeking


def choose(exchange: Seeking, context: ProxyContext, upstreams: tuple[LiveUpstream, ...]) -> LiveUpstream:
    """One of `upstreams`, those that serve and are not avoided."""
    route = exchange.route
    if route.policy.ring is not None and ((key := _key(exchange)) or not exchange.tried.avoided):
        return route.policy.pick(upstreams, key)
    if exchange.tried.avoided:
        return context.retries.pick(upstreams)
    if route.fading_until:
        upstreams = route.candidates(context.clock(), context.rng)
    return route.policy.pick(upstreams)


def ask_for_slot(exchange: Seeking, context: ProxyContext, upstreams: tuple[LiveUpstream, ...]) -> Entry:
    """Of the whole fleet's; `admitted` or `rejected` of the exchange is called, maybe at once. At a further
    attempt those that are not of `upstreams` are taken only where none of these has room."""
    route = exchange.route
    settings = route.settings
    asked = field_value(exchange.request.head.fields, settings.priority_header) if settings.priorities else ""
    deprioritized = route.deprioritized(context.clock(), context.rng) if route.fading_until else ()
    if exchange.tried.avoided:
        deprioritized = untried(route.serving, exchange.tried.avoided.union(upstreams)) or deprioritized
    key = _key(exchange) if route.policy.ring is not None else b""
    turn, avoided = turn_of(settings, asked), tuple(exchange.tried.avoided)
    return context.gates.of(route).enter(route, avoided, deprioritized, turn, exchange, key, exchange.entry)


def _key(exchange: Seeking) -> bytes:
    return key_of(exchange.route.settings.hash_key)(exchange.request)

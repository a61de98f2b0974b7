"""Which upstream a request goes to: by the route's policy, or by the fleet where it needs a slot."""

from slb.admission.entry import Entry
from slb.admission.gates import turn_of
from slb.balance import choice
from slb.balance.upstream import LiveUpstream
from slb.proxy.context import ProxyContext
from slb.proxy.hash_key import key_of
from slb.proxy.interfaces import Seeking
from slb.upstreams.fields import field_value


def choose(exchange: Seeking, context: ProxyContext, without: frozenset[LiveUpstream]) -> LiveUpstream:
    """An upstream that serves and is not in `without`."""
    route = exchange.route
    return choice.choose(route.policy, route.view, _key(exchange), without, context.clock, context.rng)


def ask_for_slot(exchange: Seeking, context: ProxyContext, without: frozenset[LiveUpstream]) -> Entry:
    """Ask for a slot that the whole fleet counts; `admitted` or `rejected` of the exchange is called, maybe at
    once. At a further attempt those of `without` where none has failed are taken only where no other has room."""
    route, view = exchange.route, exchange.route.view
    settings, failed = route.settings, exchange.tried.avoided
    asked = field_value(exchange.request.head.fields, settings.priority_header) if settings.priorities else ""
    deprioritized = tuple(without - failed) if without else ()
    if not deprioritized and view.fading_until:
        deprioritized = view.deprioritized(context.clock(), context.rng)
    turn = turn_of(settings, asked)
    return context.gates.of(route).enter(
        route, tuple(failed), deprioritized, turn, exchange, _key(exchange), exchange.entry
    )


def _key(exchange: Seeking) -> bytes:
    """Empty where the request has none, or the policy uses none."""
    route = exchange.route
    return b"" if route.policy.ring is None else key_of(route.settings.hash_key)(exchange.request)

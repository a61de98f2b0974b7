"""Whom a request goes to: by the route's policy, here and at once; or by the fleet, where it needs a slot."""

from typing import TYPE_CHECKING

from slb.admission.entry import Entry
from slb.admission.gates import turn_of
from slb.balance import choice
from slb.balance.upstream import LiveUpstream
from slb.proxy.fields import field_value
from slb.proxy.hash_key import key_of
from slb.proxy.plane import Plane

if TYPE_CHECKING:
    from slb.proxy.exchange import Exchange


def choose(exchange: "Exchange", plane: Plane, without: frozenset[LiveUpstream]) -> LiveUpstream:
    """One of those that serve and are none of `without`."""
    route = exchange.route
    return choice.choose(route.policy, route.view, _key(exchange), without, plane.clock, plane.rng)


def ask_for_slot(exchange: "Exchange", plane: Plane, without: frozenset[LiveUpstream]) -> Entry:
    """Of the whole fleet's; `admitted` or `rejected` of the exchange is called, maybe at once. At a further
    attempt those of `without` where none has failed are taken only where no other has room."""
    route, view = exchange.route, exchange.route.view
    settings = route.settings
    asked = field_value(exchange.head.fields, settings.priority_header) if settings.priorities else ""
    deprioritized = tuple(without - exchange.avoided)
    if not deprioritized and view.fading_until:
        deprioritized = view.deprioritized(plane.clock(), plane.rng)
    turn, avoided = turn_of(settings, asked), tuple(exchange.avoided)
    return plane.gates.of(route).enter(
        route, avoided, deprioritized, turn, exchange, _key(exchange), exchange.entry
    )


def _key(exchange: "Exchange") -> bytes:
    """Empty where the request has none, or its route's policy goes by none."""
    route = exchange.route
    return b"" if route.policy.ring is None else key_of(route.settings.hash_key)(exchange)

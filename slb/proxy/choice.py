"""Which upstream a request goes to: by the route's policy, or by the fleet where it needs a slot."""

from slb.admission import wish
from slb.admission.entry import Entry
from slb.admission.wish import Wish
from slb.balance import choice
from slb.balance.hash_key import cookie, key_finder, parameter
from slb.balance.upstream import LiveUpstream
from slb.proxy.context import ProxyContext
from slb.proxy.interfaces import Seeking
from slb.proxy.request import Request
from slb.upstreams.fields import FIELDS, field_value


def choose(exchange: Seeking, context: ProxyContext, without: frozenset[LiveUpstream]) -> LiveUpstream:
    """An upstream that serves and is not in `without`."""
    route = exchange.route
    policy = route.policy
    key = b"" if policy.ring is None else _key(exchange)
    return choice.choose(policy, route.view, key, without, context.clock, context.rng)


def ask_for_slot(exchange: Seeking, context: ProxyContext, without: frozenset[LiveUpstream]) -> Entry:
    """Ask for a slot that the whole fleet counts; `admitted` or `rejected` of the exchange is called, maybe at
    once. At a further attempt those of `without` where none has failed are taken only where no other has room."""
    route = exchange.route
    settings = route.settings
    asked = field_value(exchange.request.head.fields, settings.priority_header) if settings.priorities else ""
    wished = Wish(_key(exchange), asked, exchange.tried.avoided, without, exchange.entry)
    return wish.ask_for_slot(context.gates, route, exchange, wished, context.clock, context.rng)


def take_snapshot(exchange: Seeking, context: ProxyContext, now: float) -> None:
    """Keep what the request finds of its route."""
    context.snapshots.take(exchange.route, _key(exchange), now)


def _key(exchange: Seeking) -> bytes:
    """Empty where the request has none, or the policy uses none."""
    route = exchange.route
    return b"" if route.policy.ring is None else key_of(route.settings.hash_key)(exchange.request)


# Where a request has the key that its route's `hash_key` names.


def _path(_: str, request: Request) -> bytes:
    """The normal form: other spellings of a path mean the same."""
    return request.line.normal.encode()


def _address(_: str, request: Request) -> bytes:
    return request.peer.client(request.head).encode()


def _header(name: str, request: Request) -> bytes:
    return field_value(request.head.fields, name).encode("latin-1")


def _cookie(name: str, request: Request) -> bytes:
    """All Cookie lines together: RFC 9113, 8.2.3, allows several."""
    lines = request.head.fields.split(b"\r\n")
    values = b";".join(FIELDS[line][1] for line in lines if line[:7].lower() == b"cookie:")
    return cookie(values.decode("latin-1"), name).encode("latin-1")


def _query(name: str, request: Request) -> bytes:
    return parameter(request.line.query[1:], name)


key_of = key_finder({"path": _path, "ip": _address, "header": _header, "cookie": _cookie, "query": _query})

"""Which upstream a request of Envoy's goes to, and to which ones Envoy may retry: by the rules of the proxy."""

from slb.admission import wish
from slb.admission.entry import Entry, Waiter
from slb.admission.wish import Wish
from slb.balance import choice
from slb.balance.eligible import elsewhere
from slb.balance.hash_key import cookie, key_finder, parameter
from slb.balance.order import second_choice
from slb.balance.upstream import LiveUpstream
from slb.extproc.context import ExtProcContext
from slb.extproc.request import Head
from slb.routing.table import Route

_LOOKED_AT = 8
"""Upstreams among which an alternative is looked for. To look at all would cost each request as many steps as its
route has upstreams, for a retry that few make."""


def choose(
    route: Route,
    context: ExtProcContext,
    key: bytes,
    failed: frozenset[LiveUpstream],
    outside: frozenset[LiveUpstream],
) -> LiveUpstream:
    """An upstream that serves, and is in neither; one is left. `failed`: by earlier attempts; `outside`: of the
    subset that may be picked from."""
    if outside and not failed:  # a first attempt all the same: the policy chooses
        return route.policy.pick(route.view, key, outside)
    return choice.choose(route.policy, route.view, key, failed | outside, context.clock, context.rng)


def ask_for_slot(
    route: Route,
    context: ExtProcContext,
    waiter: Waiter,
    head: Head,
    key: bytes,
    failed: frozenset[LiveUpstream],
    without: frozenset[LiveUpstream],
) -> Entry:
    """Ask for a slot that the whole fleet counts; `admitted` or `rejected` of `waiter` is called, maybe at once."""
    settings = route.settings
    asked = head.value(settings.priority_header.lower()) if settings.priorities else ""
    return wish.ask_for_slot(
        context.gates, route, waiter, Wish(key, asked, failed, without), context.clock, context.rng
    )


def key_in(route: Route, head: Head, normal: str) -> bytes:
    """Empty where the request has none, or the policy uses none."""
    return b"" if route.policy.ring is None else _key_of(route.settings.hash_key)(head, normal)


def attempts(
    route: Route, context: ExtProcContext, key: bytes, first: LiveUpstream, without: frozenset[LiveUpstream]
) -> tuple[LiveUpstream, ...]:
    """Where Envoy's attempts are to go, one after another: `first`, and for each retry that the route allows
    another.

    Under a cap `first` again: any other may be full, and Envoy would not ask. That serves a retry whose connection
    the upstream had closed meanwhile; and a list that ends early would hand the retry to Envoy's fallback, which
    knows of no cap."""
    retries = route.settings.retries
    if route.settings.max_inflight:
        return (first,) * (1 + retries)
    chosen = [first]
    for _ in range(retries):
        used = without.union(chosen)
        upstreams = route.serving
        if not key and len(upstreams) > _LOOKED_AT:
            upstreams = tuple(context.rng.sample(upstreams, _LOOKED_AT))
        left = tuple(each for each in upstreams if each not in used)
        if not left:
            break
        best = elsewhere(left, chosen)
        if key:
            chosen.append(route.policy.pick(route.view, key, used.union(set(left).difference(best))))
        else:
            chosen.append(second_choice(best, context.rng))
    return tuple(chosen)


def address_of(upstream: LiveUpstream) -> str:
    """`IP:PORT`, as Envoy names its hosts; whether it speaks TLS to it is its cluster's to know."""
    return upstream.member.removeprefix("https://")


def _path(_: str, head: Head, normal: str) -> bytes:
    return normal.encode()


def _address(_: str, head: Head, normal: str) -> bytes:
    """The client as Envoy sees it: an address from outside it names itself; else the last of X-Forwarded-For, which
    Envoy has written."""
    outside = head.value("x-envoy-external-address")
    return (outside or head.value("x-forwarded-for").rpartition(",")[2].strip()).encode("latin-1")


def _header(name: str, head: Head, normal: str) -> bytes:
    return head.value(name.lower()).encode("latin-1")


def _cookie(name: str, head: Head, normal: str) -> bytes:
    return cookie(head.value("cookie"), name).encode("latin-1")


def _query(name: str, head: Head, normal: str) -> bytes:
    return parameter(head.query[1:].encode("latin-1"), name)


_key_of = key_finder({"path": _path, "ip": _address, "header": _header, "cookie": _cookie, "query": _query})

"""Consistent hashing with bounded load (Mirrokni 2016): overloaded upstreams are passed over, clockwise. The walk
is short: when many slow down at once, a walk round the whole ring would send every request as far from its cache as
can be."""

from collections.abc import Callable, Collection, Iterable
from operator import attrgetter
from typing import NamedTuple

from slb.balance.upstream import LiveUpstream

MOST_HOPS = 10

_inflight = attrgetter("inflight")


class Found(NamedTuple):
    """`distance`: how many busy upstreams were passed over."""

    upstream: LiveUpstream
    distance: int


def bounded(
    walk: Iterable[LiveUpstream], load: Callable[[LiveUpstream], float], has_room: Callable[[LiveUpstream], bool]
) -> Found:
    """The first of `walk` (not empty) that has room; after ten hops the least loaded of those met."""
    least: LiveUpstream | None = None
    lowest = 0.0
    for hops, upstream in enumerate(walk):
        if has_room(upstream):
            return Found(upstream, hops)
        busy = load(upstream)
        if least is None or busy < lowest:
            least, lowest = upstream, busy
        if hops == MOST_HOPS:
            break
    assert least is not None
    return Found(least, hops)


def bounded_as_skipper(walk: Iterable[LiveUpstream], eligible: Collection[LiveUpstream], factor: float) -> Found:
    """The rule of Zalando's Skipper: requests in flight against their mean, this one included; the walk ends with
    the ring. Where all of `walk` are above it, the least loaded of them."""
    threshold = (1 + sum(map(_inflight, eligible))) / len(eligible) * factor
    met = []
    for hops, upstream in enumerate(walk):
        if upstream.inflight <= threshold:
            return Found(upstream, hops)
        met.append(upstream)
    return Found(min(met, key=_inflight), len(met) - 1)

"""Consistent hashing with bounded load (Mirrokni 2016): overloaded upstreams are passed over, clockwise.

The walk is short: when many slow down at once, one that went round the whole ring would fling every request as far
from its cache as can be, at the worst moment.
"""

from collections.abc import Callable, Collection, Iterable
from operator import attrgetter
from typing import NamedTuple

from slb.balance.upstream import LiveUpstream

MOST_HOPS = 10

_inflight = attrgetter("inflight")


class Found(NamedTuple):
    """The upstream that takes the request, and how many busy ones were passed over."""

    upstream: LiveUpstream
    distance: int


Measure = Callable[[LiveUpstream], float]


def bounded(walk: Iterable[LiveUpstream], load: Measure, threshold: Measure) -> Found:
    """The first of `walk` that is not above its threshold; after ten hops the least loaded of those met. `walk` is
    not empty."""
    least: LiveUpstream | None = None
    lowest = 0.0
    for hops, upstream in enumerate(walk):
        busy = load(upstream)
        if busy <= threshold(upstream):
            return Found(upstream, hops)
        if least is None or busy < lowest:
            least, lowest = upstream, busy
        if hops == MOST_HOPS:
            break
    assert least is not None
    return Found(least, hops)


def bounded_as_skipper(walk: Iterable[LiveUpstream], eligible: Collection[LiveUpstream], factor: float) -> Found:
    """The rule of Zalando's Skipper: plain requests in flight against their mean, this one included, and no end to
    the walk but the ring's. `walk` has all of `eligible`; or some of them, of a ring that others are still fading
    in over, and then the least loaded of those where all are above it."""
    threshold = (1 + sum(map(_inflight, eligible))) / len(eligible) * factor
    met = []
    for hops, upstream in enumerate(walk):
        if upstream.inflight <= threshold:
            return Found(upstream, hops)
        met.append(upstream)
    return Found(min(met, key=_inflight), len(met) - 1)

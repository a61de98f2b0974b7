"""How much load an upstream may have before its keys go to the next ones, by the route's settings."""

from collections.abc import Collection, Iterable
from math import inf

from slb.balance.bounded_load import Found, bounded, bounded_as_skipper
from slb.balance.load_stats import NONE, PoolLoad
from slb.balance.split import Split
from slb.balance.upstream import LiveUpstream
from slb.model import RouteSettings


class LoadLimit:
    """Of one route's upstreams. `pool`: their load. `split`: what part of it each is expected to have; it has to be
    set before anything is asked of it."""

    def __init__(self, settings: RouteSettings) -> None:
        self.pool = PoolLoad()
        self.split: Split
        self.follow(settings)

    def follow(self, settings: RouteSettings) -> None:
        """Go by these from now on."""
        self.signal, self.factor = settings.load_signal, settings.balance_factor

    def keeps(self, owner: LiveUpstream) -> bool:
        """Whether it has room for one more of its keys, as far as is known without looking at the others."""
        if self.signal != "effective":
            return self.signal == "off"
        load = self.load_of(owner)
        return load <= 1.0 or load <= self.threshold_of(owner)

    def room_of(self, upstream: LiveUpstream) -> float:
        """With so many in flight it has room for one more, however few the others have: a load of 1 is not too much
        for any upstream."""
        if self.signal == "off":
            return inf
        load_stats = upstream.load_stats
        return NONE if load_stats is None or self.signal == "inflight" else self.pool.room_of(load_stats)

    def find(self, walk: Iterable[LiveUpstream], eligible: Collection[LiveUpstream]) -> Found:
        """The first with room of a `walk` along a ring, on which all are `eligible`."""
        if self.signal == "off":
            return Found(next(iter(walk)), 0)
        if self.signal == "inflight":
            return bounded_as_skipper(walk, eligible, self.factor)
        return bounded(walk, self.load_of, self.threshold_of)

    def load_of(self, upstream: LiveUpstream) -> float:
        """Its effective load."""
        assert upstream.load_stats is not None
        return self.pool.load_of(upstream.load_stats)

    def threshold_of(self, upstream: LiveUpstream) -> float:
        """The effective load above which it is passed over."""
        assert upstream.load_stats is not None
        # And one request more: where few are in flight a lone one is more than any upstream's share of them, and a
        # lone miss much more. To pass them over for that would scatter keys, which makes for more misses.
        part = self.part_of(upstream) * (self.pool.total + 1.0)  # with this one
        return self.factor * (self.pool.spare(upstream.load_stats) + part)

    def part_of(self, upstream: LiveUpstream) -> float:
        """Of the whole load: what it is expected to have."""
        return self.split.expected(upstream)

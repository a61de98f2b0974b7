"""How much load an upstream may have before its keys go to the next ones, by the route's settings."""

from collections.abc import Collection, Iterable
from math import inf

from slb.balance.bounded_load import Found, bounded, bounded_as_skipper
from slb.balance.load_stats import NONE, PoolLoad
from slb.balance.split import Split
from slb.balance.upstream import LiveUpstream
from slb.model import RouteSettings


class LoadLimit:
    """Of one route's upstreams. `pool`: their load. `split`: the share of it that each is expected to have; to be
    set before `keeps` and `find` are called."""

    def __init__(self, settings: RouteSettings) -> None:
        self.pool = PoolLoad()
        self.split: Split
        self.follow(settings)

    def follow(self, settings: RouteSettings) -> None:
        self.signal, self.factor = settings.load_signal, settings.balance_factor

    def keeps(self, owner: LiveUpstream) -> bool:
        """Whether it has room for one more of its keys, as far as is known without a look at the others."""
        return self._has_room(owner) if self.signal == "effective" else self.signal == "off"

    def room_of(self, upstream: LiveUpstream) -> float:
        """Requests in flight up to which it certainly has room for one more."""
        if self.signal == "effective" and upstream.load_stats is not None:
            return self.pool.room_of(upstream.load_stats)
        return inf if self.signal == "off" else NONE

    def find(self, walk: Iterable[LiveUpstream], eligible: Collection[LiveUpstream]) -> Found:
        """The first with room of a `walk` along a ring, on which all are `eligible`."""
        if self.signal == "off":
            return Found(next(iter(walk)), 0)
        if self.signal == "inflight":
            return bounded_as_skipper(walk, eligible, self.factor)
        return bounded(walk, self._load, self._has_room)

    def threshold(self, upstream: LiveUpstream) -> float:
        """The effective load above which it is passed over."""
        assert upstream.load_stats is not None
        # And one request more: where few are in flight, a single one is more than any upstream's share of them. To
        # pass upstreams over for that would scatter keys, which makes for more misses.
        part = self.split.expected(upstream) * (self.pool.total + 1.0)  # with this one
        return self.factor * (self.pool.spare(upstream.load_stats) + part)

    def _has_room(self, upstream: LiveUpstream) -> bool:
        assert upstream.load_stats is not None
        return (
            upstream.inflight <= self.room_of(upstream)
            or self._load(upstream) <= self.threshold(upstream)
            or self.pool.takes_batch(upstream.load_stats)
        )

    def _load(self, upstream: LiveUpstream) -> float:
        assert upstream.load_stats is not None
        return self.pool.load_of(upstream.load_stats)

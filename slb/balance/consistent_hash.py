"""Requests of one key go to one upstream: a ring, whose caches stay warm while upstreams come and go."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from random import Random

from slb.balance.order import rotated
from slb.balance.ring import Ring
from slb.balance.ring_keeper import RingKeeper
from slb.balance.round_robin import RoundRobin
from slb.balance.upstream import LiveUpstream
from slb.model import RouteSettings

_ORDERED = 16
"""Upstreams in the ring's own order where all are asked for; further ones are rarely reached, and cost as much."""


class ConsistentHash:
    """`zone`: where this process is. Requests without a key go round-robin, and all while there is no ring.

    `follow` tells of the route's upstreams and settings; `steps` has to be run when `wake` says so. `distances`:
    how many requests passed over how many upstreams; `keyless` and `unready` were sent round-robin.
    """

    greedy = False

    def __init__(self, rng: Random, clock: Callable[[], float], zone: str = "") -> None:
        self._rng = rng
        self._clock = clock
        self._zone = zone
        self._round_robin = RoundRobin(rng)
        self._keeper = RingKeeper(0.0, 0.0)
        self._eligible: tuple[LiveUpstream, ...] = ()
        self._may_take: frozenset[LiveUpstream] = frozenset()
        self.distances: Counter[int] = Counter()
        self.keyless = 0
        self.unready = 0

    @property
    def ring(self) -> "ConsistentHash":
        return self

    # -- kept in step

    def follow(self, upstreams: tuple[LiveUpstream, ...], settings: RouteSettings) -> None:
        """These are the route's, by these settings."""
        keeper = self._keeper
        keeper.window, keeper.debounce = settings.fade_in, settings.ring_debounce
        keeper.zone = self._zone if settings.zone_affinity else ""
        keeper.follow(upstreams, self._clock())

    @property
    def wake(self) -> float:
        """When `steps` has something to do, by the clock."""
        return self._keeper.wake()

    def steps(self) -> Iterator[None]:
        """Bring the rings up to date; about a millisecond between two yields."""
        return self._keeper.step(self._clock())

    # -- what a request asks

    def pick(self, eligible: tuple[LiveUpstream, ...], key: bytes = b"") -> LiveUpstream:
        ring = self._ring_for(key)
        if ring is None:
            return self._round_robin.pick(eligible)
        may_take = self._settled(eligible)
        for upstream in ring.walk(key):
            if upstream in may_take:
                return upstream
        self.unready += 1
        return self._round_robin.pick(eligible)

    def order(self, eligible: tuple[LiveUpstream, ...], key: bytes = b"") -> Sequence[LiveUpstream]:
        ring = self._ring_for(key)
        if ring is None:
            return self._round_robin.order(eligible)
        may_take = self._settled(eligible)
        first = list(islice((each for each in ring.walk(key) if each in may_take), _ORDERED))
        if not first:
            return self._round_robin.order(eligible)
        return [*first, *(each for each in rotated(first[0], eligible) if each not in first)]

    def _ring_for(self, key: bytes) -> Ring | None:
        """The ring that decides this request; None, and counted, where none can."""
        rings = self._keeper.rings
        if not key:
            self.keyless += 1
        elif rings is None:
            self.unready += 1
        else:
            return rings.draw(self._clock(), self._rng.random())
        return None

    def _settled(self, eligible: tuple[LiveUpstream, ...]) -> frozenset[LiveUpstream]:
        """`eligible` as a set. A route passes the same tuple until something changes."""
        if eligible is not self._eligible:
            self._eligible, self._may_take = eligible, frozenset(eligible)
        return self._may_take

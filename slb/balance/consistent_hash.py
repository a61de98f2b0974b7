"""Requests of one key go to one upstream: a ring, whose caches stay warm while upstreams come and go."""

from collections.abc import Callable, Sequence
from random import Random

from slb.balance.round_robin import RoundRobin
from slb.balance.upstream import LiveUpstream


class ConsistentHash:
    """`zone`: where this process is. Requests without a key go round-robin, and all while there is no ring."""

    greedy = False

    def __init__(self, rng: Random, clock: Callable[[], float], zone: str = "") -> None:
        self._rng = rng
        self._clock = clock
        self._zone = zone
        self._round_robin = RoundRobin(rng)

    @property
    def ring(self) -> "ConsistentHash":
        return self

    def pick(self, eligible: tuple[LiveUpstream, ...], key: bytes = b"") -> LiveUpstream:
        return self._round_robin.pick(eligible)

    def order(self, eligible: tuple[LiveUpstream, ...], key: bytes = b"") -> Sequence[LiveUpstream]:
        return self._round_robin.order(eligible)

"""Round-robin that stays exact while upstreams come and go."""

from bisect import bisect_right
from operator import attrgetter
from random import Random

from slb.balance.order import rotated
from slb.balance.upstream import LiveUpstream

_member = attrgetter("member")


class RoundRobin:
    """Goes round in member order. What it remembers is whom it served last, not an index: when the set changes
    it goes on with that one's successor, so nobody is skipped or served twice. Starts at a random place, since
    instances that all start with the first upstream would send it their bursts together."""

    greedy = False
    ring: None = None

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._round: tuple[LiveUpstream, ...] = ()
        self._next = 0
        self._last: str | None = None

    def pick(self, eligible: tuple[LiveUpstream, ...], key: bytes = b"") -> LiveUpstream:
        if eligible is not self._round:
            self._next = self._resume(eligible)
            self._round = eligible
        chosen = eligible[self._next]
        self._next = (self._next + 1) % len(eligible)
        self._last = chosen.member
        return chosen

    def order(self, eligible: tuple[LiveUpstream, ...], key: bytes = b"") -> tuple[LiveUpstream, ...]:
        return rotated(self.pick(eligible), eligible)

    def _resume(self, eligible: tuple[LiveUpstream, ...], key: bytes = b"") -> int:
        if self._last is None:
            return self._rng.randrange(len(eligible))
        return bisect_right(eligible, self._last, key=_member) % len(eligible)

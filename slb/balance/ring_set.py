"""N-ring fade-in: a scale-up is a ring of its own, which takes over from the ones before it little by little.

Every upstream has the same positions in all rings, so what reaches a new one while it fades in is just what it will
own afterwards, and it warms up with the right keys. Each ring has a window of its own: another scale-up, on top,
does not disturb one that is nearly done.
"""

import math
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from slb.balance.ring import EmptyRing, Ring
from slb.balance.ring_run import drained
from slb.balance.upstream import LiveUpstream

CURVE = 2.5
"""The share is progress to this power: a slow start, while caches are cold, and a quick end."""


def curve(began: float, window: float, now: float) -> float:
    """How much of its share has what began to fade in at `began`: 0 to 1; a `window` of zero ends at once."""
    if now >= began + window:
        return 1.0
    return math.pow(max(0.0, now - began) / window, CURVE)


class Fading(NamedTuple):
    """A ring on its way in, over `window` seconds from `began` on."""

    ring: Ring
    began: float
    window: float

    @property
    def ends(self) -> float:
        return self.began + self.window


@dataclass(frozen=True, slots=True)
class RingSet:
    """The established ring, and those fading in over it, oldest first, each a superset of the ones before it."""

    established: Ring
    fading: tuple[Fading, ...] = ()

    @property
    def newest(self) -> Ring:
        """The one that holds all upstreams of the set."""
        return self.fading[-1].ring if self.fading else self.established

    def shares(self, now: float) -> tuple[tuple[Ring, float], ...]:
        """The rings, oldest first, each with its part of the requests; they sum to 1. The newest takes the part
        of its curve, the next older the part of its own curve of the rest, and so on; the established the rest."""
        left = 1.0
        shares: list[tuple[Ring, float]] = []
        for each in reversed(self.fading):
            share = left * curve(each.began, each.window, now)
            shares.append((each.ring, share))
            left -= share
        shares.append((self.established, left))
        return tuple(reversed(shares))

    def joined(self, ring: Ring, now: float, window: float) -> "RingSet":
        """`ring`, a superset of the newest, fades in from now on; it is established at once without a `window`."""
        return RingSet(self.established, (*self.fading, Fading(ring, now, window))).settled(now)

    def settled(self, now: float) -> "RingSet":
        """The newest ring that has faded in is the established one, and those before it are gone."""
        for at in range(len(self.fading), 0, -1):
            if self.fading[at - 1].ends <= now:
                return RingSet(self.fading[at - 1].ring, self.fading[at:])
        return self

    def without(self, upstreams: Iterable[LiveUpstream]) -> "RingSet":
        """The rings without `upstreams`. A ring that would be empty is dropped, and so is one that becomes the same
        as the ring before it. Raises EmptyRing where no ring would be left."""
        return drained(self.thinning(upstreams))

    def thinning(self, upstreams: Iterable[LiveUpstream]) -> Generator[None, None, "RingSet"]:
        """The same, sliced: it yields after each ring."""
        gone = frozenset(upstreams)
        if self.newest.members.isdisjoint(gone):
            return self
        rings: list[Fading] = []
        for each in (Fading(self.established, 0.0, 0.0), *self.fading):
            staying = len(each.ring.members - gone)
            if staying and not (rings and staying == len(rings[-1].ring)):
                rings.append(each._replace(ring=each.ring.without(gone)))
                yield
        if not rings:
            raise EmptyRing("a ring set needs at least one upstream")
        return RingSet(rings[0].ring, tuple(rings[1:]))

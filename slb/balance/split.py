"""Which rings decide which part of the requests at one moment, and so what load to expect of an upstream."""

from collections.abc import Callable, Sequence, Set

from slb.balance.ring import Ring
from slb.balance.upstream import LiveUpstream


class Split:
    """`parts`: rings, each with the share of the requests it decides; the shares sum to 1. `eligible`: the
    upstreams that can take any. `only`: the ring that decides them all, where there is one."""

    __slots__ = ("_expected", "_given", "_last", "_parts", "_upto", "eligible", "only")

    def __init__(self, parts: Sequence[tuple[Ring, float]], eligible: Set[LiveUpstream]) -> None:
        self._given, self.eligible = parts, eligible
        weighing = [(ring, share) for ring, share in parts if share > 0.0]
        self._upto: list[tuple[float, Ring]] = []
        self._parts: list[tuple[frozenset[LiveUpstream], float]] = []
        upto = 0.0
        for ring, share in weighing:
            upto += share
            self._upto.append((upto, ring))
            self._parts.append((ring.members, share / max(1, len(ring.members & eligible))))
        self._last = weighing[-1][0]
        self.only = self._last if len(weighing) == 1 else None
        self._expected: dict[LiveUpstream, float] = {}

    def is_of(self, parts: Sequence[tuple[Ring, float]], eligible: Set[LiveUpstream]) -> bool:
        """Whether it is what these would make."""
        return (self._given, self.eligible) == (parts, eligible)

    def draw(self, chance: Callable[[], float]) -> Ring:
        """The ring of one request; `chance` is uniform in [0, 1)."""
        u = chance()
        for upto, ring in self._upto:
            if u < upto:
                return ring
        return self._last  # shares sum to 1 but for rounding

    def expected(self, upstream: LiveUpstream) -> float:
        """Its share of the whole load: an equal share of each ring it is in. So a new upstream, or one of another
        zone, is expected to have less."""
        part = self._expected.get(upstream)  # asked at every pick
        if part is None:
            part = self._expected[upstream] = sum(each for members, each in self._parts if upstream in members)
        return part

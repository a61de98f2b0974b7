"""Uniformly random."""

from random import Random

from slb.balance.upstream import LiveUpstream


class RandomChoice:
    """Every eligible upstream with the same probability."""

    greedy = False
    ring: None = None

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def pick(self, eligible: tuple[LiveUpstream, ...], key: bytes = b"") -> LiveUpstream:
        return self._rng.choice(eligible)

    def order(self, eligible: tuple[LiveUpstream, ...], key: bytes = b"") -> list[LiveUpstream]:
        first = self.pick(eligible)
        others = [upstream for upstream in eligible if upstream is not first]
        self._rng.shuffle(others)
        return [first, *others]

"""Uniformly random."""

from random import Random

from slb.balance.upstream import LiveUpstream


class RandomChoice:
    """Every eligible upstream with the same probability."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def pick(self, eligible: tuple[LiveUpstream, ...]) -> LiveUpstream:
        return self._rng.choice(eligible)

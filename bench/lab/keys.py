"""Which keys are asked for: few of them often, most of them seldom."""

import math
from itertools import accumulate
from random import Random

_BATCH = 4096


class ZipfKeys:
    """Of `number` keys the k-th is drawn in proportion to 1 / k ** `exponent` (Zipf's law)."""

    def __init__(self, number: int, exponent: float, rng: Random) -> None:
        self.keys = tuple(f"/products/{rank}".encode() for rank in range(1, number + 1))
        self._up_to = list(accumulate(math.pow(rank, -exponent) for rank in range(1, number + 1)))
        self._rng = rng
        self._drawn: list[bytes] = []

    def draw(self) -> bytes:
        if not self._drawn:
            self._drawn = self._rng.choices(self.keys, cum_weights=self._up_to, k=_BATCH)
        return self._drawn.pop()

    def share(self, rank: int) -> float:
        """The part of all requests that is for the key of this rank, 1 being the first."""
        before = self._up_to[rank - 2] if rank > 1 else 0.0
        return (self._up_to[rank - 1] - before) / self._up_to[-1]

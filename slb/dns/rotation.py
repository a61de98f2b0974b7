"""Which records an answer has, where there are more than fit, and in what order: evenly fair, without a count of
who got what. Pure but for its random numbers."""

from collections.abc import Sequence
from random import Random

_COUNTS = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 24, 32, 40, 48, 64, 73)
"""So many records an answer has, or all: a client that asks with each size in turn makes no more answers than
these, which are kept."""


class Rotation:
    """Records in a ring whose order is random. An answer has those from one place on, so many as fit. Every round
    begins once at each place, in a random order: so within a round each record comes first exactly once, and stands
    in exactly as many answers as any other. What follows the first is shuffled once and kept: an answer costs no
    more for many records than for one."""

    def __init__(self, records: Sequence[bytes], rng: Random) -> None:
        self.size = max(map(len, records), default=0)
        self._rng = rng
        self._ring = rng.sample(records, len(records))
        self._kept: dict[int, list[bytes | None]] = {}
        self._rounds: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self._ring)

    def count(self, most: int) -> int:
        """How many records an answer has that has room for `most`."""
        if most >= len(self._ring):
            return len(self._ring)
        return max((each for each in _COUNTS if each <= most), default=0)

    def take(self, count: int) -> bytes:
        """So many records, as `count` gave it, one after another."""
        if not count:
            return b""
        left = self._rounds.get(count)
        if not left:
            left = self._rounds[count] = self._rng.sample(range(len(self._ring)), len(self._ring))
        kept = self._kept.setdefault(count, [None] * len(self._ring))
        place = left.pop()
        found = kept[place]
        if found is None:
            found = kept[place] = self._made(place, count)
        return found

    def _made(self, place: int, count: int) -> bytes:
        first, *others = (self._ring * 2)[place : place + count] if count < len(self._ring) else self._from(place)
        self._rng.shuffle(others)
        return b"".join((first, *others))

    def _from(self, place: int) -> list[bytes]:
        return self._ring[place:] + self._ring[:place]

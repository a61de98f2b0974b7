"""Consistent hashing (Karger 1997) that places and picks as Zalando's Skipper does.

Each endpoint has a hundred positions on a circle of 64 bits, the xxHash64 of `<endpoint>-0` to `<endpoint>-99`; a
key belongs to the first position at or after its own hash. So one of N that comes or goes moves about 1/N of the
keys, and an endpoint's positions do not depend on the other endpoints.
"""

from array import array
from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator
from itertools import chain

from xxhash import xxh64_intdigest

from slb.balance.ring_run import Run, drained, endpoint, merged, once, placed, thinned
from slb.balance.upstream import LiveUpstream
from slb.errors import SlbError

__all__ = ["EmptyRing", "Ring", "endpoint"]


SECTOR = 32
"""Positions in a sector, about; the circle is cut into a power of two."""

MOST_SECTOR_BITS = 10


class EmptyRing(SlbError, LookupError):
    """A ring without upstreams was asked for."""


class Ring:
    """Immutable. Made by `of`, `adding`, `without`, or by their sliced twins `build` and `growing`: generators that
    return the ring and yield each millisecond or so, so that no request has to wait for it.

    `upstreams` is ordered by member, `members` is the same as a set. An endpoint is in a ring once: where two
    upstreams have one endpoint, the first given stays.
    """

    __slots__ = ("_owners", "_positions", "_run", "_shift", "_starts", "members", "upstreams")

    def __init__(self, upstreams: Iterable[LiveUpstream], run: Run) -> None:
        """For this module: `run` holds the positions of just these `upstreams`. Raises EmptyRing."""
        self.upstreams = tuple(sorted(upstreams, key=_member))
        if not self.upstreams:
            raise EmptyRing("a ring needs at least one upstream")
        self.members = frozenset(self.upstreams)
        self._run = run
        self._positions = run.positions
        self._owners = [*run.owners, run.owners[0]]  # past the last position the circle begins again
        self._shift, self._starts = _sectors(run.positions)

    @classmethod
    def build(cls, upstreams: Iterable[LiveUpstream]) -> Generator[None, None, "Ring"]:
        each = once(upstreams)
        return cls(each, (yield from placed(each)))

    @classmethod
    def of(cls, upstreams: Iterable[LiveUpstream]) -> "Ring":
        return drained(cls.build(upstreams))

    def growing(self, upstreams: Iterable[LiveUpstream]) -> Generator[None, None, "Ring"]:
        """This ring and `upstreams` too; this very ring where all their endpoints are in it."""
        here = set(map(endpoint, self.upstreams))
        new = [upstream for upstream in once(upstreams) if endpoint(upstream) not in here]
        if not new:
            return self
        run = yield from placed(new)
        return Ring([*self.upstreams, *new], (yield from merged(self._run, run)))

    def adding(self, upstreams: Iterable[LiveUpstream]) -> "Ring":
        return drained(self.growing(upstreams))

    def without(self, upstreams: Iterable[LiveUpstream]) -> "Ring":
        """This ring without `upstreams`; this very ring where none of them is in it. Raises EmptyRing."""
        staying = self.members.difference(upstreams)
        if len(staying) == len(self.members):
            return self
        return Ring(staying, thinned(self._run, staying))

    def pick(self, key: bytes) -> LiveUpstream:
        """The upstream that owns `key`."""
        digest, starts = xxh64_intdigest(key), self._starts
        sector = digest >> self._shift
        return self._owners[bisect_left(self._positions, digest, starts[sector], starts[sector + 1])]

    def walk(self, key: bytes) -> Iterator[LiveUpstream]:
        """All upstreams clockwise from `key`: its owner first, each once."""
        owner = self.pick(key)
        yield owner  # nearly always the only one that is asked for
        seen = {owner}
        owners = self._run.owners
        start = bisect_left(self._positions, xxh64_intdigest(key))
        for at in chain(range(start, len(owners)), range(start)):
            if len(seen) == len(self.upstreams):
                return
            owner = owners[at]
            if owner not in seen:
                yield owner
                seen.add(owner)

    def shares(self) -> Generator[None, None, dict[str, float]]:
        """What part of all keys each member owns. Yields each thousand positions."""
        found = dict.fromkeys(map(_member, self.upstreams), 0.0)
        before, whole = self._positions[-1] - (1 << 64), float(1 << 64)
        for count, (position, owner) in enumerate(zip(self._positions, self._run.owners, strict=True), 1):
            found[owner.member] += (position - before) / whole
            before = position
            if count % 1000 == 0:
                yield
        return found

    def __len__(self) -> int:
        return len(self.upstreams)

    def __contains__(self, upstream: LiveUpstream) -> bool:
        return upstream in self.members

    def __repr__(self) -> str:
        return f"<Ring {' '.join(map(_member, self.upstreams))}>"


def _sectors(positions: "array[int]") -> tuple[int, list[int]]:
    """The circle cut into equal sectors: how far a hash is shifted to the right to give its sector, and where the
    positions of each start. To search one sector takes a third off a pick."""
    bits = min(MOST_SECTOR_BITS, (len(positions) // SECTOR).bit_length())
    shift = 64 - bits
    return shift, [bisect_left(positions, sector << shift) for sector in range((1 << bits) + 1)]


def _member(upstream: LiveUpstream) -> str:
    return upstream.member

"""What a ring is made of: sorted positions and their owners; made, merged and thinned.

What may take long is a generator: its caller may serve requests between two steps.
"""

from array import array
from bisect import bisect_left
from collections.abc import Collection, Generator, Iterable
from itertools import compress
from typing import NamedTuple, TypeVar

from xxhash import xxh64_intdigest

from slb.balance.upstream import LiveUpstream

T = TypeVar("T")

POSITIONS = 100
"""Of each endpoint, as in Skipper."""

WORDS = "Q"
"""64 bits."""

_SUFFIXES = tuple(b"-%d" % number for number in range(POSITIONS))
_SECTOR_BITS = 8
_SLICE = 500  # positions worked on from one step to the next: about a quarter of a millisecond


def endpoint(upstream: LiveUpstream) -> str:
    """`scheme://host:port`, the string that is hashed."""
    member = upstream.member  # it carries its scheme where that is https
    return member if "://" in member else f"http://{member}"


def once(upstreams: Iterable[LiveUpstream]) -> list[LiveUpstream]:
    """`upstreams`, each endpoint once."""
    first: dict[str, LiveUpstream] = {}
    for upstream in upstreams:
        first.setdefault(endpoint(upstream), upstream)
    return list(first.values())


class Run(NamedTuple):
    """`owners[i]` owns `positions[i]`; not to be changed. Sorted by position, and the owners of one and the same
    position by endpoint: the first of them gets its keys, in whatever order the ring came about."""

    positions: "array[int]"  # machine words: a list takes five times the memory, and as much cache
    owners: list[LiveUpstream]


def drained(work: Generator[None, None, T]) -> T:
    """Run `work` at once. Returns its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def placed(upstreams: Iterable[LiveUpstream]) -> Generator[None, None, Run]:
    """The run of `upstreams`, no two of which have one endpoint."""
    hashes: list[int] = []
    owners: list[LiveUpstream] = []
    # One sort of all would hold the loop, so the circle is cut into sectors, each sorted for itself.
    sectors: list[list[int]] = [[] for _ in range(1 << _SECTOR_BITS)]
    for upstream in sorted(upstreams, key=endpoint):
        name = endpoint(upstream).encode()
        positions = [xxh64_intdigest(name + suffix) for suffix in _SUFFIXES]
        for at, position in enumerate(positions, len(hashes)):
            sectors[position >> (64 - _SECTOR_BITS)].append(at)
        hashes += positions
        owners += [upstream] * POSITIONS
        if len(hashes) % _SLICE == 0:
            yield
    return (yield from _sorted(sectors, hashes, owners))


def _sorted(sectors: list[list[int]], hashes: list[int], owners: list[LiveUpstream]) -> Generator[None, None, Run]:
    run = Run(array(WORDS), [])
    since = 0
    for sector in sectors:
        sector.sort(key=hashes.__getitem__)  # stable: of equal hashes the first endpoint stays first
        run.positions.extend(map(hashes.__getitem__, sector))
        run.owners.extend(map(owners.__getitem__, sector))
        since += len(sector)
        if since >= _SLICE:
            since = 0
            yield
    return run


def merged(old: Run, new: Run) -> Generator[None, None, Run]:
    """Both in one."""
    run = Run(array(WORDS), [])
    done = 0
    for count, (position, owner) in enumerate(zip(*new, strict=True), 1):
        upto = _place(old, position, owner, done)
        run.positions.extend(old.positions[done:upto])
        run.owners.extend(old.owners[done:upto])
        run.positions.append(position)
        run.owners.append(owner)
        done = upto
        if count % _SLICE == 0:
            yield
    run.positions.extend(old.positions[done:])
    run.owners.extend(old.owners[done:])
    return run


def _place(run: Run, position: int, owner: LiveUpstream, start: int) -> int:
    at = bisect_left(run.positions, position, start)
    while at < len(run.positions) and run.positions[at] == position and endpoint(run.owners[at]) < endpoint(owner):
        at += 1
    return at


def thinned(run: Run, staying: Collection[LiveUpstream]) -> Run:
    """The part of `run` that `staying` own."""
    kept = list(map(staying.__contains__, run.owners))
    return Run(array(WORDS, compress(run.positions, kept)), list(compress(run.owners, kept)))

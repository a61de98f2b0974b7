"""How many routes name each member, so that one that leaves with its last route is known for it at once."""

from collections.abc import Generator, Iterator, Mapping
from itertools import chain

from slb.model import RouteRecord

Shift = dict[str, int]
"""member -> by how much its uses change."""

Settled = tuple[dict[str, int], list[str]]
"""How many routes name each of some members, and which members no route names."""

_SLICE = 1000
"""Members only counted between two yields: well under 5 ms of work."""


class Uses:
    """Changed by shifts alone, each with the swap it belongs to."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}

    def of(self, member: str) -> int:
        """How many routes name it."""
        return self._of.get(member, 0)

    def add(self, shift: Shift) -> Generator[None, None, Settled]:
        """What will be once `shift`, which is given away, has taken effect: to be settled before anything else is
        added. Yields between slices."""
        gone: list[str] = []
        for count, member in enumerate(shift if self._of else (), 1):
            shift[member] = left = shift[member] + self.of(member)
            if not left:
                gone.append(member)
            if count % _SLICE == 0:
                yield
        return shift, gone

    def settle(self, settled: Settled) -> list[str]:
        """So be it; the members that no route names any more."""
        uses, gone = settled
        if self._of:
            self._of.update(uses)
        else:
            self._of = uses  # the first table's: a hundred thousand
        for member in gone:
            del self._of[member]
        return gone


def note_change(old: RouteRecord | None, new: RouteRecord | None, shift: Shift) -> None:
    """Add to `shift` what one route's change does."""
    for member in new.members if new else ():
        shift[member] = shift.get(member, 0) + 1
    for member in old.members if old else ():
        shift[member] = shift.get(member, 0) - 1


def note_changes(
    old: Mapping[str, RouteRecord], new: Mapping[str, RouteRecord | None], shift: Shift, is_part: bool = False
) -> Iterator[None]:
    """Add to `shift` what lies between two tables, in slices; `is_part`: what `new` has no word of stays. Routes
    that are the same object cost little."""
    done = 0
    for path in chain(new, () if is_part else (path for path in old if path not in new)):
        before, after = old.get(path), new.get(path)
        done += 1
        if before is not after:
            note_change(before, after, shift)
            done += len(before.members if before else ()) + len(after.members if after else ())
        if done >= _SLICE:
            done = 0
            yield

"""How many routes name each member, so that one that leaves with its last route is known for it at once."""

from collections.abc import Iterator, Mapping
from itertools import chain

from slb.model import RouteRecord

Shift = dict[str, int]
"""member -> by how much its uses change."""

_SLICE = 1000
"""Members only counted between two yields: well under 5 ms of work."""


class Uses:
    """Changed by shifts alone, each with the swap it belongs to."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}

    def of(self, member: str) -> int:
        """How many routes name it."""
        return self._of.get(member, 0)

    def add(self, shift: Shift) -> list[str]:
        """Let `shift` take effect; the members that no route names any more. `shift` is given away."""
        if not self._of:
            self._of = shift  # the first table's: a hundred thousand
            return []
        gone = []
        for member, by in shift.items():
            self._of[member] = left = self.of(member) + by
            if not left:
                del self._of[member]
                gone.append(member)
        return gone


def note_change(old: RouteRecord | None, new: RouteRecord | None, shift: Shift) -> None:
    """Add to `shift` what one route's change does."""
    for member in new.members if new else ():
        shift[member] = shift.get(member, 0) + 1
    for member in old.members if old else ():
        shift[member] = shift.get(member, 0) - 1


def note_changes(old: Mapping[str, RouteRecord], new: Mapping[str, RouteRecord], shift: Shift) -> Iterator[None]:
    """Add to `shift` what lies between two tables, in slices. Routes that are the same object cost little."""
    done = 0
    for path in chain(new, (path for path in old if path not in new)):
        before, after = old.get(path), new.get(path)
        done += 1
        if before is not after:
            note_change(before, after, shift)
            done += len(before.members if before else ()) + len(after.members if after else ())
        if done >= _SLICE:
            done = 0
            yield

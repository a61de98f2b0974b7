"""How many routes name each member, so that one that leaves with its last route is known for it at once."""

from collections.abc import Iterator, Mapping
from itertools import chain

from slb.model import RouteRecord

Shift = dict[str, int]
"""member -> by how much its uses change; once prepared, what they are then."""

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
        """Let `shift`, which is given away, take effect; the members that no route names any more. It has been
        through `prepare`, and nothing has changed since."""
        gone = [member for member, left in shift.items() if not left]
        if self._of:
            self._of.update(shift)
        else:
            self._of = shift  # the first table's: a hundred thousand
        for member in gone:
            del self._of[member]
        return gone

    def prepare(self, shift: Shift) -> Iterator[None]:
        """Turn what changes into what will be, in slices."""
        for count, member in enumerate(shift, 1):
            shift[member] += self.of(member)
            if count % _SLICE == 0:
                yield


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

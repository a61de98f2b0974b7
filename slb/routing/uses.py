"""How many routes name each member, so that a member without a route is found at once."""

from collections.abc import Generator, Iterator, Mapping

from slb.model import RouteRecord

Shift = dict[str, int]
"""member -> by how much its uses change."""

Settled = tuple[dict[str, int], list[str]]
"""How many routes name each of some members, and which members no route names."""

_SLICE = 1000
"""Members counted between two yields."""


class Uses:
    def __init__(self) -> None:
        self._of: dict[str, int] = {}

    def of(self, member: str) -> int:
        return self._of.get(member, 0)

    def add(self, shift: Shift) -> Generator[None, None, Settled]:
        """The counts after `shift`, for `settle`, which has to be called before the next `add`. The caller must not
        use `shift` again. Yields between slices."""
        gone: list[str] = []
        for count, member in enumerate(shift if self._of else (), 1):
            shift[member] = left = shift[member] + self.of(member)
            if not left:
                gone.append(member)
            if count % _SLICE == 0:
                yield
        return shift, gone

    def settle(self, settled: Settled) -> list[str]:
        """Put the counts from `add` into effect. Returns the members that no route names any more."""
        uses, gone = settled
        if self._of:
            self._of.update(uses)
        else:
            self._of = uses  # the first table's: a hundred thousand
        for member in gone:
            del self._of[member]
        return gone


def note_changes(
    old: Mapping[str, RouteRecord], new: Mapping[str, RouteRecord | None], shift: Shift
) -> Iterator[None]:
    """Add to `shift` what changes when `new` (None removes a route) is put into `old`. Yields between slices.
    Routes that are the same object cost little."""
    done = 0
    for path, after in new.items():
        before = old.get(path)
        done += 1
        if before is not after:
            for record, step in ((before, -1), (after, 1)):
                for member in record.members if record else ():
                    shift[member] = shift.get(member, 0) + step
                    done += 1
        if done >= _SLICE:
            done = 0
            yield

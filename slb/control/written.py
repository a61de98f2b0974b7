"""What this instance has written itself, with the numbers that Redis gave it. The log tells them too, but a moment
later: a Redis that is lost in that moment would lose a change that has been answered. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from slb.control import keys
from slb.control.history import Snapshot, state

Row = tuple[str, str, Sequence[str]]
"""An operation of `lua/change.lua`, a key, its arguments."""

_MOST = 10_000
"""Entries that are kept: twice what the log holds."""

_IF_DONE = frozenset({"expire", "remove_after"})
"""Operations that may change nothing; others give a number to what was so already."""

_NO_ENTRY = frozenset({"lease", "all"})


class Written:
    """By entry the last number and the rows that have it, until `known`."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[int, list[Row]]] = {}

    def note(self, rows: Sequence[Row], replies: Sequence[bool], number: int) -> bool:
        """All of this was written under one number. Whether any of it has that number in the log. The oldest are
        forgotten where there are too many."""
        is_logged = False
        for row, reply in zip(rows, replies, strict=True):
            if reply or row[0] not in _IF_DONE:
                for entry in _entries(row):
                    before, same = self._of.pop(entry, (0, []))
                    self._of[entry] = number, [*same, row] if before == number else [row]
                    is_logged = True
        while len(self._of) > _MOST:
            del self._of[next(iter(self._of))]
        return is_logged

    def known(self, entry: str, number: int) -> None:
        """The log has told this number of it."""
        noted = self._of.get(entry)
        if noted is not None and noted[0] <= number:
            del self._of[entry]

    def shown_in(self, table: Snapshot) -> Iterator[tuple[str, int]]:
        """The entries that are in `table` what was made of them here, and the numbers."""
        for entry, (number, rows) in self._of.items():
            stands = state(entry, table)
            if stands is not None and all(_is_made(row, stands.value) for row in rows):
                yield entry, number

    def forget(self) -> None:
        """Redis has another table now."""
        self._of.clear()


def _entries(row: Row) -> Iterator[str]:
    operation, key, given = row
    if operation in ("join", "leave", "expire", "clear"):
        yield from (f"{key} {member}" for member in given)
    elif operation in ("set", "describe", "unset"):
        yield from (keys.field_entry(key, field) for field in (given if operation == "unset" else given[::2]))
    elif operation not in _NO_ENTRY:
        yield key


def _is_made(row: Row, value: bool | Mapping[str, str]) -> bool:
    """Whether `value` is what this row makes."""
    operation, _, given = row
    if isinstance(value, bool):
        return value is (operation == "join")
    if operation == "unset":
        return not value
    fields = dict(zip(given[::2], given[1::2], strict=True))
    return value.items() <= fields.items() and bool(value) if operation in ("set", "describe") else fields == value

"""What this instance has written itself, with the numbers that Redis gave it. They stand in the log too, but are
read a moment later: a Redis that is lost in that moment would lose a change that has been answered. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from slb.control import keys

Row = tuple[str, str, Sequence[str]]
"""An operation of `lua/change.lua`, a key, its arguments."""

_MOST = 10_000
"""Entries that are kept: twice what the log holds."""

_IF_DONE = frozenset({"expire", "remove_after", "remove_unused", "found", "lost"})
"""Operations that may change nothing; others give a number to what was so already."""

_NO_ENTRY = frozenset({"lease", "all", "fence", "claim", "forget"})


class Written:
    """For each entry its last number and new state, until `known` is called."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[int, bool | Mapping[str, str]]] = {}

    def note(self, rows: Sequence[Row], replies: Sequence[bool], number: int) -> bool:
        """Note rows that were written under one number. Returns whether any of them has that number in the log."""
        is_logged = False
        for row, reply in zip(rows, replies, strict=True):
            if reply or row[0] not in _IF_DONE:
                for entry, value in _made(row):
                    self._of.pop(entry, None)
                    self._of[entry] = number, value
                    is_logged = True
        while len(self._of) > _MOST:  # the oldest
            del self._of[next(iter(self._of))]
        return is_logged

    def known(self, entry: str, number: int) -> None:
        """The log has been read up to `number` of `entry`: own writes up to it are dropped here."""
        noted = self._of.get(entry)
        if noted is not None and noted[0] <= number:
            del self._of[entry]

    def number(self, entry: str) -> int:
        """The number it was written under; 0 where it was not written, or the log has been read up to there."""
        return self._of.get(entry, (0,))[0]

    def made(self) -> Iterator[tuple[str, int, bool | Mapping[str, str]]]:
        """Entries, their numbers and their new values, in the form of `State.value`."""
        for entry, (number, value) in self._of.items():
            yield entry, number, value

    def forget(self) -> None:
        self._of.clear()


def _made(row: Row) -> Iterator[tuple[str, bool | Mapping[str, str]]]:
    """The entries of a row, and their new values."""
    operation, key, given = row
    if operation in ("join", "leave", "expire", "clear"):
        yield from ((f"{key} {member}", operation == "join") for member in given)
    elif operation in ("found", "lost"):
        yield f"{key} {given[0]}", operation == "found"
    elif operation == "unset":
        yield from ((keys.field_entry(key, field), {}) for field in given)
    elif operation in ("remove_after", "remove_unused"):
        yield key, {}
    elif operation not in _NO_ENTRY:
        fields = dict(zip(given[::2], given[1::2], strict=True))
        if operation in ("set", "describe"):
            yield from ((keys.field_entry(key, field), {field: text}) for field, text in fields.items())
        else:
            yield key, fields

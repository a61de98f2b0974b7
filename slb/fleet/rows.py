"""Sends a table row by row: only what has changed, so many rows at a time, the oldest change first. Pure."""

from collections.abc import Container
from itertools import chain, islice
from typing import Generic, TypeVar

_Row = TypeVar("_Row")


class Rows(Generic[_Row]):
    """`most` rows go with one message, so a message is bounded whatever changes; the rest goes with the next ones.
    A row that is `nothing` need not be sent to those who know nothing of it."""

    def __init__(self, most: int, nothing: _Row) -> None:
        self._most = most
        self._nothing = nothing
        self._sent: dict[str, _Row] = {}
        self._urgent: dict[str, _Row] = {}
        self._waiting: dict[str, _Row] = {}

    def offer(self, name: str, row: _Row, is_urgent: bool = False) -> None:
        """The row is this now. `is_urgent`: it goes before those that are not."""
        if row == self._sent.get(name, self._nothing):
            self._urgent.pop(name, None)
            self._waiting.pop(name, None)
        elif is_urgent or name in self._urgent:
            self._waiting.pop(name, None)
            self._urgent[name] = row
        else:
            self._waiting[name] = row

    def keep(self, names: Container[str]) -> None:
        """All others are nothing from now on."""
        for name in [name for name in chain(self._sent, self._urgent, self._waiting) if name not in names]:
            self.offer(name, self._nothing)

    def forget(self, name: str) -> None:
        """It is nothing from now on."""
        self.offer(name, self._nothing)

    def take(self) -> list[tuple[str, _Row]]:
        """Those to send now."""
        taken: list[tuple[str, _Row]] = []
        for name in list(islice(chain(self._urgent, self._waiting), self._most)):
            row = self._urgent.pop(name) if name in self._urgent else self._waiting.pop(name)
            taken.append((name, row))
            if row == self._nothing:
                self._sent.pop(name, None)
            else:
                self._sent[name] = row
        return taken

    def begin_anew(self) -> None:
        """Those who read know nothing."""
        for each in (self._sent, self._urgent, self._waiting):
            each.clear()

"""One queue of several classes: first come first served within a class, weighted fair across them.

Start-time fair queueing (Goyal, Vin, Cheng 1996) with requests of length 1. A class has a `pass`, the virtual time
at which it may be served next; serving it adds 1/weight. A class that comes back after a pause starts at the
present virtual time. Without clock and random numbers, so that `grants.lua` can do exactly the same in Redis.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

Ticket = TypeVar("Ticket")
Found = TypeVar("Found")


class _Entry(NamedTuple, Generic[Ticket]):
    number: int
    weight: float
    ticket: Ticket


_number = attrgetter("number")


class FairQueue(Generic[Ticket]):
    """Tickets (hashable) in the order of their numbers, by class (`priority`)."""

    def __init__(self) -> None:
        # A sorted list each: numbers ascend, so a push appends, a search is a bisection, and moving up 1,000
        # entries of 8 bytes costs less than one step of any tree written in Python.
        self._classes: dict[str, list[_Entry[Ticket]]] = {}
        self._passes: dict[str, float] = {}
        self._virtual_time = 0.0
        self._places: dict[Ticket, tuple[str, int]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Ticket]:
        """All tickets by number."""
        entries = (entry for entries in self._classes.values() for entry in entries)
        return iter([entry.ticket for entry in sorted(entries, key=_number)])

    def position(self, ticket: Ticket) -> int:
        """How many of its class are before it. Raises KeyError where it does not wait."""
        return self._index(ticket)

    def push(self, ticket: Ticket, priority: str, weight: float, number: int) -> None:
        """Queue `ticket`, unless it waits already. `number`: its place in the class, unique. One whose grant was
        not used is pushed again with its old number: it keeps its place, and its class is not refunded."""
        if ticket in self._places:
            return
        if priority not in self._classes:
            self._classes[priority] = []
            self._passes[priority] = max(self._passes.get(priority, 0.0), self._virtual_time)
        insort(self._classes[priority], _Entry(number, weight, ticket), key=_number)
        self._places[ticket] = (priority, number)

    def pop(self, usable: Callable[[Ticket], Found | None]) -> tuple[Ticket, Found] | None:
        """Take out the next ticket for which `usable` finds something, with that; None where there is none. Tickets
        and classes that are passed over keep their places and are not charged."""
        for priority in sorted(self._classes, key=lambda name: (self._passes[name], name)):
            for index, entry in enumerate(self._classes[priority]):
                found = usable(entry.ticket)
                if found is not None:
                    self._charge(priority, entry.weight)
                    self._take_out(priority, index)
                    return entry.ticket, found
        return None

    def remove(self, ticket: Ticket) -> bool:
        """Take out a ticket; False where it did not wait."""
        if ticket not in self._places:
            return False
        self._take_out(self._places[ticket][0], self._index(ticket))
        return True

    def _index(self, ticket: Ticket) -> int:
        priority, number = self._places[ticket]
        return bisect_left(self._classes[priority], number, key=_number)

    def _charge(self, priority: str, weight: float) -> None:
        # A class that was passed over because it could use nothing has not saved up its share.
        self._virtual_time = max(self._virtual_time, self._passes[priority])
        self._passes[priority] = self._virtual_time + 1 / weight

    def _take_out(self, priority: str, index: int) -> None:
        entries = self._classes[priority]
        del self._places[entries.pop(index).ticket]
        if not entries:
            del self._classes[priority]
        if not self._classes:
            self._passes.clear()  # else they would lose precision as they grow, and classes no longer named stay
            self._virtual_time = 0.0

"""What a holder has and waits for, in parts that fit into one batch."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TypeVar

from slb.control.asks import Asks
from slb.control.batch import MOST_ASKS, MOST_HELD, MOST_WAITING, Ticket

_T = TypeVar("_T")
_number = attrgetter("number")


class Parts:
    """`held` and `asks` are the lane's own. A full batch carries all that is held, and as many of the waiting
    tickets as fit: `unsent` are those for the batches behind it. Beats send all again, a part each."""

    def __init__(self, held: Mapping[str, int], asks: Asks) -> None:
        self.unsent: list[Ticket] = []
        self._held = held
        self._asks = asks
        self._turn = 0

    @property
    def are_one(self) -> bool:
        """Whether all fits into one batch."""
        return len(self._held) <= MOST_HELD and len(self._asks.queued) <= MOST_WAITING

    def begin(self, tickets: bool) -> None:
        """A full batch is made, and carries the `tickets` too, or leaves them to a later one."""
        self.unsent = sorted(self._asks.queued.values(), key=_number) if tickets else []

    def next_unsent(self) -> list[Ticket]:
        """The next tickets of a full batch that still wait; they leave `unsent`."""
        waiting = [ticket for ticket in self.unsent if ticket.key in self._asks.queued]
        self.unsent = waiting[MOST_ASKS:]
        return waiting[:MOST_ASKS]

    def next_of_all(self) -> tuple[dict[str, int], list[Ticket]]:
        """What the next beat sends whole: after as many beats as there are parts, Redis has been sent all."""
        self._turn += 1
        held = _part_of(sorted(self._held), self._turn, MOST_HELD)
        keys = _part_of(list(self._asks.queued), self._turn, MOST_WAITING)
        return {member: self._held[member] for member in held}, [self._asks.queued[key] for key in keys]


def _part_of(everything: Sequence[_T], number: int, size: int) -> Sequence[_T]:
    parts = max(1, -(-len(everything) // size))
    first = number % parts * size
    return everything[first : first + size]

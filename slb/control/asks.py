"""Who has asked in one lane: pending, then in a batch in flight, then in the queue, until answered."""

from collections.abc import Iterator
from itertools import islice

from slb.balance.asking import Ask
from slb.control.batch import MOST_ASKS, Ticket


class Asks:
    """`pending`: not sent yet, each with when it was brought; `flying`: in the batch in flight; `queued`: those in
    Redis's queue, by the key of their ticket. Times are the event loop's."""

    def __init__(self) -> None:
        self.pending: dict[Ask, float] = {}
        self.flying: dict[Ask, Ticket] = {}
        self.queued: dict[int, Ticket] = {}
        self._left_in_flight: set[Ask] = set()
        self._key_of: dict[Ask, int] = {}
        self._last_key = 0
        self._flying_since = 0.0

    def __bool__(self) -> bool:
        return bool(self.pending or self.flying or self.queued)

    @property
    def oldest(self) -> float | None:
        """When the first came that bounds the batch in flight, or about to fly."""
        return self._flying_since if self.flying else next(iter(self.pending.values()), None)

    def views(self) -> set[str]:
        """The routes of all of them."""
        return {ask.view for ask in (*self.pending, *self.flying, *self._key_of)}

    def known_to_redis(self) -> Iterator[Ticket]:
        """All that Redis knows of by now, or will with the batch in flight."""
        yield from self.queued.values()
        yield from self.flying.values()

    def board(self) -> None:
        """Those that go with the next batch: at most so many, in the order they came."""
        boarding = list(islice(self.pending, MOST_ASKS))
        if boarding:
            self._flying_since = self.pending[boarding[0]]
        for ask in boarding:
            del self.pending[ask]
            self._last_key += 1
            self.flying[ask] = Ticket(self._last_key, ask, ask.number)

    def land(self) -> Iterator[tuple[Ticket, bool]]:
        """The batch has been answered: each that flew with it, in order, and whether it has left meanwhile."""
        flying, self.flying = self.flying, {}
        left, self._left_in_flight = self._left_in_flight, set()
        return ((ticket, ticket.ask in left) for ticket in flying.values())

    def turn_back(self) -> None:
        """The batch came to nothing: who flew with it waits for the next, before all others."""
        since = self._flying_since
        again = {ticket.ask: since for ticket, left in self.land() if not left}
        self.pending = again | self.pending

    def queue(self, ticket: Ticket) -> None:
        """It has a place in the queue."""
        self.queued[ticket.key] = ticket
        self._key_of[ticket.ask] = ticket.key

    def take(self, key: int) -> Ticket | None:
        """Its ticket has been granted something; None where it has left."""
        ticket = self.queued.pop(key, None)
        if ticket is not None:
            del self._key_of[ticket.ask]
        return ticket

    def leave(self, ask: Ask) -> int | None:
        """Its asker has left. The key of its ticket, where Redis has to be told."""
        if self.pending.pop(ask, None) is not None:
            return None
        if ask in self.flying:
            self._left_in_flight.add(ask)
            return None
        key = self._key_of.pop(ask, None)
        if key is not None:
            del self.queued[key]
        return key

    def hand_back(self) -> list[Ask]:
        """All there are, in their order; none is kept."""
        waiting = [ticket.ask for ticket in sorted(self.queued.values(), key=lambda ticket: ticket.number)]
        self.queued.clear()
        self._key_of.clear()
        flew = [ticket.ask for ticket, left in self.land() if not left]
        return [*waiting, *flew, *self.hand_back_pending()]

    def hand_back_pending(self) -> list[Ask]:
        """Those that were not sent yet."""
        pending, self.pending = list(self.pending), {}
        return pending

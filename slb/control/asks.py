"""The asks of one lane: pending, then in a batch in flight, then in the queue, until answered; parked before,
where Redis cannot decide yet."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from slb.balance.asking import Ask
from slb.control.batch import MOST_ASKS, Ticket


class Asks:
    """`pending`: not sent yet, in their order; `parked`: those of capped routes, while `parks`; `flying`: in the
    batch in flight; `queued`: those in Redis's queue, by the key of their ticket."""

    def __init__(self) -> None:
        self.parks = False
        self.parked: dict[Ask, None] = {}
        self.pending: dict[Ask, None] = {}
        self.flying: dict[Ask, Ticket] = {}
        self.queued: dict[int, Ticket] = {}
        self._left_in_flight: set[Ask] = set()
        self._key_of: dict[Ask, int] = {}
        self._last_key = 0

    def __bool__(self) -> bool:
        return bool(self.pending or self.parked or self.flying or self.queued)

    def bring(self, ask: Ask) -> None:
        place = self.parked if self.parks and is_capped(ask) else self.pending
        place[ask] = None

    def park(self) -> list[Ask]:
        """From now on asks of capped routes wait in `parked`. Those that cannot wait are removed and returned."""
        self.parks = True
        capped = [ask for ask in self.pending if is_capped(ask)]
        for ask in capped:
            del self.pending[ask]
        self.parked |= dict.fromkeys(ask for ask in capped if ask.patient)
        return [ask for ask in capped if not ask.patient]

    def unpark(self) -> None:
        """Those that were parked go before all others."""
        self.parks = False
        self.pending = self.parked | self.pending
        self.parked = {}

    def views(self) -> set[str]:
        return {ask.view for ask in (*self.pending, *self.parked, *self.flying, *self._key_of)}

    def unanswered(self) -> set[str]:
        """The routes of those that neither have an answer nor a place in the queue."""
        return {ask.view for ask in (*self.pending, *self.parked, *self.flying)}

    def board(self) -> None:
        """Those that go with the next batch: at most so many, in the order they came."""
        boarding = list(islice(self.pending, MOST_ASKS))
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
        """The batch came to nothing: asks that flew with it wait for the next, before all others."""
        again = {ticket.ask: None for ticket, left in self.land() if not left}
        self.pending = again | self.pending

    def queue(self, ticket: Ticket) -> None:
        self.queued[ticket.key] = ticket
        self._key_of[ticket.ask] = ticket.key

    def take(self, key: int) -> Ticket | None:
        """Its ticket has a slot now. None where its request has left."""
        ticket = self.queued.pop(key, None)
        if ticket is not None:
            del self._key_of[ticket.ask]
        return ticket

    def leave(self, ask: Ask) -> int | None:
        """Its request has left. Returns the key of its ticket, where Redis has one; else None."""
        for place in (self.pending, self.parked):
            if ask in place:
                del place[ask]
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
        unsent = [*self.parked, *self.pending]
        self.parked, self.pending = {}, {}
        return [*waiting, *flew, *unsent]

    def hand_back_hurried(self) -> list[Ask]:
        """Those without an answer that do not wait for a Redis that is late; what is granted to them later is given
        back."""
        unanswered = [*(ask for ask in self.flying if ask not in self._left_in_flight), *self.pending]
        hurried = [ask for ask in unanswered if not ask.patient]
        for ask in hurried:
            self.leave(ask)
        return hurried


class Answers:
    """The answers to asks, given at the end of a step: the receivers may call the lane again."""

    def __init__(self) -> None:
        self._answers: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def __bool__(self) -> bool:
        return bool(self._answers)

    def add(self, receive: Callable[..., None], *answer: Any) -> None:
        self._answers.append((receive, answer))

    def give(self) -> None:
        """Call all, in their order. One that raises is shown as the event loop shows it: others stand behind it."""
        answers, self._answers = self._answers, []
        for receive, answer in answers:
            try:
                receive(*answer)
            except Exception as error:  # noqa: BLE001 -- see above
                context = {"message": "a request broke when it was answered", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)


def is_capped(ask: Ask) -> bool:
    """Whether its route has a cap, which is all its candidates'."""
    return any(each.capacity for each in ask.candidates[:1])

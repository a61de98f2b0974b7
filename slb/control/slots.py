"""One pool's slots, as this instance has them: which it holds, which are asked for, and what Redis has yet to be
sent of that. No I/O: batches are sent in `dialogue`, which applies their replies here."""

from collections import Counter
from collections.abc import Container
from typing import Any

from slb.balance.asking import Ask, Candidate
from slb.control.asks import Answers, Asks
from slb.control.batch import Ticket, key_of
from slb.control.batch_builder import BatchBuilder
from slb.control.granted import Granted
from slb.control.views import Views

_REFUSALS = frozenset({"pool_saturated", "queue_full"})


class Slots:
    """`held`: the slots this instance has, by member, however they were decided. `asks`: those that wait for one;
    `views`: the candidates of their routes; `builder` builds what Redis is sent; `answers`: to asks, not yet
    given."""

    def __init__(self) -> None:
        self.held: Counter[str] = Counter()
        self.asks = Asks()
        self.views = Views()
        self.builder = BatchBuilder(self.held, self.asks, self.views)
        self.answers = Answers()

    # -- what the gate does

    def view(self, name: str, candidates: tuple[Candidate, ...]) -> bool:
        """Set the candidates of a route. Returns whether Redis has to be sent them, for tickets wait there."""
        if self.views.put(name, candidates) and any(
            ticket.ask.view == name for ticket in (*self.asks.queued.values(), *self.asks.flying.values())
        ):
            self.builder.change(name)
            return True
        return False

    def keep_views(self, names: Container[str]) -> None:
        in_use = self.builder.keeps()
        self.views.forget(lambda name: name not in names and name not in in_use)

    def leave(self, ask: Ask) -> bool:
        """The asking request has left. Whether Redis has to be sent that."""
        key = self.asks.leave(ask)
        if key is not None:
            self.builder.leave(key)
        return key is not None

    def release(self, member: str) -> None:
        self.held[member] -= 1
        if self.held[member] <= 0:
            del self.held[member]
        self._give_back(member)

    def in_vain(self, name: str, candidates: tuple[Candidate, ...]) -> list[Ask]:
        """The asks that wait in a route and can use none of its candidates, which are these now."""
        left = {each.member for each in candidates}
        waiting = [ticket.ask for ticket in self.asks.queued.values() if ticket.ask.view == name]
        return [ask for ask in waiting if len(ask.avoid) >= len(left) and left.issubset(ask.avoid)]

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held, asked or to be sent."""
        return not (self.held or self.asks) and self.builder.is_idle

    # -- what Redis has granted

    def receive(self, granted: Granted, holder: str) -> None:
        """Use a message's grants, where their tickets wait still, and for such slots."""
        for name, member in granted.grants:
            key = key_of(name, holder)
            ticket = self.asks.queued.get(key)
            if ticket is not None and self.views.has(ticket.ask.view, member):
                self.asks.take(key)
                self.builder.take(key, member)
                self._grant(ticket.ask, member)

    def ticket_granted(self, key: int, member: str) -> bool:
        """A reply's grant. Whether it shows that another grant, used by now, had been taken back."""
        if self.builder.was_taken(key, member):
            return False
        ticket = self.asks.take(key)
        if ticket is not None:
            self._grant(ticket.ask, member)
            return False
        self._give_back(member)  # it has left, or has a slot
        return self.builder.is_overtaken(key)

    def answered(self, ticket: Ticket, answer: Any, left: bool) -> None:
        """A reply's answer to an ask of its batch; `left`: its request has gone meanwhile."""
        if isinstance(answer, list):
            if left:
                self.builder.leave(ticket.key)
                return
            ticket.number, position = answer
            self.asks.queue(ticket)
            self.answers.add(ticket.ask.queued, position, ticket.number)
        elif answer in _REFUSALS:
            if not left:
                self.answers.add(ticket.ask.refused, answer)
        elif left:
            self._give_back(answer)
        else:
            self._grant(ticket.ask, answer)

    def _grant(self, ask: Ask, member: str) -> None:
        self.held[member] += 1
        self.answers.add(ask.granted, member)

    def _give_back(self, member: str) -> None:
        """Where there is no cap nothing waits for it: it may go with the next ask."""
        self.builder.release(member)
        if self.views.is_capped:
            self.builder.hurry()

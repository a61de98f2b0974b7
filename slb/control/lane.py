"""One instance's way to one pool's ledger, as its gate has it: requests ask here for slots and give them back."""

from collections.abc import Container

from slb.balance.asking import Ask, Candidate
from slb.control.asks import is_capped
from slb.control.dialogue import Dialogue
from slb.control.granted import Granted


class Lane(Dialogue):
    """While `state` is ready, asks that are patient may be brought here; the others not while it is late, for Redis
    takes longer than the budget, and those of capped routes not while `settling`, for Redis lacks what others
    hold."""

    # -- asks

    def takes(self, ask: Ask) -> bool:
        """Whether it may be brought here now; else it cannot wait for Redis, or Redis has not answered for long."""
        doubtful = self.state.late or (self.epochs.settling and is_capped(ask))
        return self.state.ready and (ask.patient or not doubtful)

    def ask(self, ask: Ask) -> None:
        """Bring one that it takes; `view` has been called for its route."""
        self.slots.asks.bring(ask)
        self.wake()

    def leave(self, ask: Ask) -> None:
        """The asking request has left. What is granted to it all the same is given back."""
        if self.slots.leave(ask):
            self.wake()

    def dismiss(self, name: str, candidates: tuple[Candidate, ...]) -> None:
        """These are a route's candidates now: a request that waits there and can use none of them waits in vain."""
        for ask in self.slots.in_vain(name, candidates):
            self.leave(ask)
            ask.refused("no_upstream")

    def unanswered(self) -> set[str]:
        """The routes of those that wait for Redis, and not in its queue."""
        return self.slots.asks.unanswered()

    # -- slots

    def release(self, member: str) -> None:
        """A granted slot is free again."""
        self.slots.release(member)
        self.timers.released()

    def send_all(self) -> None:
        """`held` was changed from outside the lane: send Redis all of it."""
        self.slots.builder.send_all()
        self.wake()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held, asked or to be sent."""
        return self.slots.is_idle

    # -- candidates

    def view(self, name: str, candidates: tuple[Candidate, ...]) -> None:
        """The candidates of a route from now on, also for tickets that wait. The same object where nothing
        changed."""
        if self.slots.view(name, candidates):
            self.wake()

    def keep_views(self, names: Container[str]) -> None:
        """Forget the candidates of all routes but these, and those in which a request still waits."""
        self.slots.keep_views(names)

    # -- grants

    def receive(self, granted: Granted) -> None:
        """A message of grants: they are used at once, and acknowledged behind that. Where that is not safe, or none
        of them is for one that waits here, Redis is asked."""
        if self.state.ready and self.epochs.trusts(granted, self._loop.time(), self.timing):
            self.slots.receive(granted, self.holder)
        if self.slots.answers:
            self.slots.answers.give()
            self.exchange.wake_later()
        else:
            self.look()

    def look(self) -> None:
        """Something may have been granted to a ticket of ours."""
        if self.slots.asks.queued or self.slots.asks.flying:
            self.slots.builder.look()
            self.wake()

    def wake(self) -> None:
        """Send what is due, unless a batch is in flight."""
        self.exchange.wake()

    @property
    def in_flight(self) -> bool:
        """Whether a batch has not been answered yet."""
        return self.exchange.in_flight

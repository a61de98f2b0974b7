"""One request at the gate: what it asks for, and the result."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from slb.balance.asking import Candidate, Scores, Turn
from slb.balance.upstream import Handle, LiveUpstream
from slb.errors import Reason
from slb.model import RouteSettings
from slb.observe.decisions import Queueing
from slb.routing.table import Route


class Waiter(Protocol):
    """A request that needs a slot. Exactly one method is called, unless the request leaves the gate before."""

    def admitted(self, handle: Handle) -> None:
        """It has a slot, until `handle` is released."""

    def rejected(self, reason: Reason, detail: str) -> None:
        """It gets no slot."""


class Owner(Protocol):
    """The gate that an entry came to. Each call says what happened: a slot of `member` was `granted`, which counts
    until `release`; or was `refused`; or the request is `queued`, with `position` others of its class before it, at
    the place `number` in Redis (0: not known); or it has ended (`leave`). `take`: a slot is in use unasked."""

    def granted(self, entry: "Entry", member: str) -> None: ...
    def refused(self, entry: "Entry", reason: str) -> None: ...
    def queued(self, entry: "Entry", position: int, number: int) -> None: ...
    def leave(self, entry: "Entry") -> None: ...
    def release(self, member: str) -> None: ...
    def take(self, member: str) -> None: ...


def is_patient(settings: RouteSettings, turn: Turn | None) -> bool:
    """Whether a request waits while Redis is late; one that may queue under a cap does in any case."""
    return settings.when_unsure == "wait" or (turn is not None and settings.max_inflight > 0)


@dataclass(slots=True)
class Wait:
    """How long a request waits, in seconds. `arrived`: when this attempt came, by the loop's clock; it may wait
    `left` from then on. `queued`: it queues now; `waited`: the time that it has queued; `position`: how many of its
    class were before it, None where it did not have to queue."""

    arrived: float
    left: float
    timer: asyncio.TimerHandle | None = None
    queued: bool = False
    waited: float = 0.0
    position: int | None = None


@dataclass(slots=True, eq=False)
class Entry:
    """An `Ask` of `waiter`, which is None once it was answered; its answers go to `owner`. `chosen`: the member
    whose slot it got; `reason`: why it got none; `is_here`: decided by this instance, not by Redis. `scores`: of
    one that queued or was refused those of an ask of its route a moment before, where it has none of its own."""

    owner: Owner
    route: Route
    waiter: Waiter | None
    candidates: tuple[Candidate, ...]
    avoid: tuple[str, ...]
    reluctant: tuple[str, ...]
    ordered: bool
    turn: Turn | None
    arrival: int
    wait: Wait
    patient: bool
    number: int = 0
    chosen: str = ""
    reason: str = ""
    is_here: bool = False
    scores: Scores | None = None

    @property
    def view(self) -> str:
        return self.route.path

    def follow(self, earlier: "Entry") -> None:
        """Take over from the request's last attempt what it has waited, and in the same gate its place."""
        before = earlier.wait
        self.wait.left, self.wait.waited, self.wait.position = before.left, before.waited, before.position
        if earlier.owner is self.owner:
            self.arrival, self.number = earlier.arrival, earlier.number

    def queueing(self) -> Queueing:
        """How it came to its slot, or to none."""
        scores = self.scores
        kept = scores.ref if scores is not None else None
        return Queueing("here" if self.is_here else "redis", self.wait.position, self.wait.waited, kept)

    def granted(self, member: str) -> None:
        self.owner.granted(self, member)

    def refused(self, reason: str) -> None:
        self.owner.refused(self, reason)

    def queued(self, position: int, number: int = 0) -> None:
        self.owner.queued(self, position, number)

    def leave(self) -> None:
        self.owner.leave(self)


class Lease(Handle):
    """A handle on a slot that the whole fleet counts."""

    __slots__ = ("_entry",)

    def __init__(self, upstream: LiveUpstream, entry: Entry) -> None:
        super().__init__(upstream)
        self._entry = entry

    def release(self, completed: bool = True) -> None:
        """Give the slot back, here and everywhere; every call after the first does nothing."""
        if self._held:
            super().release(completed)
            self._entry.owner.release(self.upstream.member)

    def moved(self, upstream: LiveUpstream) -> Handle:
        """As of any handle. The slot there counts whether it was free or not: the request is there already."""
        if not self._held:
            return super().moved(upstream)
        entry = self._entry
        entry.owner.take(upstream.member)
        entry.chosen = upstream.member
        return Lease(upstream, entry)

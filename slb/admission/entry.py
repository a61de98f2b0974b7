"""One request at the gate: what it asks for, and what has become of it."""

import asyncio
from typing import Protocol

from slb.balance.asking import Candidate, Turn
from slb.balance.upstream import Handle, LiveUpstream
from slb.errors import Reason
from slb.model import RouteSettings
from slb.routing.table import Route


class Waiter(Protocol):
    """A request that wants a slot. Exactly one of the two is called, unless it leaves the gate before."""

    def admitted(self, handle: Handle) -> None:
        """It has a slot, held by `handle` until that is released."""

    def rejected(self, reason: Reason, detail: str) -> None:
        """It gets none."""


class Owner(Protocol):
    """The gate that an entry came to. It alone changes what has become of the entry: it was `granted` a slot of
    `member`, which is its own until `release`; or `refused` one; or `queued`, with `position` others of its class
    before it, at the place `number` in Redis (0 where that is not known); or its request has ended (`leave`)."""

    def granted(self, entry: "Entry", member: str) -> None: ...
    def refused(self, entry: "Entry", reason: str) -> None: ...
    def queued(self, entry: "Entry", position: int, number: int) -> None: ...
    def leave(self, entry: "Entry") -> None: ...
    def release(self, member: str) -> None: ...


def is_patient(settings: RouteSettings, turn: Turn | None) -> bool:
    """Whether a request waits for a Redis that is late: one that may queue under a cap waits for a slot anyhow."""
    return settings.when_unsure == "wait" or (turn is not None and settings.max_inflight > 0)


class Entry:
    """An `Ask` as the ledger knows it; its answers go to `owner`. `position`: how many of its class were before it,
    None where it did not have to queue; `waited`: seconds it queued. `chosen`: the member it got; `reason`: why it
    got none. `arrived`: when this attempt came, `left`: seconds that it may wait then; `queues`: it waits now."""

    __slots__ = (
        *("arrival", "arrived", "avoid", "candidates", "chosen", "is_here", "left", "number", "ordered", "owner"),
        *("patient", "position", "queues", "reason", "reluctant", "route", "timer", "turn", "view", "waited"),
        "waiter",
    )

    def __init__(
        self,
        owner: Owner,
        route: Route,
        waiter: Waiter,
        candidates: tuple[Candidate, ...],
        avoid: tuple[str, ...],
        reluctant: tuple[str, ...],
        ordered: bool,
        turn: Turn | None,
        arrival: int,
        arrived: float,
    ) -> None:
        self.owner = owner
        self.route = route
        self.view = route.path
        self.waiter: Waiter | None = waiter
        self.candidates = candidates
        self.avoid = avoid
        self.reluctant = reluctant
        self.ordered = ordered
        self.turn = turn
        self.arrival = arrival
        self.number = 0
        self.patient = is_patient(route.settings, turn)
        self.arrived = arrived
        self.left = route.settings.queue_timeout
        self.position: int | None = None
        self.queues = False
        self.waited = 0.0
        self.chosen = ""
        self.reason = ""
        self.is_here = False
        self.timer: asyncio.TimerHandle | None = None

    def follow(self, earlier: "Entry") -> None:
        """Be the next attempt of a request whose last one this was: what it has waited counts, and in the same
        gate it keeps its place."""
        self.left, self.waited, self.position = earlier.left, earlier.waited, earlier.position
        if earlier.owner is self.owner:
            self.arrival, self.number = earlier.arrival, earlier.number

    def granted(self, member: str) -> None:
        self.owner.granted(self, member)

    def refused(self, reason: str) -> None:
        self.owner.refused(self, reason)

    def queued(self, position: int, number: int = 0) -> None:
        self.owner.queued(self, position, number)

    def leave(self) -> None:
        """Its request has ended."""
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
            self._entry.owner.release(self._entry.chosen)

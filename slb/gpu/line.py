"""Which calls use the slots of one GPU, and which of the others wait. Pure: no clock, no I/O."""

from enum import Enum
from typing import Generic, TypeVar

Call = TypeVar("Call")
"""Whatever stands for one call; it has to be hashable."""


class Arrival(Enum):
    """What becomes of a call that has come."""

    RUNS = "runs"
    """It has a slot."""
    WAITS = "waits"
    """It is a direct call, and stands in the queue."""
    BUSY = "busy"
    """It is the dispatcher's, and refused: no slot is free, or direct calls wait for one."""
    FULL = "full"
    """It is a direct call, and refused: the queue is full."""


class Line(Generic[Call]):
    """`slots` calls run at the same time. Direct calls that come meanwhile wait, at most `direct_queue` of them,
    and all of them have a slot before the dispatcher has one. Raises ValueError."""

    def __init__(self, slots: int, direct_queue: int) -> None:
        if slots < 1 or direct_queue < 0:
            raise ValueError(f"slots: {slots} has to be 1 or more, direct_queue: {direct_queue} 0 or more")
        self.slots = slots
        self.direct_queue = direct_queue
        self._running: set[Call] = set()
        self._waiting: dict[Call, None] = {}

    @property
    def running(self) -> int:
        """Calls that have a slot."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Direct calls in the queue."""
        return len(self._waiting)

    def arrive(self, call: Call, from_dispatcher: bool) -> Arrival:
        """A call has come. One that runs or waits has to `leave`, once."""
        if self.running < self.slots:  # then no call waits: `leave` passes a slot on at once
            self._running.add(call)
            return Arrival.RUNS
        if from_dispatcher:
            return Arrival.BUSY
        if self.waiting >= self.direct_queue:
            return Arrival.FULL
        self._waiting[call] = None
        return Arrival.WAITS

    def leave(self, call: Call) -> Call | None:
        """A call has ended, or waits no more. The call that has its slot from now on, None where there is none; a
        call that is not here changes nothing."""
        self._waiting.pop(call, None)
        self._running.discard(call)
        if not self._waiting or self.running >= self.slots:
            return None
        first = next(iter(self._waiting))
        del self._waiting[first]
        self._running.add(first)
        return first

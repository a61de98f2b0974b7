"""The slots of one GPU in an asyncio server."""

import asyncio
from typing import Any

from .line import Arrival, Line

FROM_DISPATCHER = "dispatcher"
"""The value of `X-Source` on the dispatcher's calls."""


class Refusal(Exception):
    """The call is to be answered with 503, and this text."""


class GpuBusy(Refusal):
    """The dispatcher's call: no slot is free, or direct calls wait. It tries another GPU, or this one later."""


class QueueFull(Refusal):
    """A direct call: as many wait as may."""


class Place:
    """One call's place: a slot, or a place in the queue until a slot is free. It has to be released; a second time
    does nothing. `is_kept`: the call's handler releases it."""

    def __init__(self, line: "Line[Place]") -> None:
        self.is_kept = False
        self._line = line
        self._has_slot = asyncio.Event()

    @property
    def has_slot(self) -> bool:
        """Whether it waits no more."""
        return self._has_slot.is_set()

    async def turn(self) -> None:
        """Wait for the slot."""
        await self._has_slot.wait()

    def keep(self) -> "Place":
        """Hold the slot beyond the answer, for work that goes on: whoever calls this calls `release` at its end, on
        the event loop's thread."""
        self.is_kept = True
        return self

    def release(self) -> None:
        """Give the slot, or the place in the queue, back."""
        following = self._line.leave(self)
        if following is not None:
            following.admit()

    def admit(self) -> None:
        """It has a slot now: the line says so."""
        self._has_slot.set()


class GpuSlots:
    """The slots of one GPU, for one process with one event loop. Direct calls that find none free wait, at most
    `direct_queue` of them; the dispatcher's calls never wait, and have a slot only where no direct call waits.
    Raises ValueError."""

    def __init__(self, slots: int = 1, direct_queue: int = 10) -> None:
        self._line: Line[Place] = Line(slots, direct_queue)

    @property
    def active_jobs(self) -> int:
        """Calls that have a slot now, with those whose work goes on behind their answer."""
        return self._line.running

    @property
    def waiting(self) -> int:
        """Direct calls that wait."""
        return self._line.waiting

    def health(self) -> dict[str, Any]:
        """For the answer of `/health`."""
        return {"active_jobs": self.active_jobs, "slots": self._line.slots, "direct_waiting": self.waiting}

    def arrive(self, source: str | None) -> Place:
        """The place of a call with this `X-Source` (None: it has none). Raises GpuBusy, QueueFull."""
        place = Place(self._line)
        arrival = self._line.arrive(place, source == FROM_DISPATCHER)
        if arrival is Arrival.BUSY:
            raise GpuBusy("GPU busy")
        if arrival is Arrival.FULL:
            raise QueueFull("Queue full")
        if arrival is Arrival.RUNS:
            place.admit()
        return place

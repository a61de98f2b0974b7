"""The slots that one instance waits for, for the jobs of one model: those that requests of its route wait for."""

import asyncio
from collections.abc import Callable

from slb.admission.entry import Entry
from slb.admission.gates import Gates
from slb.balance.asking import Turn
from slb.balance.upstream import Handle, LiveUpstream
from slb.errors import QUEUE_TIMEOUT, Reason
from slb.job import CLASS
from slb.jobs.busy import BusyGpus
from slb.model import RouteSettings
from slb.routing.mirror import Mirror
from slb.routing.table import Route

WEIGHT = 1 / 8
"""What that class weighs unless the `priorities` of the jobs' route say it: of requests of weight 1, which is the
least that they can have, eight are served while one job is."""

_QUEUED = 2
"""Places that one instance has in the queue for slots, for one model, until it has lost slots to others."""
_MOST_WAITING = 32
"""Slots that it waits for at once."""
_KEPT = 0.25
"""Seconds from its grant in which a slot may go over from a job to the next, while only jobs wait in its pool. To
give it back and to be granted it again costs a large part of a job of milliseconds; a job of seconds never keeps
one. So long at most the jobs of another model of this pool wait longer than their turn."""
_PAUSE = 0.5
"""Seconds before slots are asked for again, where none are to be had."""


def turn_of(settings: RouteSettings) -> Turn | None:
    """How jobs wait by the settings of their route. None where nothing waits."""
    if settings.when_full != "queue":
        return None
    return Turn(CLASS, dict(settings.priorities).get(CLASS, WEIGHT), settings.queue_limit)


class _Place:
    """One slot that is waited for."""

    def __init__(
        self, on_slot: Callable[["_Place", Handle], None], on_refusal: Callable[["_Place", Reason], None]
    ) -> None:
        self.entry: Entry | None = None
        self._on_slot = on_slot
        self._on_refusal = on_refusal

    def admitted(self, handle: Handle) -> None:
        self._on_slot(self, handle)

    def rejected(self, reason: Reason, detail: str) -> None:
        self._on_refusal(self, reason)


class Slots:
    """`on_slot` gets each slot that was waited for, to be released by it, and since when it is held; `on_pause` is
    called when a while is over in which none were to be had."""

    def __init__(
        self,
        path: str,
        gates: Gates,
        mirror: Mirror,
        on_slot: Callable[[Handle, float], None],
        on_pause: Callable[[], None],
    ) -> None:
        self._path = path
        self._gates = gates
        self._mirror = mirror
        self._on_slot = on_slot
        self._on_pause = on_pause
        self._loop = asyncio.get_running_loop()
        self._places: set[_Place] = set()
        self._wanted = 0
        self._busy = BusyGpus()
        self._timer: asyncio.TimerHandle | None = None

    def want(self, wanted: int) -> None:
        """So many jobs can be begun: wait for a few slots at a time, and for no more than that."""
        self._wanted = wanted
        while len(self._places) > wanted:
            place = self._places.pop()
            if place.entry is not None:
                place.entry.leave()
        self._ask(min(wanted, _QUEUED) - len(self._places))

    def ended(self, handle: Handle, since: float) -> None:
        """The job has ended whose slot this is, held since then: the next one has it; or it is given back, and
        asked for again in the same step of the ledger. That costs a fraction of what a place in the queue does, and
        there is one only where others took the slot."""
        if self._may_keep(handle, since):
            handle.goes_over()
            self._on_slot(handle, since)
            return
        handle.release(completed=True)
        if len(self._places) < min(self._wanted, _MOST_WAITING):
            self._ask(1)

    def _may_keep(self, handle: Handle, since: float) -> bool:
        now, member, route = self._loop.time(), handle.upstream.member, self._route
        if not self._wanted or now >= since + _KEPT or route is None or self._busy.is_left_alone(member, now):
            return False
        return turn_of(route.settings) is not None and self._gates.of(route).may_keep(route, member)

    def _ask(self, count: int) -> None:
        route = self._route
        for _ in range(count):  # a slot may be there at once: then its place is gone again
            if route is None or self._timer is not None:
                return
            place = _Place(self._got, self._refused)
            self._places.add(place)
            entry = self._enter(place, route, self._left_alone(route))
            if place in self._places:
                place.entry = entry

    async def at(self, member: str) -> Handle | None:
        """A slot of just this upstream, however long that takes; None once it is not registered any more."""
        while self.is_registered(member):
            route = self._route
            serves = route is not None and any(each.member == member for each in route.serving)
            if serves and route is not None and (handle := await self._next_at(member, route)) is not None:
                return handle
            await asyncio.sleep(_PAUSE)
        return None

    def is_registered(self, member: str) -> bool:
        """Whether the model's route has this upstream, be it healthy or not."""
        record = self._mirror.records.get(self._path)
        return record is not None and member in record.members

    async def _next_at(self, member: str, route: Route) -> Handle | None:
        """None where there is none for now."""
        slot: asyncio.Future[Handle | None] = self._loop.create_future()

        def got(_: _Place, handle: Handle) -> None:
            if slot.done():  # it was cancelled
                handle.release(completed=False)
            else:
                slot.set_result(handle)

        def refused(_: _Place, reason: Reason) -> None:
            if not slot.done():
                slot.set_result(None)

        place = _Place(got, refused)
        entry = self._enter(place, route, tuple(each for each in route.serving if each.member != member))
        try:
            return await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled() and (handle := slot.result()) is not None:
                handle.release(completed=False)
            elif not slot.done() or slot.cancelled():
                entry.leave()
            raise

    async def in_flight(self, member: str) -> int | None:
        """Its slots that are in use, everywhere and now; None where that is not known. Raises RedisUnavailable."""
        route = self._route
        return await self._gates.in_flight(route, member) if route is not None else None

    async def idle(self, member: str, silence: float) -> int:
        """It runs nothing: what instances hold of it that have been silent for so long is free. How many slots.
        Raises RedisUnavailable."""
        route = self._route
        return await self._gates.idle(route, member, silence) if route is not None else 0

    def was_busy(self, member: str, asks: float = 0.0) -> float:
        """Leave an upstream alone for a while, that asks for so many seconds. For how long."""
        return self._busy.found(member, self._loop.time(), asks)

    def had_time(self, member: str) -> None:
        """It was not busy."""
        self._busy.took(member)

    @property
    def _route(self) -> Route | None:
        return self._mirror.table.routes.get(self._path)

    def _enter(self, place: _Place, route: Route, avoided: tuple[LiveUpstream, ...]) -> Entry:
        return self._gates.of(route).enter(route, avoided, (), turn_of(route.settings), place)

    def _left_alone(self, route: Route) -> tuple[LiveUpstream, ...]:
        busy = self._busy.left_alone(self._loop.time())
        return tuple(each for each in route.serving if each.member in busy) if busy else ()

    def _got(self, place: _Place, handle: Handle) -> None:
        self._places.discard(place)
        if self._busy.is_left_alone(handle.upstream.member, self._loop.time()):  # it was asked for before
            handle.release(completed=False)
            self._pause()
        else:
            self._on_slot(handle, self._loop.time())

    def _refused(self, place: _Place, reason: Reason) -> None:
        """None for this while, since all are busy or gone; or the wait was over, and another one begins."""
        self._places.discard(place)
        if reason is QUEUE_TIMEOUT:
            self._loop.call_soon(self._on_pause)
        else:
            self._pause()

    def _pause(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(_PAUSE, self._paused)

    def _paused(self) -> None:
        self._timer = None
        self._on_pause()

"""Upstreams at which calls keep failing are left out for a while, as slb's instances have it (docs/health.md)."""

import asyncio
from collections.abc import Callable

from slb.lifecycle import set_within
from slb.observe.health import HealthCounts
from slb.routing.availability import Availability
from slb.routing.mirror import Mirror
from slb.routing.passive import Passive


class Ejection:
    """`failed(upstream, reason)` is to be called for each request that fails, and `upstream.failures = 0` set for
    each that does not; `run` does all else. `clock` is the mirror's."""

    def __init__(self, mirror: Mirror, counts: HealthCounts, clock: Callable[[], float]) -> None:
        self._mirror = mirror
        self._counts = counts
        self._clock = clock
        self._wake = asyncio.Event()
        self._availability = Availability(mirror, counts)
        self._passive = Passive(mirror, self._availability, counts, clock, self._wake.set)
        self.failed = self._passive.failed
        mirror.on_swap(counts.forget_upstreams)
        mirror.on_swap(lambda _: counts.follow_routes(mirror.table.routes))
        mirror.on_swap(lambda _: self._wake.set())

    async def run(self) -> None:
        """Let those back whose time is over, until cancelled."""
        while True:
            self._wake.clear()
            self._passive.sweep()
            self._note_panics()
            due = self._passive.due()
            await set_within(self._wake, None if due is None else due - self._clock())

    def _note_panics(self) -> None:
        """Those that began or ended with a swap."""
        routes = self._mirror.table.routes
        for route in routes.values():
            self._availability.note_panic(route)
        for path in self._counts.panicking - routes.keys():
            self._availability.forget_route(path)

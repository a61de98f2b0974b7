"""Instances without HTTP: slb's ledger and gates as `slb serve` has them, as many as one process can hold, on one
Redis and one pool."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random

from slb.admission.entry import Waiter
from slb.admission.gates import Gates, turn_of
from slb.control.connection import Connection
from slb.control.ledger import Ledger
from slb.model import RouteRecord, RouteSettings
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror

PATH = "/bench"
READY_SECONDS = 30.0
BEAT_SECONDS = 2.0
"""In which instances come up one after another, so that their beats do not fall together."""

LOOK_EVERY_SECONDS = 0.02


class Simulated:
    """One instance without HTTP."""

    def __init__(self, url: str, name: str, mirror: Mirror, count: int, rng: Random) -> None:
        self._mirror = mirror
        self._metrics = Metrics()
        self._connection = Connection(url, self._metrics)
        self._ledger = Ledger(self._connection, name, self._metrics, rng)
        self._gates = Gates(self._ledger, mirror, self._metrics, lambda: count, rng)

    @property
    def alone(self) -> int:
        """Slots it gave out without Redis."""
        return self._metrics.local_decisions

    @property
    def shares(self) -> bool:
        """Whether Redis decides here: it has been asked, and has answered."""
        shown = self._gates.shown()["pools"].values()
        return bool(shown) and all(pool["mode"] == "shared" and pool["holders"] for pool in shown)

    def open(self) -> None:
        """Have a lane without any request, as an instance has whose traffic is elsewhere just now."""
        self._gates.of(self._mirror.table.routes[PATH])

    def enter(self, request: Waiter) -> None:
        """Ask for a slot; the answer may come before this returns."""
        route = self._mirror.table.routes[PATH]
        self._gates.of(route).enter(route, (), (), turn_of(route.settings, ""), request)

    async def leave(self) -> None:
        """Give back all it holds, and be no holder any more."""
        await self._ledger.leave()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._ledger.run())
                group.create_task(self._gates.run())
        finally:
            await self._connection.aclose()


@asynccontextmanager
async def simulated(
    url: str, count: int, members: Sequence[str], settings: RouteSettings, seed: int
) -> AsyncIterator[list[Simulated]]:
    """So many instances, for one route with these members; each has a lane of its own in Redis."""
    mirror = Mirror(lambda path, stored: settings, Random(seed))
    for _ in mirror.replace({PATH: RouteRecord(frozenset(members), {})}, {}):
        pass  # its slices are for a loop that has other things to do
    mirror.ready = True
    instances = [Simulated(url, f"bench{number}", mirror, count, Random(seed + number)) for number in range(count)]
    tasks: list[asyncio.Task[None]] = []
    try:
        for each in instances:
            tasks.append(asyncio.create_task(each.run()))
            await asyncio.sleep(BEAT_SECONDS / count)
            each.open()
        async with asyncio.timeout(READY_SECONDS):
            while not all(each.shares for each in instances):
                await asyncio.sleep(LOOK_EVERY_SECONDS)
        yield instances
    finally:
        await asyncio.gather(*(each.leave() for each in instances))
        died = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in died:
            task.result()  # it never ends by itself: this raises what it died of

"""Instances without HTTP: slb's ledger and gates as `slb serve` has them, as many as one process can hold, on one
Redis and one pool."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random

import structlog

from slb.admission.gates import Gates, turn_of
from slb.balance.upstream import Handle
from slb.control.connection import Connection
from slb.control.ledger import Ledger
from slb.errors import Reason
from slb.model import RouteRecord, RouteSettings
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror

PATH = "/bench"
READY_SECONDS = 30.0
BEAT_SECONDS = 2.0
"""In which they come up one after another, so that their beats do not fall together."""

LOOK_EVERY_SECONDS = 0.02

Admitted = Callable[[str, Callable[[], None]], None]
"""Called with the member a request has got, and with what gives the slot back."""


class Request:
    """One that wants a slot: a waiter of slb's gate."""

    __slots__ = ("_admitted", "_refused")

    def __init__(self, admitted: Admitted, refused: Callable[[str], None]) -> None:
        self._admitted = admitted
        self._refused = refused

    def admitted(self, handle: Handle) -> None:
        self._admitted(handle.upstream.member, handle.release)

    def rejected(self, reason: Reason, detail: str) -> None:
        self._refused(f"{reason.name}: {detail}")


class Simulated:
    """One instance. `local`: how many slots it gave out without Redis."""

    def __init__(self, url: str, name: str, mirror: Mirror, count: int, rng: Random) -> None:
        self._mirror = mirror
        self._metrics = Metrics()
        self._connection = Connection(url, self._metrics)
        self._ledger = Ledger(self._connection, name, self._metrics, rng)
        self._gates = Gates(self._ledger, mirror, self._metrics, lambda: count, rng)

    @property
    def local(self) -> int:
        return self._metrics.local_decisions

    @property
    def shares(self) -> bool:
        """Whether Redis decides here: it has been asked, and has answered."""
        shown = self._gates.shown()["pools"].values()
        return bool(shown) and all(pool["mode"] == "shared" and pool["holders"] for pool in shown)

    def enter(self, request: Request) -> None:
        """Ask for a slot; the answer may come before this returns."""
        route = self._mirror.table.routes[PATH]
        self._gates.of(route).enter(route, (), (), turn_of(route.settings, ""), request)

    def open(self) -> None:
        """Have a lane without any request, as an instance has whose traffic is elsewhere just now."""
        self._gates.of(self._mirror.table.routes[PATH])

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
    """So many instances, for one route with these members; each has a lane of its own, that Redis knows."""
    config = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))  # figures say it all
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
        structlog.configure(**config)
        for task in died:
            task.result()  # it never ends by itself: this raises what it died of

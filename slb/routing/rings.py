"""Keeps the rings of routes that go by a key in step with the table, a slice at a time."""

import asyncio
import math
from collections.abc import Callable, Iterator

from slb.balance.consistent_hash import ConsistentHash
from slb.lifecycle import set_within
from slb.routing.mirror import Mirror
from slb.routing.table import Route


class Rings:
    """Made once per mirror. `clock` is the mirror's."""

    def __init__(self, mirror: Mirror, clock: Callable[[], float]) -> None:
        self._mirror = mirror
        self._clock = clock
        self._wake = asyncio.Event()
        self._known: dict[ConsistentHash, Route] = {}
        mirror.on_swap(lambda _: self._follow())
        self._follow()

    def routes(self) -> Iterator[tuple[Route, ConsistentHash]]:
        for route in self._mirror.table.routes.values():
            ring = route.policy.ring
            if ring is not None:
                yield route, ring

    def shown(self) -> Iterator[tuple[str, ConsistentHash]]:
        """Route path and policy, for the metrics."""
        return ((route.path, ring) for route, ring in self.routes())

    def _follow(self) -> None:
        there = {ring: route for route, ring in self.routes()}
        for ring, route in there.items():
            if self._known.get(ring) is not route:  # most are what they were at the swap before
                ring.follow(route.upstreams, route.settings)
        for ring in self._known.keys() - there.keys():
            ring.leave()
        self._known = there
        self._wake.set()

    async def run(self) -> None:
        """Make rings as they fall due, until cancelled."""
        while True:
            self._wake.clear()
            due = math.inf
            for _, ring in list(self.routes()):
                for _ in ring.steps():
                    await asyncio.sleep(0)
                due = min(due, ring.wake)
            await set_within(self._wake, None if due == math.inf else due - self._clock())

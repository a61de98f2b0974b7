"""Instances as the fleet's view knows them, in one process, with a real Valkey between them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import orjson

from slb.control.instances import InstanceInfo, Instances
from slb.fleet.service import FleetService, sources_of
from tests.support.following import Follower

State = dict[str, dict[str, Any]]


class Seen:
    """One instance: `view` is what its API shows."""

    def __init__(self, follower: Follower, name: str, shows: bool = True) -> None:
        self.follower = follower
        self.instances = Instances(follower.connection, InstanceInfo(f"id-{name}", name=name, roles="proxy"))
        sources = sources_of(self.instances, follower.mirror, follower.metrics, is_worker=False)
        sources.staleness = follower.watcher.staleness
        self.service = FleetService(follower.connection, sources, self.instances)
        if shows:
            self.service.show_itself()
        self.view = self.service.view

    def state(self) -> State:
        found: State = orjson.loads(self.view.state())
        return found


@asynccontextmanager
async def fleet(url: str, *names: str) -> AsyncIterator[list[Seen]]:
    """Instances of these names, which know each other."""
    async with AsyncExitStack() as stack:
        found = [Seen(await stack.enter_async_context(Follower(url)), name) for name in names]
        for each in found:
            await each.follower.synced()
            await each.instances.beat()
        tasks = [asyncio.create_task(each.service.run()) for each in found]

        async def end() -> None:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

        stack.push_async_callback(end)
        for each in found:
            await each.instances.beat()
        yield found

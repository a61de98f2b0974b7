"""One instance's control plane, followed from a test: connection, mirror, watcher."""

import asyncio
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

from slb.config import Settings
from slb.control.changes import Changes
from slb.control.connection import Connection
from slb.control.generation import RestoreTiming
from slb.control.recovery import SyncTiming
from slb.control.registry import Registry
from slb.control.sync import Sync
from slb.control.watcher import Watcher, WatchTiming
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror
from tests.support.memory import part_of
from tests.support.waiting import eventually

SETTLE_AT_ONCE = RestoreTiming(settle=0.0)


def timing(restore: RestoreTiming = SETTLE_AT_ONCE, orphan_age: float = 30.0, **seconds: float) -> WatchTiming:
    """The design's timing but for what a test is about; a starting instance waits for no other."""
    return WatchTiming(sync=SyncTiming(restore, orphan_age), **seconds)


class Follower:
    """Use with `async with`: the watcher runs inside. `swaps` counts the tables made. `sync` and `changes` are the
    watcher's own."""

    def __init__(
        self,
        url: str,
        disk_table: Path | None = None,
        watch: WatchTiming | None = None,
        command_deadline: float = 2.0,
        rng: Random | None = None,
        **more: Any,
    ) -> None:
        settings = Settings()
        self.metrics = Metrics()
        self.mirror = Mirror(settings.route_settings, Random(1))
        self.connection = Connection(url, self.metrics, command_deadline=command_deadline)
        self.watcher = Watcher(
            self.connection, self.mirror, self.metrics, disk_table, watch or timing(), rng=rng or Random(1), **more
        )
        self.sync = part_of(self.watcher, Sync)
        self.changes = part_of(self.sync, Changes)
        self.registry = Registry(self.connection, self.mirror, self.watcher.on_written)
        self.swaps = 0
        self.mirror.on_swap(self._count_swap)
        self._task: asyncio.Task[None] | None = None

    def _count_swap(self, _: object) -> None:
        self.swaps += 1

    async def __aenter__(self) -> "Follower":
        self._task = asyncio.create_task(self.watcher.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.connection.aclose()

    def members(self, path: str) -> list[str] | None:
        """The members of a route, None where there is no such route."""
        route = self.mirror.table.routes.get(path)
        return None if route is None else [live.member for live in route.members]

    async def shows(self, path: str, members: list[str] | None) -> None:
        """Wait until the mirror has just these members under `path`; None waits for the route to be gone."""
        await eventually(lambda: self.members(path) == members, what=f"{path} shows {members}")

    async def ready(self) -> None:
        """Wait until a first table is in."""
        await eventually(lambda: self.mirror.ready, what="a first table")

    async def synced(self) -> None:
        """Wait until Redis has been read, and is followed."""
        await eventually(lambda: self.connection.up, what="Redis followed")

    async def up(self, expected: bool) -> None:
        """Wait until Redis is known to answer, or not to."""
        await eventually(lambda: self.connection.up is expected, what=f"redis_up is {expected}")

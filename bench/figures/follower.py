"""One process with slb's watcher and mirror, in which holding the event loop and lookups are measured.

`python -m bench.figures.follower REDIS_URL ROUTES RESYNCS` prints JSON.
"""

import asyncio
import gc
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import orjson
import uvloop

from bench.figures.large_table import path_of, set_of
from slb.control.connection import Connection
from slb.control.watcher import Watcher, WatchTiming
from slb.model import RouteSettings
from slb.names import normal_path
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror

BEAT_SECONDS = 0.001
RESYNC_SECONDS = 0.5
"""Between two full syncs, so that several fit in a run."""

LOOK_EVERY_SECONDS = 0.02
SETTLE_SECONDS = 3.0
"""After the first sync: the table is written to disk, and garbage of the start is collected."""

LOOKUP_ROUNDS = 7
CHANGED_SHARE = 100
"""One route in so many is changed for the resyncs that have something to do."""

DEFAULTS = RouteSettings()


@dataclass(frozen=True)
class Held:
    """The longest the loop was held in a stretch of time, in milliseconds.

    `wall` is how late a beat came; on a busy machine that is also the time in which this process did not run.
    `cpu` is the most that the loop's own thread worked between two beats: what is slb's doing.
    """

    wall: float
    cpu: float


class Heartbeat:
    """Beats on the running loop until stopped."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._longest = Held(0.0, 0.0)
        self._timer: asyncio.TimerHandle | None = None
        self._wait()

    def take(self) -> Held:
        """The longest since it was last asked."""
        longest, self._longest = self._longest, Held(0.0, 0.0)
        return longest

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        self._due = time.perf_counter() + BEAT_SECONDS
        self._worked = time.thread_time()
        self._timer = self._loop.call_later(BEAT_SECONDS, self._beat)

    def _beat(self) -> None:
        late = (time.perf_counter() - self._due) * 1e3
        worked = (time.thread_time() - self._worked) * 1e3
        self._longest = Held(max(self._longest.wall, late), max(self._longest.cpu, worked))
        self._wait()


class Follower:
    """What an instance has of its control plane, wired as slb/app.py does it, resyncing more often."""

    def __init__(self, url: str, routes: int) -> None:
        self._routes = routes
        self._metrics = Metrics()
        self._connection = Connection(url, self._metrics)
        self._mirror = Mirror(lambda path, stored: DEFAULTS, Random())
        self._watcher = Watcher(
            self._connection, self._mirror, self._metrics, Path("table.json"), WatchTiming(RESYNC_SECONDS)
        )
        self._heartbeat = Heartbeat()

    async def measure(self, resyncs: int) -> dict[str, Any]:
        """First sync, idle loop, resyncs without and with changes, one registration, lookups."""
        started = time.perf_counter()
        watching = asyncio.create_task(self._watcher.run())
        await self._until(lambda: self._mirror.ready)
        first_sync = time.perf_counter() - started
        await asyncio.sleep(SETTLE_SECONDS)
        first_held = self._heartbeat.take()
        unchanged, seconds = await self._windows(resyncs, self._resync)
        changed, _ = await self._windows(resyncs, self._changed_resync)
        single, _ = await self._windows(resyncs, self._register_one)
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        idle, _ = await self._windows(resyncs, lambda _: asyncio.sleep(seconds / resyncs))
        self._heartbeat.stop()
        await self._connection.aclose()
        return {
            "first_sync_seconds": first_sync,
            "first_held": asdict(first_held),
            "resync_seconds": seconds / resyncs,
            "unchanged": unchanged,
            "changed": changed,
            "one_registration": single,
            "idle": idle,
            "lookup_ns": self._lookups(),
        }

    async def _windows(
        self, count: int, one: Callable[[int], Awaitable[None]]
    ) -> tuple[list[dict[str, float]], float]:
        """The longest that the loop was held in each of `count` stretches, and how long all took."""
        started = time.perf_counter()
        held: list[Held] = []
        self._heartbeat.take()
        for number in range(count):
            await one(number)
            held.append(self._heartbeat.take())
        return [asdict(each) for each in held], time.perf_counter() - started

    async def _resync(self, number: int) -> None:
        done = self._metrics.full_syncs
        await self._until(lambda: self._metrics.full_syncs > done)

    async def _changed_resync(self, number: int) -> None:
        """Change one route in a hundred while no notification is sent, so that the next resync finds it."""
        client = self._connection.client
        await client.config_set("notify-keyspace-events", "")
        async with client.pipeline(transaction=False) as pipe:
            for route in range(0, self._routes, CHANGED_SHARE):
                pipe.sadd(set_of(path_of(route)), f"10.255.{number}.{route // CHANGED_SHARE}:80")
            await pipe.execute()
        await self._resync(number)

    async def _register_one(self, number: int) -> None:
        """One route more, seen by its notification."""
        path = f"/new-{number}"
        await self._connection.client.sadd(set_of(path), f"10.254.0.{number}:80")
        await self._until(lambda: path in self._mirror.records)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(LOOK_EVERY_SECONDS)

    def _lookups(self) -> float:
        """CPU nanoseconds of one lookup: a request's path into its normal form, and the route it takes. Each is
        below a route's path, as those of requests are."""
        paths = [f"{path_of(number)}/v1/chat/completions" for number in range(self._routes)]
        Random(0).shuffle(paths)
        match = self._mirror.table.match
        rounds = []
        gc.collect()
        for _ in range(LOOKUP_ROUNDS):
            started = time.thread_time_ns()
            for path in paths:
                match(normal_path(path, encoded_controls=True))
            rounds.append((time.thread_time_ns() - started) / len(paths))
        return median(rounds)


async def main(url: str, routes: str, resyncs: str) -> None:
    """The arguments as the command line has them."""
    found = await Follower(url, int(routes)).measure(int(resyncs))
    print(orjson.dumps(found).decode())


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))

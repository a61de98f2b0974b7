"""Many routes of many upstreams: the first sync, memory, lookups, and how long a resync holds the event loop."""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from statistics import median
from typing import Annotated, NamedTuple

import uvloop
from redis import Redis
from typer import Option

from bench.command import Bench
from bench.fleet import Fleet
from bench.http import ask
from bench.processes import wait_until
from bench.procstat import MIB, memory_mib
from bench.table import Figure, Outcome, Section
from slb.control.connection import Connection
from slb.control.watcher import Watcher, WatchTiming
from slb.model import RouteSettings
from slb.names import normal_path
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror

GOAL_FIRST_SYNC_SECONDS, GOAL_RESIDENT_MB, GOAL_LOOKUP_US, GOAL_HELD_MS = 3.0, 150.0, 3.0, 5.0
SYNC_SECONDS, LOOK_EVERY_SECONDS, BEAT_SECONDS = 120.0, 0.02, 0.001
RESYNC_SECONDS = 0.5  # between two full syncs, so that several fit in a run
SETTLE_SECONDS = 3.0  # after the first sync: the table is written to disk, and garbage of the start is collected
LOOKUP_ROUNDS = 7
CHANGED_SHARE = 100  # one route in so many is changed for the resyncs that have something to do
COMMANDS_AT_ONCE = 500
DEFAULTS = RouteSettings()
MB = 1_000_000
NO_ROUTE = 404
CLOSED = "127.0.0.1:1"  # an upstream that refuses connections
NOTE = (
    "CPU: the most that the loop's thread worked between two beats of a 1 ms timer. Late: how late a beat came,\n"
    "median and most over the stretches; where that is no more than when idle, it was the machine that was busy."
)


def path_of(number: int) -> str:
    """Of one route of a large table."""
    return f"/team-{number // 100}/model-{number % 100}"


def set_of(path: str) -> str:
    """The key of a route's set, as a person would write it."""
    return f"slb_{path[1:]}"


def members_of(number: int, each: int) -> list[str]:
    """The upstreams of one route; no two routes have one in common."""
    numbers = range(number * each, number * each + each)
    return [f"10.{each >> 16 & 255}.{each >> 8 & 255}.{each & 255}:8000" for each in numbers]


def write_table(client: Redis, routes: int, each: int) -> None:
    """By pipelines of SADD, as a script of a user's would."""
    pipe = client.pipeline(transaction=False)
    for number in range(routes):
        pipe.sadd(set_of(path_of(number)), *members_of(number, each))
        if len(pipe) == COMMANDS_AT_ONCE:
            pipe.execute()
    pipe.execute()


class Held(NamedTuple):
    """The longest the loop was held in a stretch of time, in milliseconds. `late`: how late a beat came; on a busy
    machine that is also the time in which this process did not run. `cpu`: the most that the loop's own thread
    worked between two beats: what is slb's doing."""

    late: float = 0.0
    cpu: float = 0.0


class Heartbeat:
    """Beats on the running loop until stopped."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._longest = Held()
        self._wait()

    def take(self) -> Held:
        """The longest since it was last asked."""
        longest, self._longest = self._longest, Held()
        return longest

    def stop(self) -> None:
        self._timer.cancel()

    def _wait(self) -> None:
        self._due = time.perf_counter() + BEAT_SECONDS
        self._worked = time.thread_time()
        self._timer = self._loop.call_later(BEAT_SECONDS, self._beat)

    def _beat(self) -> None:
        late = (time.perf_counter() - self._due) * 1e3
        worked = (time.thread_time() - self._worked) * 1e3
        self._longest = Held(max(self._longest.late, late), max(self._longest.cpu, worked))
        self._wait()


class Follower:
    """What an instance has of its control plane, wired as slb/app.py does it, resyncing more often, on the running
    loop. `home`: where it keeps its table."""

    def __init__(self, url: str, routes: int, home: Path) -> None:
        self._routes = routes
        self._metrics = Metrics()
        self._connection = Connection(url, self._metrics)
        self._mirror = Mirror(lambda path, stored: DEFAULTS, Random())
        timing = WatchTiming(RESYNC_SECONDS)
        self._watcher = Watcher(self._connection, self._mirror, self._metrics, home / "table.json", timing)
        self._heartbeat = Heartbeat()

    async def measure(self, resyncs: int) -> tuple[list[Figure], list[Figure]]:
        """First sync, lookups and a resync; and how long the loop was held at a time."""
        started = time.perf_counter()
        watching = asyncio.create_task(self._watcher.run())
        await self._until(lambda: self._mirror.ready)
        first_sync = time.perf_counter() - started
        await asyncio.sleep(SETTLE_SECONDS)
        first = self._heartbeat.take()
        started = time.perf_counter()
        held = held_figures("resync, nothing new", await self._stretches(resyncs, self._resync), GOAL_HELD_MS)
        resync = (time.perf_counter() - started) / resyncs
        changed = await self._stretches(resyncs, self._changed_resync)
        held += held_figures("resync, 1 % of routes new", changed, GOAL_HELD_MS)
        held += held_figures("one registration", await self._stretches(resyncs, self._register_one))
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        held += held_figures("idle", await self._stretches(resyncs, lambda _: asyncio.sleep(resync)))
        self._heartbeat.stop()
        await self._connection.aclose()
        return [
            Figure("first sync, from connecting", first_sync, "s", below=GOAL_FIRST_SYNC_SECONDS),
            Figure("one lookup, CPU", self._lookup_us(), "µs", below=GOAL_LOOKUP_US),
            Figure("a resync that finds nothing new", resync, "s"),
            Figure("the first sync held the event loop at most", first.cpu, "ms of CPU"),
        ], held

    async def _stretches(self, count: int, one: Callable[[int], Awaitable[None]]) -> list[Held]:
        """The longest that the loop was held in each of `count` stretches."""
        held: list[Held] = []
        self._heartbeat.take()
        for number in range(count):
            await one(number)
            held.append(self._heartbeat.take())
        return held

    async def _resync(self, number: int) -> None:
        done = self._metrics.redis.full_syncs
        await self._until(lambda: self._metrics.redis.full_syncs > done)

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

    def _lookup_us(self) -> float:
        """CPU of one lookup: a request's path into its normal form, and the route it takes. Each is below a route's
        path, as those of requests are."""
        paths = [f"{path_of(number)}/v1/chat/completions" for number in range(self._routes)]
        Random(0).shuffle(paths)
        match, rounds = self._mirror.table.match, list[float]()
        gc.collect()
        for _ in range(LOOKUP_ROUNDS):
            started = time.thread_time_ns()
            for path in paths:
                match(normal_path(path, encoded_controls=True))
            rounds.append((time.thread_time_ns() - started) / len(paths) / 1000)
        return median(rounds)


def held_figures(what: str, stretches: Sequence[Held], goal: float | None = None) -> list[Figure]:
    """Of one kind of stretch."""
    late = [each.late for each in stretches]
    return [
        Figure(f"{what}: CPU, most", max(each.cpu for each in stretches), "ms", at_most=goal),
        Figure(f"{what}: late, median", median(late), "ms"),
        Figure(f"{what}: late, most", max(late), "ms"),
    ]


def routes(
    bench: Bench,
    count: Annotated[int, Option("--routes", min=100, help="Routes in Redis.")] = 10_000,
    upstreams: Annotated[int, Option(min=1, help="Of each route; no two have one in common.")] = 10,
    resyncs: Annotated[int, Option(min=1, help="Of each kind.")] = 5,
) -> Outcome:
    """A large table: the first sync, memory, lookups, and how long a resync holds the event loop."""
    fleet = bench.fleet()
    bench.to("writing routes into Redis")
    write_table(fleet.redis.client, count, upstreams)
    bench.to("one instance, and its resyncs")
    outside = _outside(fleet, resyncs)
    bench.to("resyncs, seen from inside")

    async def follow() -> tuple[list[Figure], list[Figure]]:
        return await Follower(fleet.redis.url, count, bench.home).measure(resyncs)

    inside, held = uvloop.run(follow())
    size = Section(f"{count:,} routes of {upstreams} upstreams each", [*outside, *inside])
    return Outcome([size, Section("how long the event loop is held at a time", held, [NOTE])])


def _outside(fleet: Fleet, resyncs: int) -> list[Figure]:
    """One `slb serve`: its start, and what it has resident after several resyncs. For each its subscription is cut,
    and a route added that it can now only find by reading everything again."""
    began = time.monotonic()
    (instance,) = fleet.start_instances(1)
    started = time.monotonic() - began
    for number in range(resyncs):
        path = f"/resync/{number}"
        fleet.redis.client.client_kill_filter(_type="pubsub")
        fleet.redis.client.sadd(set_of(path), CLOSED)

        def serves(path: str = path) -> bool:
            return ask(instance.port, path)[0] not in (0, NO_ROUTE)

        wait_until(serves, instance.running, SYNC_SECONDS, "a resync", LOOK_EVERY_SECONDS)
    resident, peak = (mib * MIB / MB for mib in memory_mib(instance.running.pid))
    fleet.stop_instance(instance)
    return [
        Figure("slb serve, from its start until it is ready", started, "s"),
        Figure("resident memory", resident, "MB", at_most=GOAL_RESIDENT_MB),
        Figure("resident memory, its peak", peak, "MB"),
    ]

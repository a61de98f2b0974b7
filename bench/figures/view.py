"""What the fleet's view costs: a viewer, an instance that is watched, one that nobody looks at, and what a request
pays to be found again."""

import asyncio
import gc
import math
import multiprocessing
import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe
from random import Random
from typing import Annotated, Any, NamedTuple, Self

import uvloop
from typer import Option

from bench.command import Bench
from bench.figures.routes import Heartbeat
from bench.redis import PrivateRedis
from bench.table import Figure, Outcome, Section
from slb.balance.upstream import LiveUpstream
from slb.balance.view import RouteView
from slb.control.connection import Connection
from slb.control.instances import InstanceInfo, Instances
from slb.fleet.service import FleetService, sources_of
from slb.model import RouteRecord, RouteSettings
from slb.observe.decisions import Decisions, Snapshot
from slb.observe.metrics import Metrics
from slb.observe.traffic import RouteCounts, UpstreamCounts
from slb.routing.mirror import Mirror

GOAL_SHARE, GOAL_HELD_MS, GOAL_APPEND_US = 1.0, 5.0, 0.3
SETTLE_SECONDS = 12.0  # until rates are those of 10 s, and all rows have been sent
PART = 50  # upstreams whose figures change together
ROUNDS, APPENDS = 9, 100_000
NOTE = (
    "Every upstream of every instance has other figures each second: the worst there is. CPU is that of one core.\n"
    "Where a round costs more than 9 ms, rounds come less often than each second."
)


class Size(NamedTuple):
    instances: int
    routes: int
    upstreams: int

    @property
    def each(self) -> int:
        """Upstreams of one route."""
        return self.upstreams // self.routes

    @property
    def on_routes(self) -> int:
        """Upstreams of all routes."""
        return self.each * self.routes

    def members(self) -> dict[str, frozenset[str]]:
        """By route."""
        return {
            f"/r{route}": frozenset(f"10.0.{route}.{place}:80" for place in range(self.each))
            for route in range(self.routes)
        }


class Shown:
    """One instance without HTTP, whose figures change all the time."""

    def __init__(self, url: str, number: int, size: Size) -> None:
        self._metrics = Metrics()
        self._metrics.redis.up = True
        self._mirror = Mirror(lambda path, stored: RouteSettings(), Random(number))
        records = {path: RouteRecord(members, {}) for path, members in size.members().items()}
        for _ in self._mirror.replace(records, {}):
            pass
        self._metrics.follow_routes(self._mirror.table.routes)
        self._connection = Connection(url, self._metrics)
        self._instances = Instances(self._connection, InstanceInfo(f"{number:032}", name=f"slb-{number}"))
        self.service = FleetService(
            self._connection, sources_of(self._instances, self._mirror, self._metrics, False), self._instances
        )
        self.service.show_itself()
        self._moves, self._counts = number, self._counted()

    def _counted(self) -> list[tuple[RouteCounts, UpstreamCounts, LiveUpstream]]:
        traffic, table = self._metrics.traffic, self._mirror.table
        traffic.follow(table.routes)
        found: list[tuple[RouteCounts, UpstreamCounts, LiveUpstream]] = []
        for path, route in table.routes.items():
            counts = traffic.routes.setdefault(path, RouteCounts(path, route.members))
            found += [(counts, counts.at(live.member), live) for live in route.members]
        return found

    def move(self, first: int) -> None:
        """A second of requests, at some upstreams."""
        for place, (counts, at, live) in enumerate(self._counts[first : first + PART], first):
            requests = 1 + (place + self._moves) % 7
            at.outcomes[200, ""] += requests
            at.seconds += 0.1 * requests
            counts.durations.counts[requests] += requests
            live.inflight = requests

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.service.run())
            group.create_task(self._instances.run())
            while True:
                for first in range(0, len(self._counts), PART):
                    self.move(first)
                    await asyncio.sleep(PART / len(self._counts))
                self._moves += 1


class Watched:
    """All instances but the viewer, in a process of their own, while the `with` block lasts."""

    def __init__(self, url: str, size: Size) -> None:
        self.others = size.instances - 1
        self._pipe, there = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(target=_watched, args=(url, 1, size, there))

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):  # it has ended
            self._pipe.send(False)
        self._process.join(5)
        self._process.kill()

    def cpu_seconds(self) -> float:
        """Of them all, so far."""
        self._pipe.send(True)
        found: float = self._pipe.recv()
        return found


def _watched(url: str, first: int, size: Size, pipe: Pipe) -> None:
    """Sends the CPU seconds of its process for each message."""

    async def serve() -> None:
        tasks = [
            asyncio.create_task(Shown(url, first + number, size).run()) for number in range(size.instances - 1)
        ]
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, pipe.recv):
            pipe.send(time.process_time())
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    with suppress(EOFError):
        uvloop.run(serve())


class Costs:
    """Of `seconds` each: nobody looks, and a page is open."""

    def __init__(self, watched: Watched, seconds: float) -> None:
        self._watched, self._seconds = watched, seconds

    async def measure(self, viewer: Shown) -> tuple[list[Figure], list[Figure]]:
        running = asyncio.create_task(viewer.run())
        await asyncio.sleep(SETTLE_SECONDS)
        gc.freeze()  # as slb/control/heap.py does once there is a table
        closed, closed_others, *_ = await self._stretch(viewer)
        viewer.service.view.enter()
        await asyncio.sleep(SETTLE_SECONDS)
        shown, others, size, states = await self._stretch(viewer)
        heartbeat = Heartbeat()
        heartbeat.take()
        await asyncio.sleep(self._seconds)
        held = heartbeat.take()
        heartbeat.stop()
        whole = len(viewer.service.view.state())
        running.cancel()
        await asyncio.wait([running])
        return [
            Figure("the viewer, CPU above that of a closed page", 100 * (shown - closed), "%", at_most=GOAL_SHARE),
            Figure(
                "an instance that is watched, the same", 100 * (others - closed_others), "%", at_most=GOAL_SHARE
            ),
            Figure("from one state to the next", 1 / states if states else math.nan, "s"),
            Figure("the viewer held its loop at most, CPU", held.cpu, "ms", at_most=GOAL_HELD_MS),
            Figure("the stream, after its first event", size / 1000, "kB/s"),
            Figure("its first event", whole / 1000, "kB"),
        ], [
            Figure("with the page closed, the one", 100 * closed, "% CPU"),
            Figure("with the page closed, each other one", 100 * closed_others, "% CPU"),
        ]

    async def _stretch(self, viewer: Shown) -> tuple[float, float, float, float]:
        """Shares of a core of the viewer and of each other instance; bytes of the stream, and states, per
        second."""
        view = viewer.service.view
        others, began, started = self._watched.cpu_seconds(), time.process_time(), time.monotonic()
        size = states = 0
        version = view.version
        while time.monotonic() - started < self._seconds:
            if await view.updated(version, 1.0):
                version, size, states = view.version, size + len(view.change), states + 1
        passed = time.monotonic() - started
        own, of_others = time.process_time() - began, self._watched.cpu_seconds() - others
        return own / passed, of_others / passed / self._watched.others, size / passed, states / passed


class _Request:
    id = b"0af7651916cd43dd8448eb211c80319c"

    def __init__(self) -> None:
        self.path = "/p"
        self.route = self


class _Exchange:
    """With what `noted` below reads, where an exchange has it: a SimpleNamespace is read more slowly."""

    entry = None
    failures = ()

    def __init__(self) -> None:
        self.request = _Request()
        self.started, self.sent_at, self.first_byte_at = 1.0, 1.1, 1.2
        self.decisions = Decisions()
        self.view = RouteView(())
        self.view.snapshot = self.snapshot = Snapshot(_NothingFound(), 1.0, 1, 5.0)
        self.view.snapshot_until = 9.0


class _NothingFound:
    def told(self, chosen: str, tried: Sequence[str], held: Mapping[str, int] | None) -> Mapping[str, Any]:
        return {}


def append_us() -> float:
    """CPU of what a request that goes straight to its upstream pays, as in attempts.py and exchange_base.py of
    slb/proxy."""
    exchange = _Exchange()

    def noted(
        it: _Exchange = exchange, member: str = "10.0.0.1:80", status: int = 200, name: str = "", now: float = 2.0
    ) -> None:
        view = it.view
        if it.started >= view.snapshot_until:
            return
        it.snapshot = view.snapshot
        request, failures, snapshot, started = it.request, it.failures, it.snapshot, it.started
        sent, answered = it.sent_at, it.first_byte_at
        decided = (request.id, request.route.path, member, status, started, sent, answered, now, snapshot.ref)
        if it.entry is None and not name and not failures and status < 500 and now - started <= snapshot.slow:
            it.decisions.plain.append(decided)

    def nothing(
        it: _Exchange = exchange, member: str = "10.0.0.1:80", status: int = 200, name: str = "", now: float = 2.0
    ) -> None:
        pass

    def cost(call: Callable[[], None]) -> float:
        return min(timeit.repeat(call, number=APPENDS, repeat=ROUNDS, timer=time.process_time)) / APPENDS * 1e6

    return cost(noted) - cost(nothing)


def view(
    bench: Bench,
    instances: Annotated[int, Option(min=2, help="The viewer included.")] = 10,
    routes: Annotated[int, Option(min=1)] = 50,
    upstreams: Annotated[int, Option(min=1, help="Of all routes together.")] = 1000,
    seconds: Annotated[float, Option(min=1, help="Of each stretch.")] = 20.0,
) -> Outcome:
    """The fleet's view: CPU of a viewer and of a watched instance, bytes of the stream, the longest step."""
    size = Size(instances, routes, upstreams)
    bench.to("starting Redis")
    redis = PrivateRedis(bench.processes, bench.home / "redis")
    redis.start()
    bench.to("starting the other instances")
    with Watched(redis.url, size) as watched:
        bench.to(f"nobody looks, then a page is open, {seconds:g} s each")

        async def measure() -> tuple[list[Figure], list[Figure]]:
            return await Costs(watched, seconds).measure(Shown(redis.url, 0, size))

        opened, closed = uvloop.run(measure())
    title = f"{instances} instances, {routes} routes, {upstreams:,} upstreams"
    append = Figure("a request, to be found by its id", append_us(), "µs", at_most=GOAL_APPEND_US)
    return Outcome([Section(title, opened, [NOTE]), Section("while nobody looks", [*closed, append])])

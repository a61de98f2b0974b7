"""2 to 100 instances on one pool of 1,000 pods: what a request costs Redis, how long a grant takes, and at which
load instances begin to decide alone. An instance is slb's ledger and gates as `slb serve` has them, without HTTP,
and all are in this process."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Annotated, Any

import uvloop
from typer import Option

from bench.command import Bench, instance_counts, refuse
from bench.processes import BenchError
from bench.redis import PrivateRedis
from bench.table import Figure, Outcome, Section, percentile
from bench.timers import Timers
from slb.admission.entry import Waiter
from slb.admission.gates import Gates, turn_of
from slb.balance.upstream import Handle
from slb.control.connection import Connection
from slb.control.ledger import Ledger
from slb.errors import Reason
from slb.model import RouteRecord, RouteSettings
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror

GOAL_GROWTH = 1.5  # Redis CPU a request with the most instances, in units of that with the fewest
GOAL_AT = (2, 100, 1000)  # instances, fewest and most, and pods for which the goal is stated
POLICIES = ("least_inflight", "round_robin")
PATH = "/bench"
BUSY = 0.6  # share of the pods that have a request: seldom does one have to wait
IDLE_SECONDS, READY_SECONDS, LOOK_EVERY_SECONDS = 3.0, 30.0, 0.02
BEAT_SECONDS = 2.0  # in which instances come up one after another, so that their beats do not fall together
STEP, STEP_SECONDS = 1.5, 2.0  # each load in units of the one before, on the way to where an instance decides alone
AHEAD_SECONDS = 0.2  # so far ahead requests are planned
LATE_SECONDS = 0.02  # requests sent later than this (p99) are more than the process with all instances can send


class Simulated:
    """One instance without HTTP; it has a lane of its own in Redis."""

    def __init__(self, url: str, number: int, mirror: Mirror, count: int, rng: Random) -> None:
        self._mirror, self._metrics = mirror, Metrics()
        self._connection = Connection(url, self._metrics)
        self._ledger = Ledger(self._connection, f"bench{number}", self._metrics, rng)
        self._gates = Gates(self._ledger, mirror, self._metrics, lambda: count, rng)
        self.leave = self._ledger.leave  # gives back all it holds; it is no holder any more

    @property
    def alone(self) -> int:
        """Slots it gave out without Redis."""
        return self._metrics.ledger.local_decisions

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
    """So many instances, for one route with these members."""
    mirror = Mirror(lambda path, stored: settings, Random(seed))
    for _ in mirror.replace({PATH: RouteRecord(frozenset(members), {})}, {}):
        pass  # its slices are for a loop that has other things to do
    mirror.ready = True
    instances = [Simulated(url, number, mirror, count, Random(seed + number)) for number in range(count)]
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


class Request:
    """One that wants a slot: a waiter of slb's gate. `ended` is called with why it was refused, or with None."""

    def __init__(self, load: "Load") -> None:
        self._load, self._asked = load, time.monotonic()

    def admitted(self, handle: Handle) -> None:
        def release() -> None:
            handle.release()
            self._load.ended()

        now = time.monotonic()
        self._load.grants.append(now - self._asked)
        self._load.timers.at(now + self._load.held, release)

    def rejected(self, reason: Reason, detail: str) -> None:
        self._load.refused.append(f"{reason.name}: {detail}")
        self._load.ended()


class Load:
    """Poisson arrivals, each through an instance chosen at random, each holding its slot for `held` seconds.
    `grants`: seconds from asking to having a slot; `late`: by how many seconds this process was late to ask."""

    def __init__(self, fleet: Sequence[Simulated], timers: Timers, rng: Random, held: float) -> None:
        self._fleet, self.timers, self._rng, self.held = fleet, timers, rng, held
        self._open, self._all_ended = 0, asyncio.Event()
        self.refused: list[str] = []
        self.grants: list[float] = []
        self.late: list[float] = []

    async def run(self, rate: float, seconds: float) -> None:
        """Returns when the last slot has been given back. Raises BenchError where one was refused: a figure would
        leave it out."""
        begun = time.monotonic()
        due = begun
        while (due := due + self._rng.expovariate(rate)) < begun + seconds:
            self._open += 1
            self.timers.at(due, lambda due=due: self._ask(due))  # type: ignore[misc]
            if due - time.monotonic() > AHEAD_SECONDS:
                await asyncio.sleep(AHEAD_SECONDS / 2)
        if self._open:
            self._all_ended.clear()
            await self._all_ended.wait()
        if self.refused:
            raise BenchError(f"{len(self.refused)} requests were refused, the last one: {self.refused[-1]}")

    def _ask(self, due: float) -> None:
        self.late.append(time.monotonic() - due)
        self._rng.choice(self._fleet).enter(Request(self))

    def ended(self) -> None:
        """A request has been answered, and what it held given back."""
        self._open -= 1
        if not self._open:
            self._all_ended.set()


def _used(redis: PrivateRedis, fleet: Sequence[Simulated]) -> tuple[float, int, int, int]:
    """What Redis used so far: seconds of CPU, bytes read and written, as it counts them itself; and the slots given
    out without it."""
    stats: Any = redis.client.info("stats")
    read, written = int(stats["total_net_input_bytes"]), int(stats["total_net_output_bytes"])
    return redis.cpu_seconds(), read, written, sum(each.alone for each in fleet)


def scale(
    bench: Bench,
    instances: Annotated[str, Option(help="Numbers of instances, with commas.")] = "2,10,50,100",
    pods: Annotated[int, Option(min=1, max=60_000, help="Upstreams of the one pool.")] = 1000,
    rate: Annotated[float, Option(min=1, help="Requests a second through all of them together.")] = 200,
    seconds: Annotated[float, Option(min=1, help="That each number is loaded.")] = 10,
    most: Annotated[float, Option(min=1, help="The highest load tried, in requests a second.")] = 10_000,
    policy: Annotated[str, Option(help="Of the route: least_inflight or round_robin.")] = "least_inflight",
    seed: Annotated[int, Option(help="Of arrivals, and of which instance each is for.")] = 1,
) -> Outcome:
    """Instances without HTTP on one pool of many pods: what a request costs Redis, and where local mode begins."""
    if policy not in POLICIES:
        refuse(f"--policy: {policy}: known are {', '.join(POLICIES)}")
    queue = {"policy": policy, "max_inflight": 1, "when_full": "queue", "queue_limit": 100_000}
    settings = RouteSettings.model_validate(queue)
    members = [f"10.0.{number // 256}.{number % 256}:80" for number in range(pods)]
    counts, redis = instance_counts(instances), bench.fleet().redis

    async def measured(count: int) -> tuple[float, list[Figure]]:
        """Redis's CPU for a request in µs, and all figures, with so many instances."""
        rng, timers = Random(seed), Timers(asyncio.get_running_loop())
        async with simulated(redis.url, count, members, settings, seed) as fleet:
            bench.to(f"{count} instances, idle")
            before = redis.cpu_seconds()
            await asyncio.sleep(IDLE_SECONDS)
            idle = (redis.cpu_seconds() - before) / IDLE_SECONDS
            bench.to(f"{count} instances, {rate:g} requests a second")
            load, had = Load(fleet, timers, rng, pods * BUSY / rate), _used(redis, fleet)
            await load.run(rate, seconds)
            has = _used(redis, fleet)
            bench.to(f"{count} instances, until one decides alone")
            limit = await _limit(fleet, lambda tried: Load(fleet, timers, rng, pods * BUSY / tried), rate, most)
        timers.close()
        cpu, read, written, alone = (now - before for now, before in zip(has, had, strict=True))
        decided = max(1, len(load.grants) - alone)  # by Redis
        cpu_us = cpu / decided * 1e6
        return cpu_us, [
            Figure("Redis, while no request comes", idle * 100, "% of a core"),
            Figure("Redis CPU", cpu_us, "µs a request"),
            Figure("a grant, p50", percentile(load.grants, 0.5) * 1e3, "ms"),
            Figure("a grant, p99", percentile(load.grants, 0.99) * 1e3, "ms"),
            Figure("requests sent late by this process, p99", percentile(load.late, 0.99) * 1e3, "ms"),
            Figure("to Redis", read / decided, "bytes a request"),
            Figure("from Redis", written / decided, "bytes a request"),
            Figure("slots given out without Redis meanwhile", alone),
            limit,
        ]

    of = f"{pods:,} pods, {policy}, max_inflight=1, {rate:g} requests a second, {BUSY:.0%} of the pods busy"
    costs: dict[int, float] = {}
    sections: list[Section] = []
    for count in counts:
        redis.client.flushall()
        costs[count], figures = uvloop.run(measured(count))
        sections.append(Section(f"{count} instances, {of}", figures))
    return Outcome([*sections, *growth(costs, pods)])


async def _limit(fleet: Sequence[Simulated], load: Callable[[float], Load], rate: float, most: float) -> Figure:
    """The load is raised until an instance decides alone, or this process is late, or it is the highest."""
    while True:
        step, had = load(rate), sum(each.alone for each in fleet)
        await step.run(rate, STEP_SECONDS)
        reached = sum(each.alone for each in fleet) > had
        late = percentile(step.late, 0.99) > LATE_SECONDS
        if reached or late or rate * STEP > most:
            return Figure(limit_words(reached, late), rate, "requests/s")
        rate *= STEP


def limit_words(reached: bool, late: bool) -> str:
    """What the highest load means."""
    if reached:
        return f"an instance decides alone at{', this process being late itself' if late else ''}"
    return "none decides alone; this process can send no more than" if late else "none decides alone up to"


def growth(costs: dict[int, float], pods: int) -> list[Section]:
    """What the most instances cost beside the fewest. `costs`: µs of Redis a request, by instances, ascending."""
    if len(costs) < 2:
        return []
    few, many = next(iter(costs)), next(reversed(costs))
    goal = GOAL_GROWTH if (few, many, pods) == GOAL_AT else None
    figure = Figure("Redis CPU a request, in units", costs[many] / costs[few], at_most=goal)
    note = "What instances write of themselves (beats, leases) is in it: Redis's CPU, by the requests it decided."
    return [Section(f"{many} instances beside {few}", [figure], [note])]

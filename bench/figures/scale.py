"""2 to 100 instances on one pool of 1,000 pods: what a request costs Redis, how long a grant takes, and at which
load instances begin to decide alone. An instance is slb's ledger and gates as `slb serve` has them, without HTTP,
and all are in this process."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, Any

import uvloop
from typer import Option

from bench.command import Bench, instance_counts, refuse
from bench.errors import BenchError
from bench.redis import PrivateRedis
from bench.simulated import Simulated, simulated
from bench.table import Figure, Outcome, Section, percentile
from bench.timers import Timers
from slb.balance.upstream import Handle
from slb.errors import Reason
from slb.model import RouteSettings

GOAL_GROWTH = 1.5
"""Redis CPU a request with the most instances, in units of that with the fewest."""

GOAL_AT = (2, 100, 1000)
"""Instances, fewest and most, and pods for which the goal is stated."""

POLICIES = ("least_inflight", "round_robin")
BUSY = 0.6
"""Share of the pods that have a request: seldom does one have to wait."""

IDLE_SECONDS = 3.0
STEP_SECONDS = 2.0
"""Of each load on the way to the one at which an instance decides alone."""

STEP = 1.5
"""Each of these loads in units of the one before."""

AHEAD_SECONDS = 0.2
"""So far ahead requests are planned."""

LATE_SECONDS = 0.02
"""Requests sent later than this (p99) are more than the process that holds all instances can send."""


@dataclass(frozen=True)
class Plan:
    """What all numbers of instances have in common. `rate`: requests a second through all instances together;
    `most`: the highest that is tried."""

    pods: int
    rate: float
    seconds: float
    most: float
    policy: str
    seed: int


class Request:
    """One that wants a slot: a waiter of slb's gate. `ended` is called with why it was refused, or with None."""

    def __init__(
        self, timers: Timers, held: float, granted: list[float], ended: Callable[[str | None], None]
    ) -> None:
        self._timers = timers
        self._held = held
        self._granted = granted
        self._ended = ended
        self._asked = time.monotonic()

    def admitted(self, handle: Handle) -> None:
        def release() -> None:
            handle.release()
            self._ended(None)

        now = time.monotonic()
        self._granted.append(now - self._asked)
        self._timers.at(now + self._held, release)

    def rejected(self, reason: Reason, detail: str) -> None:
        self._ended(f"{reason.name}: {detail}")


class Load:
    """Poisson arrivals, each through an instance chosen at random, each holding its slot for `held` seconds.
    `grants`: seconds from asking to having a slot; `late`: by how many seconds this process was late to ask."""

    def __init__(self, fleet: Sequence[Simulated], timers: Timers, rng: Random, held: float) -> None:
        self._fleet = fleet
        self._timers = timers
        self._rng = rng
        self._held = held
        self._open = 0
        self._all_ended = asyncio.Event()
        self._refused: list[str] = []
        self.grants: list[float] = []
        self.late: list[float] = []

    async def run(self, rate: float, seconds: float) -> None:
        """Returns when the last slot has been given back. Raises BenchError where one was refused: a figure would
        leave it out."""
        begun = time.monotonic()
        due = begun
        while (due := due + self._rng.expovariate(rate)) < begun + seconds:
            self._open += 1
            self._timers.at(due, lambda due=due: self._ask(due))  # type: ignore[misc]
            if due - time.monotonic() > AHEAD_SECONDS:
                await asyncio.sleep(AHEAD_SECONDS / 2)
        if self._open:
            self._all_ended.clear()
            await self._all_ended.wait()
        if self._refused:
            raise BenchError(f"{len(self._refused)} requests were refused, the last one: {self._refused[-1]}")

    def _ask(self, due: float) -> None:
        self.late.append(time.monotonic() - due)
        self._rng.choice(self._fleet).enter(Request(self._timers, self._held, self.grants, self._ended))

    def _ended(self, why: str | None) -> None:
        self._refused += [why] if why else []
        self._open -= 1
        if not self._open:
            self._all_ended.set()


@dataclass(frozen=True)
class Used:
    """What Redis used so far: seconds of CPU, bytes read and written, as it counts them itself; and the slots given
    out without it."""

    cpu: float
    read: int
    written: int
    alone: int

    @classmethod
    def now(cls, redis: PrivateRedis, fleet: Sequence[Simulated]) -> "Used":
        stats: Any = redis.client.info("stats")
        read, written = int(stats["total_net_input_bytes"]), int(stats["total_net_output_bytes"])
        return cls(redis.cpu_seconds(), read, written, sum(each.alone for each in fleet))


async def _measured(
    redis: PrivateRedis, instances: int, plan: Plan, to: Callable[[str], None]
) -> tuple[float, list[Figure]]:
    """Redis's CPU for a request in µs, and all figures, with one number of instances."""
    members = [f"10.0.{number // 256}.{number % 256}:80" for number in range(plan.pods)]
    queue = {"policy": plan.policy, "max_inflight": 1, "when_full": "queue", "queue_limit": 100_000}
    rng, timers = Random(plan.seed), Timers(asyncio.get_running_loop())
    settings = RouteSettings.model_validate(queue)
    async with simulated(redis.url, instances, members, settings, plan.seed) as fleet:
        to(f"{instances} instances, idle")
        before = redis.cpu_seconds()
        await asyncio.sleep(IDLE_SECONDS)
        idle = (redis.cpu_seconds() - before) / IDLE_SECONDS
        to(f"{instances} instances, {plan.rate:g} requests a second")
        load, had = Load(fleet, timers, rng, plan.pods * BUSY / plan.rate), Used.now(redis, fleet)
        await load.run(plan.rate, plan.seconds)
        has = Used.now(redis, fleet)
        to(f"{instances} instances, until one decides alone")
        limit = await _limit(fleet, plan, timers, rng)
    timers.close()
    alone = has.alone - had.alone
    count = max(1, len(load.grants) - alone)  # those that Redis decided
    cpu_us = (has.cpu - had.cpu) / count * 1e6
    return cpu_us, [
        Figure("Redis, while no request comes", idle * 100, "% of a core"),
        Figure("Redis CPU", cpu_us, "µs a request"),
        Figure("a grant, p50", percentile(load.grants, 0.5) * 1e3, "ms"),
        Figure("a grant, p99", percentile(load.grants, 0.99) * 1e3, "ms"),
        Figure("requests sent late by this process, p99", percentile(load.late, 0.99) * 1e3, "ms"),
        Figure("to Redis", (has.read - had.read) / count, "bytes a request"),
        Figure("from Redis", (has.written - had.written) / count, "bytes a request"),
        Figure("slots given out without Redis meanwhile", alone),
        limit,
    ]


async def _limit(fleet: Sequence[Simulated], plan: Plan, timers: Timers, rng: Random) -> Figure:
    """The load is raised until an instance decides alone, or this process is late, or it is the highest."""
    rate = plan.rate
    while True:
        step, had = Load(fleet, timers, rng, plan.pods * BUSY / rate), sum(each.alone for each in fleet)
        await step.run(rate, STEP_SECONDS)
        reached = sum(each.alone for each in fleet) > had
        late = percentile(step.late, 0.99) > LATE_SECONDS
        if reached or late or rate * STEP > plan.most:
            return Figure(limit_words(reached, late), rate, "requests/s")
        rate *= STEP


def limit_words(reached: bool, late: bool) -> str:
    """What the highest load means."""
    if reached:
        return f"an instance decides alone at{', this process being late itself' if late else ''}"
    return "none decides alone; this process can send no more than" if late else "none decides alone up to"


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
    counts, plan = instance_counts(instances), Plan(pods, rate, seconds, most, policy, seed)
    redis = bench.fleet().redis
    of = f"{pods:,} pods, {policy}, max_inflight=1, {rate:g} requests a second, {BUSY:.0%} of the pods busy"
    costs: dict[int, float] = {}
    sections: list[Section] = []
    for count in counts:
        redis.client.flushall()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            costs[count], figures = runner.run(_measured(redis, count, plan, bench.to))
        sections.append(Section(f"{count} instances, {of}", figures))
    return Outcome([*sections, *growth(costs, pods)])


def growth(costs: dict[int, float], pods: int) -> list[Section]:
    """What the most instances cost beside the fewest. `costs`: µs of Redis a request, by instances, ascending."""
    if len(costs) < 2:
        return []
    few, many = next(iter(costs)), next(reversed(costs))
    goal = GOAL_GROWTH if (few, many, pods) == GOAL_AT else None
    figure = Figure("Redis CPU a request, in units", costs[many] / costs[few], at_most=goal)
    note = "What instances write of themselves (beats, leases) is in it: Redis's CPU, by the requests it decided."
    return [Section(f"{many} instances beside {few}", [figure], [note])]

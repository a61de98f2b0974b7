"""2 to 100 instances on one pool of 1,000 pods: what a request costs Redis, how long a grant takes, and at which
load instances begin to decide alone."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Annotated, Any

import uvloop
from typer import Option

from bench.command import Bench
from bench.errors import BenchError
from bench.outcome import instance_counts, refuse
from bench.redis import PrivateRedis
from bench.simulated import Request, Simulated, simulated
from bench.table import Figure, Outcome, Section, percentile
from bench.timers import Timers
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

    def settings(self) -> RouteSettings:
        """Of the route: one request at a time at each pod, and a queue."""
        return RouteSettings.model_validate(
            {"policy": self.policy, "max_inflight": 1, "when_full": "queue", "queue_limit": 100_000}
        )


@dataclass(frozen=True)
class Row:
    """One number of instances. `idle`: share of a core that Redis takes while no request comes; `cpu_us`: of Redis,
    a request that it decided; `read`, `written`: its bytes, the same way; `grant_p50`, `grant_p99`: seconds from
    asking to having a slot; `sent_late`: p99, seconds that this process was late; `alone`: slots given out without
    Redis. `alone_at`: requests a second at which an instance first decided alone, or the highest tried (where
    `reached` is False); `late`: this process was the limit."""

    instances: int
    idle: float
    cpu_us: float
    grant_p50: float
    grant_p99: float
    sent_late: float
    read: float
    written: float
    alone: int
    alone_at: float
    reached: bool
    late: bool


class Load:
    """Poisson arrivals, each through an instance chosen at random, each holding its slot for `held` seconds."""

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
        asked = time.monotonic()
        self.late.append(asked - due)

        def admitted(member: str, release: Callable[[], None]) -> None:
            now = time.monotonic()
            self.grants.append(now - asked)
            self._timers.at(now + self._held, lambda: self._ended(release))

        def refused(why: str) -> None:
            self._refused.append(why)
            self._ended(lambda: None)

        self._rng.choice(self._fleet).enter(Request(admitted, refused))

    def _ended(self, release: Callable[[], None]) -> None:
        release()
        self._open -= 1
        if not self._open:
            self._all_ended.set()


def _bytes(redis: PrivateRedis) -> tuple[int, int]:
    """What it says that it has read and written."""
    stats: Any = redis.client.info("stats")
    return int(stats["total_net_input_bytes"]), int(stats["total_net_output_bytes"])


def _alone(fleet: Sequence[Simulated]) -> int:
    return sum(each.local for each in fleet)


async def _row(redis: PrivateRedis, instances: int, plan: Plan, to: Callable[[str], None]) -> Row:
    members = [f"10.0.{number // 256}.{number % 256}:80" for number in range(plan.pods)]
    rng, timers = Random(plan.seed), Timers(asyncio.get_running_loop())
    async with simulated(redis.url, instances, members, plan.settings(), plan.seed) as fleet:

        def load_at(rate: float) -> Load:
            return Load(fleet, timers, rng, plan.pods * BUSY / rate)

        to(f"{instances} instances, idle")
        cpu = redis.cpu_seconds()
        await asyncio.sleep(IDLE_SECONDS)
        idle = (redis.cpu_seconds() - cpu) / IDLE_SECONDS
        to(f"{instances} instances, {plan.rate:g} requests a second")
        load, alone = load_at(plan.rate), _alone(fleet)
        cpu, before = redis.cpu_seconds(), _bytes(redis)
        await load.run(plan.rate, plan.seconds)
        cpu, after, alone = redis.cpu_seconds() - cpu, _bytes(redis), _alone(fleet) - alone
        count = max(1, len(load.grants) - alone)
        to(f"{instances} instances, until one decides alone")
        rate = plan.rate
        while True:
            step, had = load_at(rate), _alone(fleet)
            await step.run(rate, STEP_SECONDS)
            reached = _alone(fleet) > had
            late = percentile(step.late, 0.99) > LATE_SECONDS
            if reached or late or rate * STEP > plan.most:
                break
            rate *= STEP
    timers.close()
    return Row(
        instances,
        idle,
        cpu / count * 1e6,
        percentile(load.grants, 0.5),
        percentile(load.grants, 0.99),
        percentile(load.late, 0.99),
        (after[0] - before[0]) / count,
        (after[1] - before[1]) / count,
        alone,
        rate,
        reached,
        late,
    )


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
    bench.steps.expect(len(counts))
    redis = bench.fleet().redis
    rows: list[Row] = []
    for count in counts:
        redis.client.flushall()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            rows.append(runner.run(_row(redis, count, plan, bench.steps.to)))
        bench.steps.done()
    sections = [*(section_of(row, plan) for row in rows), *growth(rows, pods)]
    return Outcome(sections, {"rows": [asdict(row) for row in rows]})


def section_of(row: Row, plan: Plan) -> Section:
    """All that was measured with one number of instances."""
    figures = [
        Figure("Redis, while no request comes", row.idle * 100, "% of a core"),
        Figure("Redis CPU", row.cpu_us, "µs a request"),
        Figure("a grant, p50", row.grant_p50 * 1e3, "ms"),
        Figure("a grant, p99", row.grant_p99 * 1e3, "ms"),
        Figure("requests sent late by this process, p99", row.sent_late * 1e3, "ms"),
        Figure("to Redis", row.read, "bytes a request"),
        Figure("from Redis", row.written, "bytes a request"),
        Figure("slots given out without Redis meanwhile", row.alone),
        Figure(alone_words(row), row.alone_at, "requests/s"),
    ]
    title = (
        f"{row.instances} instances, {plan.pods:,} pods, {plan.policy}, max_inflight=1, "
        f"{plan.rate:g} requests a second, {BUSY:.0%} of the pods busy"
    )
    return Section(title, figures)


def alone_words(row: Row) -> str:
    """What the last figure of a row is."""
    if row.reached:
        of = ", this process being late itself" if row.late else ""
        return f"an instance decides alone at{of}"
    return "none decides alone; this process can send no more than" if row.late else "none decides alone up to"


def growth(rows: Sequence[Row], pods: int) -> list[Section]:
    """What the most instances cost beside the fewest."""
    if len(rows) < 2:
        return []
    few, many = rows[0], rows[-1]
    goal = GOAL_GROWTH if (few.instances, many.instances, pods) == GOAL_AT else None
    figures = [Figure("Redis CPU a request, in units", many.cpu_us / few.cpu_us, at_most=goal)]
    notes = ["What each instance says of itself (beats, leases) is in it: Redis's CPU, by the requests it decided."]
    return [Section(f"{many.instances} instances beside {few.instances}", figures, notes)]

"""2 to 100 instances on one pool of 1,000 pods: what a request costs Redis, how long a grant takes, and at which
load instances begin to decide alone."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

import uvloop

from bench.errors import BenchError
from bench.figures.figure import Figure, Outcome, Section, percentile
from bench.figures.fleet import Fleet
from bench.figures.simulated import Request, Simulated, simulated
from bench.gpu.timers import Timers
from bench.progress import Steps
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
"""Of each load on the way to the one at which somebody decides alone."""

STEP = 1.5
"""Each of these loads in units of the one before."""

AHEAD_SECONDS = 0.2
"""So far ahead requests are planned."""

LATE_SECONDS = 0.02
"""Requests sent later than this (p99) are more than the process that holds all instances can send."""


@dataclass(frozen=True)
class Plan:
    """`rate`: requests a second through all instances together; `most`: the highest that is tried."""

    instances: Sequence[int]
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
class Spent:
    """What Redis says of itself: CPU seconds, and bytes it has read and written."""

    cpu: float
    read: int
    written: int

    @classmethod
    def by(cls, client: Any) -> "Spent":
        cpu, net = client.info("cpu"), client.info("stats")
        seconds = float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])
        return cls(seconds, int(net["total_net_input_bytes"]), int(net["total_net_output_bytes"]))

    def since(self, before: "Spent") -> "Spent":
        return Spent(self.cpu - before.cpu, self.read - before.read, self.written - before.written)


@dataclass(frozen=True)
class Row:
    """One number of instances. `idle`: share of a core that Redis takes while no request comes; `cpu_us`: of Redis,
    a request that it decided; `read`, `written`: its bytes, the same way; `grant_p50`, `grant_p99`: seconds from
    asking to having a slot; `sent_late`: p99, seconds that this process was late; `alone`: slots given out without
    Redis. `alone_at`: requests a second at which somebody first decided alone, or the highest tried (`reached` is
    False then); `late`: this process was the limit."""

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
    """Requests at a steady rate, each through an instance chosen at random, each holding its slot for `held`
    seconds."""

    def __init__(self, fleet: Sequence[Simulated], timers: Timers, rng: Random, held: float) -> None:
        self._fleet = fleet
        self._timers = timers
        self._rng = rng
        self._held = held
        self._open = 0
        self._all_ended = asyncio.Event()
        self.grants: list[float] = []
        self.late: list[float] = []
        self.refused = 0
        self._why = ""

    async def run(self, rate: float, seconds: float) -> None:
        """Poisson arrivals; returns when the last slot has been given back. Raises BenchError where one was
        refused: a figure would leave it out."""
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
        if self.refused:
            raise BenchError(f"{self.refused} requests were refused, the last one: {self._why}")

    def _ask(self, due: float) -> None:
        self.late.append(time.monotonic() - due)
        asked = time.monotonic()

        def admitted(member: str, release: Callable[[], None]) -> None:
            now = time.monotonic()
            self.grants.append(now - asked)
            self._timers.at(now + self._held, lambda: self._ended(release))

        self._rng.choice(self._fleet).enter(Request(admitted, self._refused))

    def _refused(self, why: str) -> None:
        self.refused += 1
        self._why = why
        self._ended(lambda: None)

    def _ended(self, release: Callable[[], None]) -> None:
        release()
        self._open -= 1
        if not self._open:
            self._all_ended.set()


async def _row(client: Any, url: str, instances: int, plan: Plan, steps: Steps) -> Row:
    members = [f"10.0.{number // 256}.{number % 256}:80" for number in range(plan.pods)]
    rng = Random(plan.seed)
    timers = Timers(asyncio.get_running_loop())
    async with simulated(url, instances, members, plan.settings(), plan.seed) as fleet:
        steps.to(f"{instances} instances, idle")
        before = Spent.by(client)
        await asyncio.sleep(IDLE_SECONDS)
        idle = Spent.by(client).since(before).cpu / IDLE_SECONDS
        steps.to(f"{instances} instances, {plan.rate:g} requests a second")
        load = Load(fleet, timers, rng, plan.pods * BUSY / plan.rate)
        alone = _alone(fleet)
        before = Spent.by(client)
        await load.run(plan.rate, plan.seconds)
        spent, alone = Spent.by(client).since(before), _alone(fleet) - alone
        count = max(1, len(load.grants) - alone)
        steps.to(f"{instances} instances, until somebody decides alone")
        alone_at, reached, late = await _until_alone(fleet, timers, rng, plan)
    timers.close()
    return Row(
        instances,
        idle,
        spent.cpu / count * 1e6,
        percentile(load.grants, 0.5),
        percentile(load.grants, 0.99),
        percentile(load.late, 0.99),
        spent.read / count,
        spent.written / count,
        alone,
        alone_at,
        reached,
        late,
    )


async def _until_alone(
    fleet: Sequence[Simulated], timers: Timers, rng: Random, plan: Plan
) -> tuple[float, bool, bool]:
    """The load at which the first slot was given out without Redis, or the last tried; whether it came to that; and
    whether this process was late by then."""
    rate = plan.rate
    while True:
        load, alone = Load(fleet, timers, rng, plan.pods * BUSY / rate), _alone(fleet)
        await load.run(rate, STEP_SECONDS)
        reached = _alone(fleet) > alone
        late = percentile(load.late, 0.99) > LATE_SECONDS
        if reached or late or rate * STEP > plan.most:
            return rate, reached, late
        rate *= STEP


def _alone(fleet: Sequence[Simulated]) -> int:
    return sum(each.local for each in fleet)


def measure(fleet: Fleet, steps: Steps, plan: Plan) -> Outcome:
    """One number of instances after another, each on an empty Redis."""
    rows: list[Row] = []
    for instances in plan.instances:
        fleet.redis.client.flushall()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            rows.append(runner.run(_row(fleet.redis.client, fleet.redis.url, instances, plan, steps)))
        steps.done()
    sections = [*(section_of(row, plan) for row in rows), *growth(rows, plan)]
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
        return f"somebody decides alone at{of}"
    return "nobody decides alone; this process can send no more than" if row.late else "nobody decides alone up to"


def growth(rows: Sequence[Row], plan: Plan) -> list[Section]:
    """What the most instances cost beside the fewest."""
    if len(rows) < 2:
        return []
    few, many = rows[0], rows[-1]
    goal = GOAL_GROWTH if (few.instances, many.instances, plan.pods) == GOAL_AT else None
    figures = [Figure("Redis CPU a request, in units", many.cpu_us / few.cpu_us, at_most=goal)]
    notes = ["What each instance says of itself (beats, leases) is in it: Redis's CPU, by the requests it decided."]
    return [Section(f"{many.instances} instances beside {few.instances}", figures, notes)]

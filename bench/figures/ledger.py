"""The ledger alone: slots taken and given back by one instance, against one Redis."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import uvloop

from bench.figures import ledger_scripts
from bench.figures.asked import Asked
from bench.figures.figure import Figure, Outcome, Section
from bench.figures.fleet import Fleet
from bench.figures.redis import PrivateRedis
from bench.progress import Steps
from slb.balance.asking import Ask, Candidate
from slb.control.connection import Connection
from slb.control.ledger import Ledger
from slb.observe.metrics import Metrics

UPSTREAMS = 20
ALONE = 10
"""Batches of one take so many times as long a pair: so many times fewer are measured."""

PATH = "/bench"


@dataclass(frozen=True)
class Case:
    """`lanes`: each with a pool of its own, and with `at_once` pairs under way, which travel in one batch. `goal`:
    pairs a second. A single lane with one at a time has none: instance and Redis wait for each other there, and
    what it shows is how long a pair takes. Several show what the two can do in batches of one."""

    lanes: int
    at_once: int
    goal: float | None = None

    @property
    def title(self) -> str:
        return f"{self.lanes} {'lane' if self.lanes == 1 else 'lanes'}, {self.at_once} at a time in each"


PAIRS = (Case(1, 64, 60_000.0), Case(10, 1, 6_000.0), Case(1, 1))
STEPS = len(PAIRS) + ledger_scripts.CASES


@dataclass(eq=False, kw_only=True)
class Runner(Asked):
    """Takes a slot, gives it back, takes the next, so many times in all with as many others."""

    lane_of: "Load"

    def granted(self, member: str) -> None:
        self.lane_of.granted(self, member)

    def refused(self, reason: str) -> None:
        self.lane_of.ended.set_exception(RuntimeError(reason))

    def queued(self, position: int, number: int = 0) -> None:
        self.lane_of.ended.set_exception(RuntimeError("nobody queues here"))


class Load:
    """`count` pairs by `at_once` runners in one lane."""

    def __init__(self, ledger: Ledger, count: int, at_once: int, pool: str = PATH) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = count
        self._running = self._at_once = at_once
        self._lane = ledger.lane(pool, self._changed)
        self._candidates = tuple(Candidate(f"10.0.0.{number}:80", 0, 1) for number in range(UPSTREAMS))

    def start(self) -> None:
        self._lane.view(PATH, self._candidates)
        for _ in range(self._at_once):
            self._lane.ask(Runner(view=PATH, candidates=self._candidates, patient=True, lane_of=self))

    def _changed(self, undecided: Sequence[Ask]) -> None:
        if undecided and not self.ended.done():
            self.ended.set_exception(RuntimeError("Redis does not answer"))

    def granted(self, runner: Runner, member: str) -> None:
        self._lane.release(member)
        self._left -= 1
        if self._left >= self._at_once:
            self._lane.ask(runner)
            return
        self._running -= 1
        if not self._running:
            self.ended.set_result(None)


async def _pairs(url: str, count: int, at_once: int, lanes: int = 1) -> tuple[float, float]:
    """Seconds, and seconds of CPU of this process."""
    connection = Connection(url, Metrics())
    ledger = Ledger(connection, "bench", Metrics(), Random(1))
    running = asyncio.create_task(ledger.run())
    await asyncio.sleep(0)  # it has begun
    loads = [Load(ledger, count // lanes, at_once, f"{PATH}{number}") for number in range(lanes)]
    began, cpu = time.perf_counter(), time.process_time()
    for load in loads:
        load.start()
    await asyncio.gather(*(load.ended for load in loads))
    took = time.perf_counter() - began, time.process_time() - cpu
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await connection.aclose()
    return took


def _cpu_of(redis: PrivateRedis) -> float:
    """Seconds since it started."""
    used: Any = redis.client.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


def measure(fleet: Fleet, steps: Steps, count: int) -> Outcome:
    """`count` pairs of acquire and release over 20 upstreams, then what one call of each script costs."""
    sections: list[Section] = []
    raw: dict[str, object] = {}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for case in PAIRS:
            steps.to(f"taking and giving back: {case.title}")
            pairs = count if case.at_once > 1 else count // ALONE
            redis_cpu = _cpu_of(fleet.redis)
            seconds, cpu = runner.run(_pairs(fleet.redis.url, pairs, case.at_once, case.lanes))
            redis_cpu = _cpu_of(fleet.redis) - redis_cpu
            raw[case.title] = {"seconds": seconds, "cpu_seconds": cpu, "redis_cpu_seconds": redis_cpu}
            figures = [
                Figure("acquire and release", pairs / seconds, "pairs/s", at_least=case.goal),
                Figure("CPU of the instance", cpu / pairs * 1e6, "µs a pair"),
                Figure("CPU of Redis", redis_cpu / pairs * 1e6, "µs a pair"),
            ]
            title = f"{pairs:,} pairs over {UPSTREAMS} upstreams, {case.title}, one instance, one Redis"
            sections.append(Section(title, figures))
        redis = fleet.redis
        sections += runner.run(ledger_scripts.measure(redis.url, redis.client, lambda text: steps.to(text)))
    steps.done()
    return Outcome(sections, raw)

"""The ledger alone: slots taken and given back by one instance, against one Redis."""

import asyncio
import time
from dataclasses import dataclass
from random import Random

import uvloop

from bench.figures import ledger_scripts
from bench.figures.asked import Asked
from bench.figures.figure import Figure, Outcome, Section
from bench.figures.fleet import Fleet
from bench.progress import Steps
from slb.balance.asking import Candidate
from slb.control.connection import Connection
from slb.control.ledger import Ledger
from slb.observe.metrics import Metrics

GOAL_PAIRS = {64: 60_000.0, 1: 6_000.0}
"""Pairs a second, by how many are under way at once: all of them travel in one batch."""
STEPS = len(GOAL_PAIRS) + ledger_scripts.CASES
UPSTREAMS = 20
ALONE = 10
"""Batches of one take so many times as long a pair: so many times fewer are measured."""


PATH = "/bench"


@dataclass(eq=False, kw_only=True)
class Runner(Asked):
    """Takes a slot, gives it back, takes the next, so many times in all with as many others."""

    lane_of: "Load"

    def granted(self, member: str) -> None:
        self.lane_of.granted(self, member)

    def refused(self, reason: str) -> None:
        self.lane_of.ended.set_exception(RuntimeError(reason))

    def queued(self, position: int) -> None:
        self.lane_of.ended.set_exception(RuntimeError("nobody queues here"))


class Load:
    """`count` pairs by `at_once` runners."""

    def __init__(self, ledger: Ledger, count: int, at_once: int) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = count
        self._running = self._at_once = at_once
        self._lane = ledger.lane(PATH, lambda undecided: None)
        self._candidates = tuple(Candidate(f"10.0.0.{number}:80", 0, 1) for number in range(UPSTREAMS))

    def start(self) -> None:
        self._lane.view(PATH, self._candidates)
        for _ in range(self._at_once):
            self._lane.ask(Runner(view=PATH, candidates=self._candidates, lane_of=self))

    def granted(self, runner: Runner, member: str) -> None:
        self._lane.release(member)
        self._left -= 1
        if self._left >= self._at_once:
            self._lane.ask(runner)
            return
        self._running -= 1
        if not self._running:
            self.ended.set_result(None)


async def _pairs(url: str, count: int, at_once: int) -> tuple[float, float]:
    """Seconds, and seconds of CPU of this process."""
    connection = Connection(url, Metrics())
    ledger = Ledger(connection, "bench", Metrics(), Random(1))
    running = asyncio.create_task(ledger.run())
    await asyncio.sleep(0)  # it has begun
    load = Load(ledger, count, at_once)
    began, cpu = time.perf_counter(), time.process_time()
    load.start()
    await load.ended
    took = time.perf_counter() - began, time.process_time() - cpu
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await connection.aclose()
    return took


def measure(fleet: Fleet, steps: Steps, count: int) -> Outcome:
    """`count` pairs of acquire and release over 20 upstreams, then what one call of each script costs."""
    sections: list[Section] = []
    raw: dict[str, object] = {}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for at_once, goal in GOAL_PAIRS.items():
            steps.to(f"taking and giving back, {at_once} at a time")
            pairs = count if at_once > 1 else count // ALONE
            seconds, cpu = runner.run(_pairs(fleet.redis.url, pairs, at_once))
            raw[f"at once {at_once}"] = {"seconds": seconds, "cpu_seconds": cpu}
            figures = [
                Figure("acquire and release", pairs / seconds, "pairs/s", at_least=goal),
                Figure("CPU of the instance", cpu / pairs * 1e6, "µs a pair"),
            ]
            title = f"{pairs:,} pairs over {UPSTREAMS} upstreams, {at_once} at a time, one instance, one Redis"
            sections.append(Section(title, figures))
        redis = fleet.redis
        sections += runner.run(ledger_scripts.measure(redis.url, redis.client, lambda text: steps.to(text)))
    steps.done()
    return Outcome(sections, raw)

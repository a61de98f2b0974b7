"""`python -m bench quota-rate`: decisions a second, coalesced and one by one, in turn on the same core."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bench.cases import Case
from bench.command import Job
from bench.errors import BenchError
from bench.http import ask, free_ports, post_json, send_json
from bench.load import Wrk
from bench.peers import SLB, find_program
from bench.processes import Processes, Running, wait_until
from bench.procstat import ProcessTree
from bench.progress import Steps
from bench.redis import PrivateRedis
from bench.table import Figure, Outcome, Section

GOAL = 3.0
MODELS = 10
ROOMY = {"max_tokens_per_minute": 1_000_000_000, "max_concurrent_requests": 1_000_000, "burst": 1_000_000_000}
SCARCE = {"max_tokens_per_minute": 60_000, "max_concurrent_requests": 10}
WARMUP_SECONDS = 1
READY_SECONDS = 30.0
LOOK_SECONDS = 1.0
ADMITTED, WAITING = "all are admitted", "nearly all have to wait"


@dataclass(frozen=True)
class Plan:
    """Rounds, seconds of each turn, and how many callers ask at the same time."""

    rounds: int
    seconds: int
    connections: int


@dataclass(frozen=True)
class Turn:
    """Decisions a second; CPU time of the router and of Redis for each, microseconds."""

    rate: float
    cpu_us: float
    redis_us: float


def quota_rate(
    rounds: Annotated[int, typer.Option(min=1, help="Times that both have their turn.")] = 3,
    seconds: Annotated[int, typer.Option(min=1, help="Length of one turn.")] = 4,
    connections: Annotated[int, typer.Option(min=1, help="Callers that ask at the same time.")] = 256,
) -> Job:
    """Decisions a second of one router on one core, beside one that sends Redis a command for each."""
    plan = Plan(rounds, seconds, connections)
    return Job(partial(measure, plan=plan), 4 * rounds)


def measure(processes: Processes, home: Path, steps: Steps, plan: Plan) -> Outcome:
    """The load and Redis have the first core, the router in its turn the last."""
    bench = Bench(processes, home, plan)
    sections = []
    for name, limits in ((ADMITTED, ROOMY), (WAITING, SCARCE)):
        turns: dict[str, list[Turn]] = {"slb": [], "plain": []}
        for number in range(plan.rounds):
            for router, start in (("slb", bench.slb), ("plain", bench.plain)):
                steps.to(f"{name}: {router}")
                turns[router].append(bench.turn(f"{name[:3]}-{router}-{number}", start, limits))
                steps.done()
        sections.append(_section(name, turns["slb"], turns["plain"], plan))
    return Outcome(sections)


Start = Callable[[Path, str, int], Running]


class Bench:
    """A fresh Redis for each turn, so that none finds what another left."""

    def __init__(self, processes: Processes, home: Path, plan: Plan) -> None:
        program = find_program("wrk")
        if program is None:
            raise BenchError("wrk is not installed, and all the load comes from it: apt-get install wrk")
        cores = sorted(os.sched_getaffinity(0))
        self._router_core = cores[-1]
        os.sched_setaffinity(0, {cores[0]})
        self._processes = processes
        self._home = home
        self._plan = plan
        self._wrk = Wrk(program, cores[0], plan.connections)
        self._case = Case("schedule", "POST /schedule", "/schedule")

    def turn(self, name: str, start: Start, limits: dict[str, int]) -> Turn:
        """One router's."""
        home = self._home / name
        home.mkdir()
        with Processes() as processes:
            redis = PrivateRedis(processes, home / "redis")
            redis.start()
            self._put(home, redis.url, limits)
            (port,) = free_ports(1)
            running = start(home, redis.url, port)
            try:
                wait_until(lambda: _answers(port), running, READY_SECONDS, "becoming ready")
                return self._loaded(running, redis.pid, port, home)
            finally:
                self._processes.stop(running)

    def slb(self, home: Path, url: str, port: int) -> Running:
        """`slb serve` as it is, with nothing but the quota router on."""
        program = SLB.program()
        if program is None:
            raise BenchError("slb is not installed")
        place = home / "router"
        place.mkdir(exist_ok=True)
        words = [
            "serve",
            "--roles",
            "quota",
            "--api",
            f"127.0.0.1:{port}",
            "--redis",
            url,
            "--access-log",
            "errors",
        ]
        environment = {"SLB_DATA_DIR": str(place / "data")}
        return self._processes.start([program, *words], self._router_core, place, environment)

    def plain(self, home: Path, url: str, port: int) -> Running:
        """The yardstick."""
        place, core = home / "router", self._router_core
        return self._processes.start_module(place, "bench.quota.plain", url, port, core=core)

    def _put(self, home: Path, url: str, limits: dict[str, int]) -> None:
        """By an slb that ends again."""
        (port,) = free_ports(1)
        running = self.slb(home, url, port)
        try:
            wait_until(lambda: ask(port, "/models")[0] == 200, running, READY_SECONDS, "becoming ready")
            for number in range(MODELS):
                status, text = send_json("PUT", port, f"/models/model-{number}", limits)
                if status != 200:
                    raise BenchError(f"PUT /models answered {status}: {text}")
        finally:
            self._processes.stop(running)

    def _loaded(self, running: Running, redis: int, port: int, home: Path) -> Turn:
        self._wrk.run(self._case, port, WARMUP_SECONDS, home, lambda: None, LOOK_SECONDS)
        trees = ProcessTree(running.pid), ProcessTree(redis)
        before = [tree.cpu_seconds() for tree in trees]
        report = self._wrk.run(self._case, port, self._plan.seconds, home, lambda: None, LOOK_SECONDS)
        used = [tree.cpu_seconds() - had for tree, had in zip(trees, before, strict=True)]
        running.check_alive()
        if report.errors or not report.requests:
            raise BenchError(f"{home.name}: {report.requests} decisions, errors: {report.errors}; {running.tail()}")
        return Turn(report.requests / report.seconds, *(each / report.requests * 1e6 for each in used))


def _answers(port: int) -> bool:
    try:
        return post_json(port, "/schedule", {"estimated_tokens": 1})[0] == 200
    except OSError:
        return False


def _section(name: str, slb: list[Turn], plain: list[Turn], plan: Plan) -> Section:
    """The best of all rounds: whatever else the machine does can only slow a round down."""
    best, other = max(slb, key=_rate), max(plain, key=_rate)
    figures = [
        Figure("slb, coalesced", best.rate, "decisions/s"),
        Figure("one command for each", other.rate, "decisions/s"),
        Figure("their ratio", best.rate / other.rate, at_least=GOAL),
        Figure("CPU of slb", best.cpu_us, "µs a decision"),
        Figure("CPU of the other router", other.cpu_us, "µs a decision"),
        Figure("CPU of Redis, with slb", best.redis_us, "µs a decision"),
        Figure("CPU of Redis, with the other", other.redis_us, "µs a decision"),
    ]
    title = f"{name}: {plan.connections} callers, {MODELS} models, one core; best of {plan.rounds} rounds"
    return Section(title, figures)


def _rate(turn: Turn) -> float:
    return turn.rate

"""`python -m bench quota-rate`: decisions a second, coalesced and one by one, in turn on the same core."""

import os
from typing import Annotated, NamedTuple

from typer import Option

from bench.command import Bench
from bench.fleet import Fleet
from bench.http import send_json, wait_until_served
from bench.measure import Case, LoadReport, Wrk, counted, pinned_cores
from bench.ports import free_ports
from bench.processes import BenchError, Processes
from bench.procstat import ProcessTree
from bench.table import Figure, Outcome, Section

GOAL = 3.0
MODELS = 10
ROOMY = {"max_tokens_per_minute": 10**9, "max_concurrent_requests": 10**6, "burst": 10**9}
SCARCE = {"max_tokens_per_minute": 60_000, "max_concurrent_requests": 10}
LIMITS = {"all are admitted": ROOMY, "nearly all have to wait": SCARCE}
WARMUP_SECONDS, READY_SECONDS = 1, 30.0
CASE = Case("schedule", "POST /schedule", "/schedule")


class Turn(NamedTuple):
    """Decisions a second; CPU time of the router and of Redis for each, microseconds."""

    rate: float
    cpu_us: float
    redis_us: float


def quota_rate(
    bench: Bench,
    rounds: Annotated[int, Option(min=1, help="Times that both have their turn.")] = 3,
    seconds: Annotated[int, Option(min=1, help="Length of one turn.")] = 4,
    connections: Annotated[int, Option(min=1, help="Callers that ask at the same time.")] = 256,
) -> Outcome:
    """Decisions a second of one router on one core, beside one that sends Redis a command for each. The load and
    Redis have the first core, the router in its turn the last."""
    router_core, load_core = pinned_cores()
    wrk = Wrk(load_core, connections)

    def turn(limits: dict[str, int], is_slb: bool) -> Turn:
        """With a fresh Redis, so that none finds what another left."""
        with Processes() as processes:
            home = bench.home / f"turn-{len(os.listdir(bench.home))}"
            home.mkdir()
            fleet, (port, setter_port) = Fleet(processes, home), free_ports(2)
            setter = fleet.start_router(setter_port, router_core)
            wait_until_served([setter_port], "/models", setter, READY_SECONDS)
            for number in range(MODELS):
                send_json("PUT", setter_port, f"/models/model-{number}", limits)
            processes.stop(setter)
            if is_slb:
                running, path = fleet.start_router(port, router_core), "/models"
            else:
                words = (fleet.folder("plain"), "bench.quota.plain", fleet.redis.url, port)
                running, path = processes.start_module(*words, core=router_core), "/ready"
            wait_until_served([port], path, running, READY_SECONDS)

            def load(length: int) -> LoadReport:
                return wrk.run(CASE, port, length, home)

            trees = ProcessTree(running.pid), ProcessTree(fleet.redis.pid)
            report, used = counted(load, WARMUP_SECONDS, seconds, running, *trees)
            if report.errors:
                raise BenchError(f"{report.requests} decisions, errors: {report.errors}")
            return Turn(report.requests / report.seconds, *(each / report.requests * 1e6 for each in used))

    sections = []
    for name, limits in LIMITS.items():
        turns: list[tuple[Turn, Turn]] = []
        for number in range(1, rounds + 1):
            bench.to(f"{name}: round {number}")
            turns.append((turn(limits, is_slb=True), turn(limits, is_slb=False)))
        title = f"{name}: {connections} callers, {MODELS} models, one core; best of {rounds} rounds"
        sections.append(_section(title, *map(max, zip(*turns, strict=True))))
    return Outcome(sections)


def _section(title: str, slb: Turn, other: Turn) -> Section:
    """Of the best rounds: whatever else the machine does can only slow a round down."""
    figures = [
        Figure("slb, coalesced", slb.rate, "decisions/s"),
        Figure("one command for each", other.rate, "decisions/s"),
        Figure("their ratio", slb.rate / other.rate, at_least=GOAL),
        Figure("CPU of slb", slb.cpu_us, "µs a decision"),
        Figure("CPU of the other router", other.cpu_us, "µs a decision"),
        Figure("CPU of Redis, with slb", slb.redis_us, "µs a decision"),
        Figure("CPU of Redis, with the other", other.redis_us, "µs a decision"),
    ]
    return Section(title, figures)

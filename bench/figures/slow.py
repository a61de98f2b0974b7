"""Slow clients beside healthy ones: what the healthy ones notice."""

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.figures.figure import Figure, Outcome, Section
from bench.figures.fleet import Fleet, Instance
from bench.figures.local import MIB, Loop, Upstream, allow_descriptors
from bench.figures.traffic import Tally, Traffic
from bench.progress import Steps

GOAL_RATIO = 2.0
STEPS = 2
DESCRIPTORS = 4096
SETTLE_SECONDS = 2.0
LOOK_EVERY_SECONDS = 0.1
BACK_SECONDS = 10.0
LARGE = 64 * MIB


@dataclass(frozen=True)
class Plan:
    """What the user asked for."""

    slow: int = 200
    rate: int = 500
    seconds: float = 10.0


def healthy(instance: Instance, plan: Plan) -> Tally:
    """What requests at a steady rate see."""
    with Traffic([instance.port], "/small", plan.rate) as traffic:
        time.sleep(plan.seconds)
    return Tally.of(traffic.answers)


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def connections(port: int, states: str = "01 08") -> int:
    """Connections to a port of this machine that their owner has not closed (proc(5): established, close wait)."""
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(row[1].endswith(f":{port:04X}") and row[3] in states.split() for row in rows)


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    """Until it holds or time is up: what it is then is the figure."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_SECONDS)


def measure(fleet: Fleet, steps: Steps, plan: Plan) -> Outcome:
    """Healthy requests alone, then beside slow clients."""
    allow_descriptors(DESCRIPTORS)
    with Loop() as loop:
        member = loop.run(Upstream(MIB, LARGE).start())
        instance = fleet.start_instance()
        instance.wait_until_ready()
        instance.register("/", member)
        steps.to("without slow clients")
        alone = healthy(instance, plan)
        time.sleep(SETTLE_SECONDS)
        before = descriptors(instance.running.pid)
        steps.done()
        steps.to(f"beside {plan.slow} slow clients")
        clients = fleet.start_module("bench.figures.slow_clients", str(instance.port), str(plan.slow))
        wait_for(lambda: connections(instance.port) >= plan.slow, BACK_SECONDS)
        time.sleep(SETTLE_SECONDS)
        during = descriptors(instance.running.pid)
        beside = healthy(instance, plan)
        fleet.stop(clients)
        wait_for(lambda: connections(instance.port) == 0, BACK_SECONDS)
        left, after = connections(instance.port), descriptors(instance.running.pid)
        steps.done()
    figures = [
        Figure("healthy requests, p99, alone", alone.p99_ms, "ms"),
        Figure(f"healthy requests, p99, beside {plan.slow} slow clients", beside.p99_ms, "ms"),
        Figure("how many times as much", beside.p99_ms / alone.p99_ms, below=GOAL_RATIO),
        Figure("healthy requests failed", alone.failed(200) + beside.failed(200), at_most=0),
        Figure("descriptors before", before),
        Figure("descriptors meanwhile", during),
        Figure("descriptors afterwards, with idle connections to the upstream", after),
        Figure("client connections left", left, at_most=0),
    ]
    raw: dict[str, object] = {"alone": asdict(alone), "beside": asdict(beside)}
    return Outcome([Section(f"{plan.rate} healthy requests a second", figures)], raw)

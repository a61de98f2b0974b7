"""Slow clients beside healthy ones, and each attacker: what the healthy ones notice."""

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Self

from bench.figures import attacks
from bench.figures.attacks import Plan as AttackPlan
from bench.figures.attacks import healthy
from bench.figures.figure import Figure, Outcome, Section
from bench.figures.fleet import Fleet, Instance
from bench.figures.local import MIB, Loop, Upstream, allow_descriptors
from bench.figures.traffic import Tally
from bench.progress import Steps

GOAL_RATIO = 2.0
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
    seconds: float = 4.0
    rounds: int = 7


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


@dataclass(frozen=True)
class Turn:
    """One stretch of time alone, and one beside slow clients; open descriptors of the instance before, during and
    after the second, and client connections left then."""

    alone: Tally
    beside: Tally
    before: int
    during: int
    after: int
    left: int

    @classmethod
    def of(cls, fleet: Fleet, instance: Instance, plan: Plan) -> Self:
        alone = healthy(instance, plan.rate, plan.seconds)
        time.sleep(SETTLE_SECONDS)
        before = descriptors(instance.running.pid)
        clients = fleet.start_module("bench.figures.slow_clients", instance.port, plan.slow)
        wait_for(lambda: connections(instance.port) >= plan.slow, BACK_SECONDS)
        time.sleep(SETTLE_SECONDS)
        during = descriptors(instance.running.pid)
        beside = healthy(instance, plan.rate, plan.seconds)
        fleet.stop(clients)
        wait_for(lambda: connections(instance.port) == 0, BACK_SECONDS)
        left, after = connections(instance.port), descriptors(instance.running.pid)
        return cls(alone, beside, before, during, after, left)


def measure(fleet: Fleet, steps: Steps, plan: Plan, attack_plan: AttackPlan) -> Outcome:
    """Healthy requests alone and beside slow clients, in turn; then the same with each attacker."""
    allow_descriptors(DESCRIPTORS)
    turns: list[Turn] = []
    with Loop() as loop:
        member = loop.run(Upstream(MIB, LARGE).start())
        instance = fleet.start_instance()
        instance.wait_until_ready()
        instance.register("/", member)
        for number in range(plan.rounds):
            steps.to(f"round {number + 1}: alone, and beside {plan.slow} slow clients")
            turns.append(Turn.of(fleet, instance, plan))
            steps.done()
        fleet.stop_instance(instance)
        attacked, attacks_raw = attacks.measure(fleet, steps, attack_plan, member)
    alone = median(turn.alone.p99_ms for turn in turns)
    beside = median(turn.beside.p99_ms for turn in turns)
    figures = [
        Figure("healthy requests, p99, alone", alone, "ms"),
        Figure(f"healthy requests, p99, beside {plan.slow} slow clients", beside, "ms"),
        Figure("how many times as much", beside / alone, below=GOAL_RATIO),
        Figure(
            "healthy requests failed", sum(t.alone.failed(200) + t.beside.failed(200) for t in turns), at_most=0
        ),
        Figure("descriptors before", max(turn.before for turn in turns)),
        Figure("descriptors meanwhile", max(turn.during for turn in turns)),
        Figure("descriptors afterwards, with idle connections to the upstream", max(turn.after for turn in turns)),
        Figure("client connections left", max(turn.left for turn in turns), at_most=0),
    ]
    raw: dict[str, object] = {"rounds": [asdict(turn) for turn in turns], "attacks": attacks_raw}
    title = f"{plan.rate} healthy requests a second, {plan.rounds} rounds (medians of p99; most descriptors)"
    return Outcome([Section(title, figures), attacked], raw)

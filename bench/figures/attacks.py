"""One client that does its worst beside healthy ones: what the healthy ones notice."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median

from bench.figures.attackers import BEGUN
from bench.figures.figure import Figure, Section
from bench.figures.fleet import READY_SECONDS, Fleet, Instance
from bench.figures.traffic import Tally, Traffic
from bench.processes import wait_until
from bench.progress import Steps

GOAL_RATIO = 2.0
SETTLE_SECONDS = 1.0
MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Plan:
    """What the user asked for: healthy requests a second, for how long, how often; and `bandwidth`, the attacker's
    bytes a second."""

    rate: int
    seconds: float
    rounds: int
    bandwidth: float


@dataclass(frozen=True)
class Attack:
    """`kind` is one of `attackers.KINDS`; it has `times` as much as a client's bandwidth."""

    kind: str
    words: str
    times: float = 1


ATTACKS = (
    Attack("pipelined", "pipelines requests that slb answers itself"),
    Attack("pipelined", "the same, ten times as fast", 10),
    Attack("chunks", "uploads in chunks of one byte, with extensions"),
    Attack("chunks", "the same, ten times as fast", 10),
    Attack("registration", "uploads such chunks to /register, ten times as fast", 10),
    Attack("api", "the same to the API", 10),
    Attack("connects", "connects and closes, all the time"),
    Attack("held", "connects, and holds 2,000 connections"),
    Attack("heads", "sends heads of 64 KB that are long to read"),
    Attack("idle", "holds 600 idle connections to the API"),
)


PATHS = ("/small", "/large", "/slow", "/sink")
"""Those that have an upstream: what is asked for elsewhere, slb answers itself."""


@contextmanager
def beside(fleet: Fleet, attack: Attack, plan: Plan, instance: Instance) -> Iterator[None]:
    """The attacker is at work, and gone afterwards."""
    words = (attack.kind, str(plan.bandwidth * attack.times), str(instance.port), str(instance.api_port))
    attacker = fleet.start_module("bench.figures.attackers", *words)
    try:
        wait_until((attacker.home / BEGUN).exists, attacker, READY_SECONDS, "beginning to attack")
        yield
        attacker.check_alive()
    finally:
        fleet.stop(attacker)


def healthy(instance: Instance, rate: int, seconds: float) -> Tally:
    """What requests at a steady rate see."""
    with Traffic([instance.port], "/small", rate) as traffic:
        time.sleep(seconds)
    return Tally.of(traffic.answers)


def measure(
    fleet: Fleet, steps: Steps, plan: Plan, member: str, attacks: tuple[Attack, ...] = ATTACKS
) -> tuple[Section, dict[str, object]]:
    """Healthy requests alone and beside each attacker, in turn; an instance of its own for each."""
    figures: list[Figure] = []
    raw: dict[str, object] = {}
    for attack in attacks:
        steps.to(f"one client {attack.words}")
        turns = _turns(fleet, attack, plan, member)
        figures += _figures(attack, turns)
        raw[f"{attack.kind} x{attack.times:g}"] = [[asdict(tally) for tally in turn] for turn in turns]
        steps.done()
    title = (
        f"One client with {plan.bandwidth / MEGABYTE:g} MB/s beside {plan.rate} healthy requests a second, "
        f"{plan.rounds} rounds (medians of p99)"
    )
    return Section(title, figures), raw


def _turns(fleet: Fleet, attack: Attack, plan: Plan, member: str) -> list[tuple[Tally, Tally]]:
    instance = fleet.start_instance()
    instance.wait_until_ready()
    for path in PATHS:
        instance.register(path, member)
    turns = []
    for _ in range(plan.rounds):
        alone = healthy(instance, plan.rate, plan.seconds)
        with beside(fleet, attack, plan, instance):
            attacked = healthy(instance, plan.rate, plan.seconds)
        turns.append((alone, attacked))
        time.sleep(SETTLE_SECONDS)
    fleet.stop_instance(instance)
    return turns


def _figures(attack: Attack, turns: list[tuple[Tally, Tally]]) -> list[Figure]:
    alone, beside = (median(turn[at].p99_ms for turn in turns) for at in (0, 1))
    failed = sum(tally.failed(200) for turn in turns for tally in turn)
    return [
        Figure(f"{attack.words}: p99 alone", alone, "ms"),
        Figure("  beside it", beside, "ms"),
        Figure("  how many times as much", beside / alone, below=GOAL_RATIO),
        Figure("  healthy requests failed", failed, at_most=0),
    ]

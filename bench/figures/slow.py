"""Slow clients, and single ones that do their worst, beside healthy ones: what the healthy ones notice."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple

from typer import Option

from bench.command import Bench
from bench.figures.slow_clients import BEGUN, DESCRIPTORS
from bench.fleet import Fleet, Instance
from bench.local import Upstream, allow_descriptors
from bench.processes import wait_until
from bench.procstat import MIB
from bench.table import Figure, Outcome, Section
from bench.traffic import Loop, Tally, Traffic

GOAL_RATIO = 2.0
READY_SECONDS, SETTLE_SECONDS, BACK_SECONDS, LOOK_EVERY_SECONDS = 60.0, 2.0, 10.0, 0.1
LARGE = 64 * MIB
MEGABYTE = 1_000_000
PATHS = ("/small", "/large", "/slow", "/sink")  # the routes: for other paths slb itself answers
OPEN_STATES = ("01", "08")  # of a connection that its owner has not closed (proc(5)): established, close wait
ATTACKS: Sequence[tuple[str, str, float]] = (
    ("pipelined", "pipelines requests that slb answers itself", 1),
    ("pipelined", "the same, ten times as fast", 10),
    ("chunks", "uploads in chunks of one byte, with extensions", 1),
    ("chunks", "the same, ten times as fast", 10),
    ("registration", "uploads such chunks to /register, ten times as fast", 10),
    ("api", "the same to the API", 10),
    ("connects", "connects and closes, all the time", 1),
    ("held", "connects, and holds 2,000 connections", 1),
    ("heads", "sends heads of 64 KB that are long to read", 1),
    ("idle", "holds 600 idle connections to the API", 1),
)
"""One of `slow_clients.KINDS`, in words, and how many times a client's bandwidth it has."""


class Turns(NamedTuple):
    """Healthy requests alone, and beside others: by turn."""

    alone: list[Tally]
    beside: list[Tally]

    def figures(self, alone: str, beside: str, indent: str) -> list[Figure]:
        """`alone`, `beside`: what the two medians of p99 are called."""
        without, with_them = (median(each.p99_ms for each in tallies) for tallies in self)
        failed = sum(each.failed for tallies in self for each in tallies)
        return [
            Figure(alone, without, "ms"),
            Figure(beside, with_them, "ms"),
            Figure(f"{indent}how many times as much", with_them / without, below=GOAL_RATIO),
            Figure(f"{indent}healthy requests failed", failed, at_most=0),
        ]


class Healthy(NamedTuple):
    """Requests at a steady rate, for so long."""

    rate: int
    seconds: float

    def through(self, instance: Instance) -> Tally:
        with Traffic([instance.port], "/small", self.rate) as traffic:
            time.sleep(self.seconds)
        return Tally.of(traffic.answers)


def _descriptors(instance: Instance) -> int:
    return len(os.listdir(f"/proc/{instance.running.pid}/fd"))


def _connections(port: int) -> int:
    """Open ones to a port of this machine."""
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(row[1].endswith(f":{port:04X}") and row[3] in OPEN_STATES for row in rows)


def _wait_for(condition: Callable[[], bool]) -> None:
    """Until it holds or time is up: what it is then is the figure."""
    deadline = time.monotonic() + BACK_SECONDS
    while not condition() and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_SECONDS)


@contextmanager
def _beside(fleet: Fleet, kind: str, amount: float, instance: Instance) -> Iterator[None]:
    """The clients of one kind are at work, and gone afterwards."""
    folder = fleet.folder("clients")
    words = (kind, amount, instance.port, instance.api_port)
    clients = fleet.processes.start_module(folder, "bench.figures.slow_clients", *words)
    try:
        wait_until((folder / BEGUN).exists, clients, READY_SECONDS, "beginning to attack")
        yield
        clients.check_alive()
    finally:
        fleet.processes.stop(clients)


def _beside_slow(fleet: Fleet, member: str, clients: int, healthy: Healthy, rounds: int) -> list[Figure]:
    """A third of the clients sends heads slowly, a third bodies, a third reads slowly."""
    instance, turns = fleet.start_ready(member), Turns([], [])
    before, meanwhile, after, left = list[int](), list[int](), list[int](), list[int]()
    for _ in range(rounds):
        turns.alone.append(healthy.through(instance))
        time.sleep(SETTLE_SECONDS)
        before.append(_descriptors(instance))
        with _beside(fleet, "slow", clients, instance):
            _wait_for(lambda: _connections(instance.port) >= clients)
            time.sleep(SETTLE_SECONDS)
            meanwhile.append(_descriptors(instance))
            turns.beside.append(healthy.through(instance))
        _wait_for(lambda: _connections(instance.port) == 0)
        after.append(_descriptors(instance))
        left.append(_connections(instance.port))
    fleet.stop_instance(instance)
    of = "healthy requests, p99, "
    return [
        *turns.figures(f"{of}alone", f"{of}beside {clients} slow clients", ""),
        Figure("descriptors before", max(before)),
        Figure("descriptors meanwhile", max(meanwhile)),
        Figure("descriptors afterwards, with idle connections to the upstream", max(after)),
        Figure("client connections left", max(left), at_most=0),
    ]


def _attacked(fleet: Fleet, kind: str, bandwidth: float, member: str, healthy: Healthy, rounds: int) -> Turns:
    """By an attacker with so many bytes a second; an instance of its own for each attack."""
    instance, turns = fleet.start_ready(member, PATHS), Turns([], [])
    for _ in range(rounds):
        turns.alone.append(healthy.through(instance))
        with _beside(fleet, kind, bandwidth, instance):
            turns.beside.append(healthy.through(instance))
        time.sleep(SETTLE_SECONDS)
    fleet.stop_instance(instance)
    return turns


def slow(
    bench: Bench,
    clients: Annotated[int, Option(min=3, help="Slow ones: heads, bodies and readers, a third each.")] = 200,
    rate: Annotated[int, Option(min=1, help="Healthy requests per second.")] = 500,
    seconds: Annotated[float, Option(min=0.1, help="Without slow clients, and again with them.")] = 4.0,
    rounds: Annotated[int, Option(min=1, help="How often; noise of the machine goes to both.")] = 7,
    attack_rounds: Annotated[int, Option(min=1, help="The same, of each attacker.")] = 3,
    bandwidth: Annotated[float, Option(min=0.01, help="MB/s that one attacker sends.")] = 0.8,
) -> Outcome:
    """Slow clients, and single ones that do their worst, beside healthy ones: what the healthy ones notice."""
    healthy, attacks = Healthy(rate, seconds), list[Figure]()
    allow_descriptors(DESCRIPTORS)
    fleet = bench.fleet()
    with Loop() as loop:
        member = loop.run(Upstream(MIB, LARGE).start())
        bench.to(f"{rounds} rounds alone, and beside {clients} slow clients")
        figures = _beside_slow(fleet, member, clients, healthy, rounds)
        for kind, words, times in ATTACKS:
            bench.to(f"one client {words}")
            turns = _attacked(fleet, kind, bandwidth * MEGABYTE * times, member, healthy, attack_rounds)
            attacks += turns.figures(f"{words}: p99 alone", "  beside it", "  ")
    of = f"{rate} healthy requests a second"
    title = f"{of}, {rounds} rounds (medians of p99; most descriptors)"
    worst = f"One client with {bandwidth:g} MB/s beside {of}, {attack_rounds} rounds (medians of p99)"
    return Outcome([Section(title, figures), Section(worst, attacks)])

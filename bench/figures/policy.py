"""What the global view costs a small request: `least_inflight` beside `round_robin`, in turn in each round."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from bench.cases import CASES
from bench.errors import BenchError
from bench.figures.figure import Figure, Outcome, Section
from bench.http import free_ports
from bench.load import Wrk
from bench.measure import Measurement, Plan
from bench.peers import SLB, Peer, find_program
from bench.processes import Processes
from bench.progress import Steps
from bench.results import Sample, as_json
from bench.upstream import Upstreams

LOCAL, GLOBAL = "round_robin", "least_inflight"
CONNECTIONS = (64, 8, 1)
GOAL_CPU = 1.4
GOAL_ADDED_P50_MS = 1.0
STEPS_A_ROUND = 2 * len(CONNECTIONS)


@dataclass(frozen=True)
class Plans:
    """How long each of the runs takes."""

    rounds: int
    seconds: int


def _slb(policy: str) -> Peer:
    config = f"slb-{policy.replace('_', '-')}.toml"
    return replace(SLB, arguments=(*SLB.arguments, "--config", f"@home@/{config}"), configs=(config,))


def measure(processes: Processes, home: Path, steps: Steps, plans: Plans) -> Outcome:
    """Small GETs whose heads repeat, over 64, 8 and 1 connections."""
    program = find_program("wrk")
    if program is None:
        raise BenchError("wrk is not installed, and all the load comes from it: apt-get install wrk")
    cores = sorted(os.sched_getaffinity(0))
    load_core, proxy_core = cores[0], cores[-1]
    os.sched_setaffinity(0, {load_core})
    ports = free_ports(2)
    Upstreams(processes, home / "site", load_core, (ports[0], ports[1])).start()
    plan = Plan((ports[0], ports[1]), proxy_core, plans.seconds, 1)
    sections: list[Section] = []
    raw: dict[str, object] = {}
    for connections in CONNECTIONS:
        measurement = Measurement(processes, Wrk(program, load_core, connections), plan)
        found = _pairs(measurement, connections, steps, plans.rounds)
        sections.append(_section(connections, *found))
        raw[str(connections)] = as_json([*found[0], *found[1]])
    return Outcome(sections, raw)


def _pairs(
    measurement: Measurement, connections: int, steps: Steps, rounds: int
) -> tuple[list[Sample], list[Sample]]:
    found: dict[str, list[Sample]] = {LOCAL: [], GLOBAL: []}
    for number in range(rounds):
        for policy, samples in found.items():
            steps.to(f"{policy}, {connections} connections")
            sample = measurement.take(_slb(policy), CASES[0], number)
            if sample.failure:
                raise BenchError(f"{policy}: {sample.failure}")
            samples.append(sample)
            steps.done()
    return found[LOCAL], found[GLOBAL]


def _section(connections: int, local: Sequence[Sample], shared: Sequence[Sample]) -> Section:
    """Each round's ratio is of two runs that followed each other: the machine changes less in between. With many
    connections in a closed loop p50 is their number divided by the rate, whatever a request waits for: so what is
    added to it has its goal where nothing queues."""
    ratios = [two.cpu_us_per_request / one.cpu_us_per_request for one, two in zip(local, shared, strict=True)]
    added = [(two.p50_us - one.p50_us) / 1000 for one, two in zip(local, shared, strict=True)]
    figures = [
        Figure(f"CPU a request, {LOCAL}", median(each.cpu_us_per_request for each in local), "µs"),
        Figure(f"CPU a request, {GLOBAL}", median(each.cpu_us_per_request for each in shared), "µs"),
        Figure("their ratio", median(ratios), "", at_most=GOAL_CPU if connections == CONNECTIONS[0] else None),
        Figure("added to p50", median(added), "ms", below=GOAL_ADDED_P50_MS if connections == 1 else None),
    ]
    return Section(f"{connections} connections, small GET, heads repeat; median of {len(local)} rounds", figures)

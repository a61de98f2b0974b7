"""What the global view costs a small request: `least_inflight` beside `round_robin`, in turn in each round."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Annotated

from typer import Option

from bench.command import Bench
from bench.errors import BenchError
from bench.load import CASES
from bench.measure import Measurement, Sample, pinned_cores
from bench.peers import SLB, Peer
from bench.table import Figure, Outcome, Section

LOCAL, GLOBAL = "round_robin", "least_inflight"
CONNECTIONS = (64, 8, 1)
GOAL_CPU = 1.4
GOAL_ADDED_P50_MS = 1.0
WARMUP_SECONDS = 1


def _slb(policy: str) -> Peer:
    config = f"slb-{policy.replace('_', '-')}.toml"
    return replace(SLB, arguments=(*SLB.arguments, "--config", f"@home@/{config}"), configs=(config,))


def policy(
    bench: Bench,
    rounds: Annotated[int, Option(min=1, help="Times that both have their turn.")] = 3,
    seconds: Annotated[int, Option(min=1, help="Length of one counted run.")] = 4,
) -> Outcome:
    """What least_inflight costs a small request, beside round_robin."""
    measurement = Measurement(bench, *pinned_cores(), seconds, WARMUP_SECONDS)
    sections: list[Section] = []
    for connections in CONNECTIONS:
        found: dict[str, list[Sample]] = {LOCAL: [], GLOBAL: []}
        for number in range(rounds):
            for name, samples in found.items():
                bench.to(f"{name}, {connections} connections")
                samples.append(measurement.take(_slb(name), CASES[0], number, connections))
                if samples[-1].failure:
                    raise BenchError(f"{name}: {samples[-1].failure}")
        sections.append(_section(connections, found[LOCAL], found[GLOBAL]))
    return Outcome(sections)


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

"""What the global view costs a small request: `least_inflight` beside `round_robin`, in turn in each round."""

from dataclasses import replace
from statistics import median
from typing import Annotated

from typer import Option

from bench.command import Bench
from bench.measure import CASES, Measurement, Sample
from bench.peers import SLB
from bench.processes import BenchError
from bench.table import Figure, Outcome, Section

LOCAL, GLOBAL = "round_robin", "least_inflight"
CONNECTIONS = (64, 8, 1)
GOAL_CPU, GOAL_ADDED_P50_MS = 1.4, 1.0
WARMUP_SECONDS = 1


def policy(
    bench: Bench,
    rounds: Annotated[int, Option(min=1, help="Times that both have their turn.")] = 3,
    seconds: Annotated[int, Option(min=1, help="Length of one counted run.")] = 4,
) -> Outcome:
    """What least_inflight costs a small request, beside round_robin."""
    measurement = Measurement(bench, seconds, WARMUP_SECONDS)

    def taken(name: str, connections: int) -> Sample:
        bench.to(f"{name}, {connections} connections")
        config = f"slb-{name.replace('_', '-')}.toml"
        peer = replace(SLB, arguments=(*SLB.arguments, "--config", f"@home@/{config}"), configs=(config,))
        sample = measurement.take(peer, CASES[0], connections)
        if sample.failure:
            raise BenchError(f"{name}: {sample.failure}")
        return sample

    return Outcome(
        [_section(each, [(taken(LOCAL, each), taken(GLOBAL, each)) for _ in range(rounds)]) for each in CONNECTIONS]
    )


def _section(connections: int, rounds: list[tuple[Sample, Sample]]) -> Section:
    """Each round's ratio is of two runs that followed each other: the machine changes less in between. With many
    connections in a closed loop p50 is their number divided by the rate, whatever a request waits for: so what is
    added to it has its goal where nothing queues."""
    ratio = median(two.cpu_us / one.cpu_us for one, two in rounds)
    added = median((two.load.p50_us - one.load.p50_us) / 1000 for one, two in rounds)
    figures = [
        Figure(f"CPU a request, {LOCAL}", median(one.cpu_us for one, _ in rounds), "µs"),
        Figure(f"CPU a request, {GLOBAL}", median(two.cpu_us for _, two in rounds), "µs"),
        Figure("their ratio", ratio, "", at_most=GOAL_CPU if connections == CONNECTIONS[0] else None),
        Figure("added to p50", added, "ms", below=GOAL_ADDED_P50_MS if connections == 1 else None),
    ]
    return Section(f"{connections} connections, small GET, heads repeat; median of {len(rounds)} rounds", figures)

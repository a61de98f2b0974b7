"""What traces cost a small request: slb without them, and with shares of the requests traced, in turn in each
round."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Annotated

from typer import Option

from bench.command import Bench
from bench.measure import CASES, Measurement, Sample
from bench.peers import SLB
from bench.processes import BenchError
from bench.table import Figure, Outcome, Section

OFF, SHARES = "off", ("0.01", "1")
GOALS = {"0.01": 1.03}
"""CPU a request in units of that without traces, at most, by share."""
COLLECTOR = "http://127.0.0.1:@upstream_a@/upload"
"""The upstreams take any POST there."""
WARMUP_SECONDS = 1


def trace(
    bench: Bench,
    rounds: Annotated[int, Option(min=1, help="Times that each has its turn.")] = 5,
    seconds: Annotated[int, Option(min=1, help="Length of one counted run.")] = 4,
    connections: Annotated[int, Option(min=1, help="Connections wrk keeps alive.")] = 64,
) -> Outcome:
    """What traces cost a small request, by the share that is traced."""
    measurement = Measurement(bench, seconds, WARMUP_SECONDS)

    def taken(share: str) -> Sample:
        bench.to(f"traces: {share}")
        more = {} if share == OFF else {"SLB_TRACE_ENDPOINT": COLLECTOR, "SLB_TRACE_SHARE": share}
        # The rate is for strangers' floods: here it would cut the share of one off.
        environment = {**SLB.environment, **more, **({"SLB_TRACE_RATE": "0"} if more else {})}
        sample = measurement.take(replace(SLB, environment=environment), CASES[0], connections)
        if sample.failure:
            raise BenchError(f"traces {share}: {sample.failure}")
        return sample

    return Outcome([_section([{each: taken(each) for each in (OFF, *SHARES)} for _ in range(rounds)])])


def _section(rounds: Sequence[Mapping[str, Sample]]) -> Section:
    """Each ratio is of runs that followed each other: the machine changes less in between."""
    cost = {each: median(samples[each].cpu_us for samples in rounds) for each in (OFF, *SHARES)}
    ratios = [
        Figure(
            f"of that, a share of {share}",
            median(samples[share].cpu_us / samples[OFF].cpu_us for samples in rounds),
            at_most=GOALS.get(share),
        )
        for share in SHARES
    ]
    figures = [*(Figure(f"CPU a request, traces {each}", figure, "µs") for each, figure in cost.items()), *ratios]
    return Section(f"traces: small GET, heads repeat; median of {len(rounds)} rounds", figures)

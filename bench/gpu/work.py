"""The work of one case: when requests arrive, how long each takes, and through which proxy it goes; and what would
come of it without any delay. It is made before anything is started, from a seed, so that every balancer gets the
very same.
"""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush, heapreplace
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Annotated, NamedTuple

from typer import Option

from bench.processes import BenchError

TRACES = {"code": "AzureLLMInferenceTrace_code.csv", "conv": "AzureLLMInferenceTrace_conv.csv"}
TracesOption = Annotated[
    Path | None, Option(envvar="SLB_BENCH_TRACES", help="The folder with the traces.", show_default=False)
]
LEAST_LINES = 2
CV = 0.25  # the coefficient of variation of Poisson work's service times
FAST_RATE, FAST_SERVICE, FAST_SECONDS = 500, 0.002, 20.0  # requests a second, seconds each, seconds at most


@dataclass(frozen=True)
class Work:
    """Seconds throughout. Arrivals count from the start of the load and ascend; `proxies` are numbers; `service` is
    the mean that was asked for."""

    name: str
    title: str
    arrivals: Sequence[float]
    services: Sequence[float]
    proxies: Sequence[int]
    service: float


@dataclass(frozen=True)
class Shape:
    """What all cases of one run have in common; `seconds` is how long requests arrive."""

    pods: int
    proxies: int
    seconds: float
    seed: int


def poisson_arrivals(rng: Random, rate: float, seconds: float) -> list[float]:
    """Independent arrivals at `rate` a second; as many as are expected, so that the load is what was asked for."""
    gaps = [rng.expovariate(1.0) for _ in range(max(1, round(rate * seconds)) + 1)]
    scale = seconds / sum(gaps)
    return [at * scale for at in accumulate(gaps[:-1])]


def log_normal(rng: Random, mean: float, cv: float, count: int) -> list[float]:
    """`count` durations about `mean`, with the coefficient of variation `cv`."""
    variance = math.log1p(cv * cv)
    middle = math.log(mean) - variance / 2
    return [rng.lognormvariate(middle, math.sqrt(variance)) for _ in range(count)]


def poisson_work(shape: Shape, load: float, mean: float) -> Work:
    """Poisson arrivals of log-normal requests that keep `load` of the pods busy."""
    rng = Random(shape.seed)
    arrivals = poisson_arrivals(rng, load * shape.pods / mean, shape.seconds)
    services = log_normal(rng, mean, CV, len(arrivals))
    title = (
        f"Poisson arrivals, {load:.0%} load, service {mean * 1e3:.0f} ms log-normal (CV {CV:g}), "
        f"{len(arrivals):,} requests in {shape.seconds:g} s"
    )
    return Work("poisson", title, arrivals, services, _proxies(rng, shape, len(arrivals)), mean)


def fast_work(shape: Shape) -> Work:
    """Fast requests, all alike, at a low load: where a global view has nothing to see."""
    rng, seconds = Random(shape.seed), min(shape.seconds, FAST_SECONDS)
    arrivals = poisson_arrivals(rng, FAST_RATE, seconds)
    title = (
        f"fast and uniform: Poisson arrivals, {FAST_RATE} a second of {FAST_SERVICE * 1e3:g} ms each, "
        f"{FAST_RATE * FAST_SERVICE / shape.pods:.0%} load, {len(arrivals):,} requests in {seconds:g} s"
    )
    services = [FAST_SERVICE] * len(arrivals)
    return Work("fast", title, arrivals, services, _proxies(rng, shape, len(arrivals)), FAST_SERVICE)


def _proxies(rng: Random, shape: Shape, count: int) -> list[int]:
    """At random, as a client's resolver or a layer-4 balancer spreads clients over a fleet."""
    return [rng.randrange(shape.proxies) for _ in range(count)]


class Line(NamedTuple):
    """One request: seconds since the first one, and tokens of the prompt and of the answer."""

    at: float
    context: int
    generated: int


def read_trace(path: Path) -> list[Line]:
    """All its lines in order of time. Raises BenchError where there is no such file, or it is of another form."""
    try:
        with path.open(newline="") as file:
            rows = [(datetime.fromisoformat(row["TIMESTAMP"][:26]), row) for row in csv.DictReader(file)]
        lines = [
            Line((at - rows[0][0]).total_seconds(), int(row["ContextTokens"]), int(row["GeneratedTokens"]))
            for at, row in rows
        ]
    except OSError as error:
        raise BenchError(f"the token counts come from real traces: {path}: {error.strerror}") from None
    except (KeyError, ValueError) as error:
        raise BenchError(f"{path.name} is no trace: {error}") from None
    if len(lines) < LEAST_LINES:
        raise BenchError(f"{path.name} has no requests")
    return sorted(lines, key=lambda line: line.at)


def trace_work(name: str, lines: Sequence[Line], shape: Shape, load: float, mean: float) -> Work:
    """The first requests of a trace, so compressed in time that they keep `load` of the pods busy for
    `shape.seconds`; a request's service time is its tokens times a constant, `mean` seconds on average."""
    taken = lines[: max(LEAST_LINES, round(load * shape.pods / mean * shape.seconds))]
    seconds = min(shape.seconds, len(taken) * mean / (load * shape.pods))
    span = taken[-1].at or 1.0
    tokens = [max(1, line.generated) for line in taken]
    services = [each * mean * len(tokens) / sum(tokens) for each in tokens]
    title = (
        f"trace `{name}`, time-compressed {span / seconds:.0f} times, {load:.0%} load, "
        f"service {mean * 1e3:.0f} ms on average, {len(taken):,} requests in {seconds:g} s"
    )
    arrivals = [line.at / span * seconds for line in taken]
    return Work(name, title, arrivals, services, _proxies(Random(shape.seed), shape, len(taken)), mean)


def one_queue(arrivals: Sequence[float], services: Sequence[float], pods: int) -> list[float]:
    """Latency of each request where each, first come first served, takes the pod that is free first.

    Seconds; `arrivals` ascend. No pod is idle while a request waits. Where service times differ much, a balancer
    that lets the short ones pass has a lower median than this, at the cost of the tail.
    """
    free_at = [0.0] * pods
    latencies = []
    for arrival, service in zip(arrivals, services, strict=True):
        ends = max(arrival, free_at[0]) + service
        heapreplace(free_at, ends)
        latencies.append(ends - arrival)
    return latencies


def exact_counts(arrivals: Sequence[float], services: Sequence[float], pods: int, rng: Random) -> list[float]:
    """Latency of each request where each is bound at once to a pod with the fewest in flight, ties at random, and
    waits for that pod: the best that counts alone can do."""
    free_at, in_flight = [0.0] * pods, [0] * pods
    ends: list[tuple[float, int]] = []
    latencies = []
    for arrival, service in zip(arrivals, services, strict=True):
        while ends and ends[0][0] <= arrival:
            in_flight[heappop(ends)[1]] -= 1
        fewest = min(in_flight)
        pod = rng.choice([pod for pod, count in enumerate(in_flight) if count == fewest])
        free_at[pod] = max(arrival, free_at[pod]) + service
        in_flight[pod] += 1
        heappush(ends, (free_at[pod], pod))
        latencies.append(free_at[pod] - arrival)
    return latencies

"""The work of one case: when requests arrive, how long each takes, and through which proxy it goes.

It is made before anything is started, from a seed, so that every balancer gets the very same.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random


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

    @property
    def seconds(self) -> float:
        """From the start to the last arrival."""
        return self.arrivals[-1]


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


def poisson_work(shape: Shape, load: float, mean: float, cv: float) -> Work:
    """Poisson arrivals of log-normal requests that keep `load` of the pods busy."""
    rng = Random(shape.seed)
    arrivals = poisson_arrivals(rng, load * shape.pods / mean, shape.seconds)
    services = log_normal(rng, mean, cv, len(arrivals))
    title = (
        f"Poisson arrivals, {load:.0%} load, service {mean * 1e3:.0f} ms log-normal (CV {cv:g}), "
        f"{len(arrivals):,} requests in {shape.seconds:g} s"
    )
    return Work("poisson", title, arrivals, services, chosen_proxies(rng, shape, len(arrivals)), mean)


def fast_work(shape: Shape, rate: float, service: float) -> Work:
    """Fast requests, all alike, at a low load: where a global view has nothing to see."""
    rng = Random(shape.seed)
    arrivals = poisson_arrivals(rng, rate, shape.seconds)
    title = (
        f"fast and uniform: Poisson arrivals, {rate:g} a second of {service * 1e3:g} ms each, "
        f"{rate * service / shape.pods:.0%} load, {len(arrivals):,} requests in {shape.seconds:g} s"
    )
    proxies = chosen_proxies(rng, shape, len(arrivals))
    return Work("fast", title, arrivals, [service] * len(arrivals), proxies, service)


def chosen_proxies(rng: Random, shape: Shape, count: int) -> list[int]:
    """At random, as a client's resolver or a layer-4 balancer spreads clients over a fleet."""
    return [rng.randrange(shape.proxies) for _ in range(count)]

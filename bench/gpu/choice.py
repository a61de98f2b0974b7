"""What the user asked for, and the refusals of what nobody can do."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.gpu.balancers import BALANCERS, Balancer
from bench.gpu.traces import TRACES, read_trace, trace_work
from bench.gpu.work import Shape, Work, fast_work, poisson_work
from bench.outcome import chosen, refuse
from bench.processes import REPOSITORY

CASES = ("poisson", *TRACES, "fast")
TRACES_FOLDER = REPOSITORY.parent / "shared" / "traces"
SERVICES = "0.2,0.05,0.1,1"
SHORTEST_SERVICE = 0.001
GOALS_AT = (0.85, 0.25, 20, 10)
"""Load, CV, pods and proxies for which the goals are stated."""


@dataclass(frozen=True)
class Fast:
    """Of the case of that name: requests a second, what each takes, and for how long they arrive, in seconds."""

    rate: float
    service: float
    seconds: float


@dataclass(frozen=True)
class Choice:
    """`services` are means in seconds, `cv` their coefficient of variation. Poisson arrivals come once with each of
    them, what was recorded with the first."""

    shape: Shape
    load: float
    services: Sequence[float]
    cv: float
    fast: Fast
    traces: Path

    @property
    def goals_apply(self) -> bool:
        return (self.load, self.cv, self.shape.pods, self.shape.proxies) == GOALS_AT

    def lacks(self, case: str) -> str | None:
        """A sentence where the case cannot be had."""
        path = self.traces / TRACES[case] if case in TRACES else None
        return f"The trace `{case}` was left out: there is no {path}." if path and not path.is_file() else None

    def works(self, case: str) -> list[Work]:
        """Of a case that lacks nothing. Raises BenchError where a trace is not of its form."""
        if case == "poisson":
            return [poisson_work(self.shape, self.load, service, self.cv) for service in self.services]
        if case == "fast":
            shape = replace(self.shape, seconds=self.fast.seconds)
            return [fast_work(shape, self.fast.rate, self.fast.service)]
        lines = read_trace(self.traces / TRACES[case])
        return [trace_work(case, lines, self.shape, self.load, self.services[0])]


def chosen_balancers(only: str) -> list[Balancer]:
    """All where none is named, in the order they are compared."""
    names = chosen("--only", only, [balancer.name for balancer in BALANCERS])
    return [balancer for balancer in BALANCERS if balancer.name in names]


def chosen_cases(cases: str) -> list[str]:
    return chosen("--cases", cases, CASES)


def chosen_services(text: str) -> list[float]:
    """Seconds, from a text with commas, in their order. Refuses what is no time, or too short to be kept to."""
    try:
        services = [float(word) for word in text.split(",")]
    except ValueError:
        refuse(f"--service: {text}: seconds with commas between them, as in {SERVICES}")
    if not all(SHORTEST_SERVICE <= service < math.inf for service in services):
        refuse(f"--service: {text}: each has to be at least {SHORTEST_SERVICE} s")
    return services

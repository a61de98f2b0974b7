"""`python -m bench gpu`: what a view of the whole fleet is worth, in front of slow upstreams."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from bench.figures.command import run_bare
from bench.figures.figure import Outcome, Section
from bench.figures.fleet import REPOSITORY
from bench.gpu.balancers import BALANCERS, Balancer
from bench.gpu.chart import draw
from bench.gpu.ideal import one_queue
from bench.gpu.lab import Lab, steps_of
from bench.gpu.report import CaseResult, case_section, goals_section
from bench.gpu.standing import Standing
from bench.gpu.traces import TRACES, read_trace, trace_work
from bench.gpu.work import Shape, Work, fast_work, poisson_work
from bench.outcome import refuse
from bench.processes import Processes
from bench.progress import Steps

CASES = ("poisson", *TRACES, "fast")
GOALS_AT = (0.85, 0.25, 20, 10)
"""Load, CV, pods and proxies for which the goals are stated."""
TRACES_FOLDER = REPOSITORY.parent / "shared" / "traces"


@dataclass(frozen=True)
class Choice:
    """What the user asked for. Durations are seconds."""

    shape: Shape
    load: float
    service: float
    cv: float
    fast_rate: float
    fast_service: float
    traces: Path

    @property
    def goals_apply(self) -> bool:
        return (self.load, self.cv, self.shape.pods, self.shape.proxies) == GOALS_AT

    def work(self, case: str) -> Work | None:
        """None where a trace is absent."""
        if case == "poisson":
            return poisson_work(self.shape, self.load, self.service, self.cv)
        if case == "fast":
            return fast_work(self.shape, self.fast_rate, self.fast_service)
        path = self.traces / TRACES[case]
        return trace_work(case, read_trace(path), self.shape, self.load, self.service) if path.is_file() else None


def gpu(
    only: Annotated[str, typer.Option(help="Balancers, by comma: envoy, nginx, haproxy, slb-local, slb...")] = "",
    cases: Annotated[str, typer.Option(help="By comma: " + ", ".join(CASES) + ".")] = ",".join(CASES),
    seconds: Annotated[float, typer.Option(min=1, help="How long requests arrive, per balancer and case.")] = 60,
    load: Annotated[
        float, typer.Option(min=0.01, max=0.99, help="Share of the pods' time that is asked for.")
    ] = 0.85,
    service: Annotated[float, typer.Option(min=0.001, help="Mean service time, seconds.")] = 0.2,
    cv: Annotated[float, typer.Option(min=0.001, help="Coefficient of variation of service times.")] = 0.25,
    pods: Annotated[int, typer.Option(min=1, help="Upstreams; each serves one request at a time.")] = 20,
    proxies: Annotated[int, typer.Option(min=1, help="In each fleet.")] = 10,
    fast_rate: Annotated[float, typer.Option(min=1, help="Of the fast case, requests a second.")] = 500,
    fast_service: Annotated[float, typer.Option(min=0.0001, help="Of the fast case, seconds.")] = 0.002,
    seed: Annotated[int, typer.Option(help="The same seed is the same work.")] = 1,
    traces: Annotated[Path, typer.Option(help="Where the traces are.")] = TRACES_FOLDER,
    png: Annotated[Path | None, typer.Option(help="Draw the latency curves into this file.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Keep all that was measured in this file.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Exit 1 where a goal is missed.")] = False,
) -> None:
    """Slow requests over a fleet: real proxies that see a tenth each, beside slb's view of the whole."""
    balancers = chosen_balancers(only)
    choice = Choice(Shape(pods, proxies, seconds, seed), load, service, cv, fast_rate, fast_service, traces)
    if png is not None and not png.parent.is_dir():
        refuse(f"--png: there is no folder {png.parent}")
    made = {case: choice.work(case) for case in chosen_cases(cases)}
    works = [work for work in made.values() if work]
    absent = [
        f"The trace `{case}` was left out: there is no {traces / TRACES[case]}." for case in made if not made[case]
    ]

    def measure(processes: Processes, home: Path, steps: Steps) -> Outcome:
        results = measured(Lab(processes, home, choice.shape), balancers, works, steps)
        if png is not None:
            draw(results, png)
        return outcome(results, choice.goals_apply, absent)

    settings = asdict(choice) | {"traces": str(traces)}
    total = sum(steps_of(work) for work in works) * len(balancers)
    raise typer.Exit(run_bare("gpu", measure, total, settings, json, check))


def measured(lab: Lab, balancers: Sequence[Balancer], works: Sequence[Work], steps: Steps) -> list[CaseResult]:
    """Case by case, one balancer after another."""
    results = []
    for work in works:
        ideal = Standing.ideal(one_queue(work.arrivals, work.services, lab.pod_count))
        standings = {balancer.name: lab.take(balancer, work, steps) for balancer in balancers}
        results.append(CaseResult(work, ideal, standings))
    return results


def outcome(results: Sequence[CaseResult], goals_apply: bool, absent: Sequence[str]) -> Outcome:
    """A table for each case; after the one that has goals, those."""
    sections: list[Section] = []
    for result in results:
        sections.append(case_section(result))
        goals = goals_section(result) if result.work.name == "poisson" and goals_apply else None
        sections += [goals] if goals else []
    if absent:
        sections.append(Section("left out", (), absent))
    return Outcome(sections)


def chosen_balancers(only: str) -> list[Balancer]:
    """In the order they are compared. Refuses names that nobody has."""
    names = words(only) or [balancer.name for balancer in BALANCERS]
    unknown = set(names) - {balancer.name for balancer in BALANCERS}
    if unknown:
        refuse(f"--only: {', '.join(sorted(unknown))}: known are {', '.join(each.name for each in BALANCERS)}")
    return [balancer for balancer in BALANCERS if balancer.name in names]


def chosen_cases(cases: str) -> list[str]:
    unknown = set(words(cases)) - set(CASES)
    if unknown or not words(cases):
        refuse(f"--cases: {', '.join(sorted(unknown)) or 'none given'}: known are {', '.join(CASES)}")
    return [case for case in CASES if case in words(cases)]


def words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]

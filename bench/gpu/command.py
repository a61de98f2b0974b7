"""`python -m bench gpu`: what a view of the whole fleet is worth, in front of slow upstreams."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Annotated

import typer

from bench.chart import check_pictures
from bench.errors import BenchError
from bench.figures.command import Job
from bench.figures.figure import Outcome, Section
from bench.gpu.balancers import BALANCERS, Balancer
from bench.gpu.chart import draw
from bench.gpu.choice import (
    CASES,
    SERVICES,
    SHORTEST_SERVICE,
    TRACES_FOLDER,
    Choice,
    Fast,
    chosen_balancers,
    chosen_cases,
    chosen_services,
)
from bench.gpu.ideal import exact_counts, one_queue
from bench.gpu.lab import Lab, steps_of
from bench.gpu.report import CaseResult, case_section, goals_section
from bench.gpu.standing import Standing
from bench.gpu.work import Shape, Work
from bench.outcome import refuse
from bench.processes import Processes
from bench.progress import Steps

ALL_BALANCERS = ", ".join(balancer.name for balancer in BALANCERS)


def gpu(
    only: Annotated[str, typer.Option(help=f"Some of: {ALL_BALANCERS}.")] = "",
    cases: Annotated[str, typer.Option(help=f"Some of: {', '.join(CASES)}.")] = "",
    seconds: Annotated[float, typer.Option(min=1, help="How long requests arrive, each time.")] = 60,
    load: Annotated[float, typer.Option(min=0.01, max=0.99, help="Share of the pods' time asked for.")] = 0.85,
    service: Annotated[str, typer.Option(help="Mean service times in seconds, with commas.")] = SERVICES,
    cv: Annotated[float, typer.Option(min=0.001, help="Its coefficient of variation.")] = 0.25,
    pods: Annotated[int, typer.Option(min=1, help="Upstreams; each serves one request at a time.")] = 20,
    proxies: Annotated[int, typer.Option(min=1, help="In each fleet.")] = 10,
    fast_rate: Annotated[float, typer.Option(min=1, help="Of the case fast: requests a second.")] = 500,
    fast_service: Annotated[float, typer.Option(min=SHORTEST_SERVICE, help="Of the case fast, seconds.")] = 0.002,
    fast_seconds: Annotated[float, typer.Option(min=1, help="Of the case fast.")] = 20,
    seed: Annotated[int, typer.Option(help="The same seed is the same work.")] = 1,
    traces: Annotated[Path, typer.Option(help="Where the traces are.")] = TRACES_FOLDER,
    png: Annotated[Path | None, typer.Option(help="Draw the latency curves into this file.")] = None,
) -> Job:
    """Slow requests over a fleet: real proxies that see a tenth each, beside slb's view of the whole."""
    check_pictures("--png", png and png.parent)
    fast = Fast(fast_rate, fast_service, fast_seconds)
    choice = Choice(Shape(pods, proxies, seconds, seed), load, chosen_services(service), cv, fast, traces)
    asked_for, asked_at = chosen_balancers(only), chosen_cases(cases)
    works = made(choice, asked_at)
    balancers = [balancer for balancer in asked_for if balancer.needs.program()]
    if not balancers:
        refuse(f"--only: not installed: {', '.join(balancer.needs.install for balancer in asked_for)}")
    lacking = [sentence for case in asked_at if (sentence := choice.lacks(case))]
    lacking += [f"{each.label} was left out: {each.needs.install}" for each in asked_for if each not in balancers]

    def measure(processes: Processes, home: Path, steps: Steps) -> Outcome:
        results: list[CaseResult] = []
        whole = gather(Lab(processes, home, choice.shape), balancers, works, steps, results)
        if png is not None:
            draw(results, png)
        return outcome(results, choice.goals_apply, lacking, whole)

    return Job(measure, sum(steps_of(work) for work in works) * len(balancers))


def made(choice: Choice, cases: Sequence[str]) -> list[Work]:
    """The work of those cases that can be had; refuses to go on without any."""
    try:
        works = [work for case in cases if not choice.lacks(case) for work in choice.works(case)]
    except BenchError as error:
        refuse(str(error))
    return works or refuse(f"--traces: nothing to do: there are none in {choice.traces}")


def gather(
    lab: Lab, balancers: Sequence[Balancer], works: Sequence[Work], steps: Steps, results: list[CaseResult]
) -> bool:
    """Case by case, one balancer after another, into `results`. False where it was interrupted; what was complete
    by then is there. Interrupted before anything was, it raises as if it were not caught."""
    try:
        for work in works:
            standings: dict[str, Standing] = {}
            results.append(case_of(work, lab.shape, standings))
            for balancer in balancers:
                standings[balancer.name] = lab.take(balancer, work, steps)
    except KeyboardInterrupt:
        if not results or not results[0].standings:
            raise
        return False
    return True


def case_of(work: Work, shape: Shape, standings: Mapping[str, Standing]) -> CaseResult:
    """A case with what can be computed of it; `standings` come to it."""
    ideal = one_queue(work.arrivals, work.services, shape.pods)
    exact = exact_counts(work.arrivals, work.services, shape.pods, Random(shape.seed))
    return CaseResult(
        work,
        Standing.computed("ideal: one queue", ideal),
        Standing.computed("ideal: exact counts", exact),
        standings,
    )


def outcome(results: Sequence[CaseResult], goals_apply: bool, lacking: Sequence[str], whole: bool) -> Outcome:
    """A table for each case; after the one that has goals, those."""
    sections: list[Section] = []
    for result in results:
        sections.append(case_section(result))
        goals = goals_section(result) if result.work.name == "poisson" and goals_apply else None
        sections += [goals] if goals else []
    notes = [*lacking, *(() if whole else ["Interrupted: what is missing above was not measured to its end."])]
    sections[-1] = replace(sections[-1], notes=[*sections[-1].notes, *notes])
    return Outcome(sections, interrupted=not whole)

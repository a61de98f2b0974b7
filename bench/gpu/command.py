"""`python -m bench gpu`: what a view of the whole fleet is worth, in front of slow upstreams."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Annotated

from typer import Option

from bench.command import Bench, chosen, refuse
from bench.errors import BenchError
from bench.gpu.balancers import BALANCERS, Balancer
from bench.gpu.report import CaseResult, Standing, case_section, goals_section
from bench.gpu.work import (
    TRACES,
    TRACES_FOLDER,
    Shape,
    Work,
    exact_counts,
    fast_work,
    one_queue,
    poisson_work,
    read_trace,
    trace_work,
)
from bench.http import free_ports
from bench.pods import start_pods
from bench.processes import Processes
from bench.sending import Plan, Result, begin_in, sent
from bench.table import Outcome, Section
from bench.traffic import get

CASES = ("poisson", *TRACES, "fast")
SERVICES = "0.2,0.05,0.1,1"
SHORTEST_SERVICE = 0.001
GOALS_AT = (0.85, 0.25, 20, 10)
"""Load, CV, pods and proxies for which the goals are stated."""

PATH = "/v1/completions"
GIVE_UP_SECONDS = 120.0


def gpu(
    bench: Bench,
    only: Annotated[str, Option(help=f"Some of: {', '.join(each.name for each in BALANCERS)}.")] = "",
    cases: Annotated[str, Option(help=f"Some of: {', '.join(CASES)}.")] = "",
    seconds: Annotated[float, Option(min=1, help="How long requests arrive, each time.")] = 60,
    load: Annotated[float, Option(min=0.01, max=0.99, help="Share of the pods' time asked for.")] = 0.85,
    service: Annotated[str, Option(help="Mean service times in seconds, with commas.")] = SERVICES,
    cv: Annotated[float, Option(min=0.001, help="Its coefficient of variation.")] = 0.25,
    pods: Annotated[int, Option(min=1, help="Upstreams; each serves one request at a time.")] = 20,
    proxies: Annotated[int, Option(min=1, help="In each fleet.")] = 10,
    fast_rate: Annotated[float, Option(min=1, help="Of the case fast: requests a second.")] = 500,
    fast_service: Annotated[float, Option(min=SHORTEST_SERVICE, help="Of the case fast, seconds.")] = 0.002,
    fast_seconds: Annotated[float, Option(min=1, help="Of the case fast.")] = 20,
    seed: Annotated[int, Option(help="The same seed is the same work.")] = 1,
    traces: Annotated[Path, Option(help="Where the traces are.")] = TRACES_FOLDER,
) -> Outcome:
    """Slow requests over a fleet: real proxies that see a tenth each, beside slb's view of the whole."""
    names = chosen("--only", only, [each.name for each in BALANCERS])
    asked_for = [each for each in BALANCERS if each.name in names]
    balancers = [each for each in asked_for if each.needs.program()]
    if not balancers:
        refuse(f"--only: not installed: {', '.join(each.needs.install for each in asked_for)}")
    lacking = [f"{each.label} was left out: {each.needs.install}" for each in asked_for if each not in balancers]
    shape, services, works = Shape(pods, proxies, seconds, seed), chosen_services(service), list[Work]()
    for case in chosen("--cases", cases, CASES):
        if case == "poisson":
            works += [poisson_work(shape, load, mean, cv) for mean in services]
        elif case == "fast":
            works.append(fast_work(replace(shape, seconds=fast_seconds), fast_rate, fast_service))
        elif (path := traces / TRACES[case]).is_file():
            works.append(trace_work(case, read_trace(path), shape, load, services[0]))
        else:
            lacking.append(f"The trace `{case}` was left out: there is no {path}.")
    results: list[CaseResult] = []
    interrupted = False
    try:
        take_turns(bench, balancers, works, shape, results)
    except KeyboardInterrupt:
        if not results or not results[0].standings:
            raise
        interrupted = True
        lacking.append("Interrupted: what is missing above was not measured to its end.")
    goals_apply = (load, cv, pods, proxies) == GOALS_AT
    return Outcome(sections_of(results, goals_apply, lacking), interrupted=interrupted)


def chosen_services(text: str) -> list[float]:
    """Seconds, from a text with commas, in their order. Refuses what is no time, or too short to be kept to."""
    try:
        services = [float(word) for word in text.split(",")]
    except ValueError:
        refuse(f"--service: {text}: seconds with commas between them, as in {SERVICES}")
    if not all(SHORTEST_SERVICE <= service < math.inf for service in services):
        refuse(f"--service: {text}: each has to be at least {SHORTEST_SERVICE} s")
    return services


def take_turns(
    bench: Bench, balancers: Sequence[Balancer], works: Sequence[Work], shape: Shape, results: list[CaseResult]
) -> None:
    """Each balancer with each work, before the same pods. `results` has what is complete so far."""
    pods = free_ports(shape.pods)
    start_pods(bench.processes, bench.home / "pods", "slot", pods)
    for work in works:
        standings: dict[str, Standing] = {}
        results.append(case_of(work, shape, standings))
        for balancer in balancers:
            home = bench.home / f"turn-{len(results)}-{balancer.name}"
            home.mkdir()
            try:
                standings[balancer.name] = Standing.of(
                    balancer.label, _sent(bench, home, balancer, work, pods, shape)
                )
            except (BenchError, OSError) as error:
                standings[balancer.name] = Standing(balancer.label, failure=str(error))


def _sent(bench: Bench, home: Path, balancer: Balancer, work: Work, pods: Sequence[int], shape: Shape) -> Result:
    """Of one turn: a fresh fleet, the work, and the fleet's end. Raises BenchError."""
    with Processes() as processes:
        bench.to(f"{work.name}: starting {balancer.label}")
        fleet = balancer.start(processes, home, pods, shape.proxies)
        bench.to(f"{work.name}: {balancer.label}")
        requests = [get(PATH, f"X-Service-Time: {each:.6f}\r\n").decode() for each in work.services]
        plan = Plan(begin_in(), list(fleet), work.arrivals, requests, work.proxies, GIVE_UP_SECONDS)
        result = sent(bench.processes, home / "load", plan)
        for running in fleet.values():
            running.check_alive()
        for running in fleet.values():
            running.process.terminate()  # all at once; waiting for each is left to their owner
    return result


def case_of(work: Work, shape: Shape, standings: Mapping[str, Standing]) -> CaseResult:
    """A case with what can be computed of it; `standings` come to it."""
    ideal = one_queue(work.arrivals, work.services, shape.pods)
    exact = exact_counts(work.arrivals, work.services, shape.pods, Random(shape.seed))
    computed = Standing.computed("ideal: one queue", ideal), Standing.computed("ideal: exact counts", exact)
    return CaseResult(work, *computed, standings)


def sections_of(results: Sequence[CaseResult], goals_apply: bool, lacking: Sequence[str]) -> list[Section]:
    """A table for each case; after the ones that have goals, those."""
    sections: list[Section] = []
    for result in results:
        sections.append(case_section(result))
        goals = goals_section(result) if result.work.name == "poisson" and goals_apply else None
        sections += [goals] if goals else []
    if not sections:
        refuse(" ".join(lacking))
    sections[-1] = replace(sections[-1], notes=[*sections[-1].notes, *lacking])
    return sections

"""`python -m bench handoff`: how long a pod is idle between two requests while others wait."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from bench.command import Job
from bench.fleet import Fleet
from bench.handoff.alone import measure_alone
from bench.handoff.fleet import Pods, measure_fleet
from bench.handoff.gaps import Handoffs
from bench.handoff.plan import Plan
from bench.local import Loop
from bench.outcome import instance_counts
from bench.processes import Processes
from bench.progress import Steps
from bench.table import Figure, Outcome, RowsSection, Section, short

GOALS_AT = (10, 20)
"""Instances and pods for which the goals are stated."""

GOAL_P50_MS, GOAL_P99_MS, GOAL_SAME_MS = 1.5, 5.0, 1.2
COLUMNS = (
    "instances",
    "pods end",
    *("p50 ms", "p99 ms", "p50 same", "p99 same", "p50 other", "p99 other", "handoffs", "crowded"),
)


def handoff(
    instances: Annotated[str, typer.Option(help="Numbers of instances, with commas.")] = "1,2,5,10,20",
    pods: Annotated[int, typer.Option(min=1, help="Each serves one request at a time.")] = 20,
    seconds: Annotated[float, typer.Option(min=0.1, help="That each run is counted.")] = 10,
    service: Annotated[float, typer.Option(min=0.01, help="Mean service time, seconds.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Of service times, and of which instance a client asks.")] = 1,
) -> Job:
    """How long a pod that serves one request at a time is idle between two, while others wait in the queue."""
    plan = Plan(instance_counts(instances), pods, seconds, service, seed)
    return Job(lambda processes, home, steps: measure(processes, home, steps, plan), plan.runs)


def measure(processes: Processes, home: Path, steps: Steps, plan: Plan) -> Outcome:
    """One fleet that grows; then the ledger alone, on the same Redis, once no instance is left."""
    found: list[Handoffs] = []
    steps.to("starting Redis and the pods")
    fleet = Fleet(processes, home)
    with Loop() as loop:
        both = [Pods(processes, fleet, plan, in_step) for in_step in (False, True)]
        for count in plan.instances:
            steps.to(f"starting {count} instances")
            grow(fleet, count)
            for pods in both:
                steps.to(f"{count} instances, {step_of(pods.in_step)}")
                found.append(measure_fleet(fleet, loop, pods, plan))
                steps.done()
    for instance in list(fleet.instances):
        fleet.stop_instance(instance)
    for count in plan.instances:
        for in_step in (False, True):
            steps.to(f"the ledger alone, {count} instances, {step_of(in_step)}")
            found.append(measure_alone(fleet.redis.url, count, in_step, plan))
            steps.done()
    raw: dict[str, object] = {"runs": [row_as_json(each) for each in found]}
    return Outcome(sections(found, plan), raw)


def grow(fleet: Fleet, count: int) -> None:
    """Until there are so many, all ready."""
    while len(fleet.instances) < count:
        fleet.start_instance()
    for instance in fleet.instances:
        instance.wait_until_ready()


def step_of(in_step: bool) -> str:
    return "in step" if in_step else "out of step"


def cells(run: Handoffs) -> list[str]:
    """A row of the table."""
    figures = [run.milliseconds(share, same) for same in (None, True, False) for share in (0.5, 0.99)]
    shown = (short(figure) for figure in figures)
    return [str(run.instances), step_of(run.in_step), *shown, f"{len(run.gaps):,}", str(run.crowded)]


def sections(found: Sequence[Handoffs], plan: Plan) -> list[Section]:
    """A table with `slb serve`, one of the ledger alone, and the goals."""
    tables: list[Section] = [
        RowsSection(title, (), (), COLUMNS, [cells(run) for run in found if run.who == who], words=2)
        for who, title in (
            ("slb serve", f"real processes: {plan.pods} pods, {plan.clients} clients, {plan.service * 1e3:g} ms"),
            ("the ledger alone", "the ledger alone, all instances in one process, no HTTP"),
        )
    ]
    goals = [figure for run in found if run.who == "slb serve" for figure in goals_of(run, plan.pods)]
    notes = [
        "Idle is measured at the pods: from the end of a reply to the next request's last byte. Same, other: "
        "whether both came through one instance. Crowded: requests that came to a pod that was not free.",
        "Where processes are more than cores, what ends in step is handled one after another. The real processes "
        "show what this machine makes of it, the ledger alone what Redis and the lanes take.",
    ]
    return [*tables, Section("goals" if goals else "no goals: they are for 20 pods", goals, notes)]


def goals_of(run: Handoffs, pods: int) -> list[Figure]:
    """At 10 instances and 20 pods both percentiles, and the same instance; at other numbers the median."""
    if pods != GOALS_AT[1]:
        return []
    of = f"{run.instances} {'instance' if run.instances == 1 else 'instances'}, {step_of(run.in_step)}"
    figures = [Figure(f"{of}: p50", run.milliseconds(0.5), "ms", at_most=GOAL_P50_MS)]
    if run.instances == GOALS_AT[0]:
        figures += [
            Figure(f"{of}: p99", run.milliseconds(0.99), "ms", at_most=GOAL_P99_MS),
            Figure(f"{of}: p50 on the same instance", run.milliseconds(0.5, same=True), "ms", at_most=GOAL_SAME_MS),
        ]
    return figures


def row_as_json(run: Handoffs) -> dict[str, object]:
    return {
        "who": run.who,
        "instances": run.instances,
        "in_step": run.in_step,
        "crowded": run.crowded,
        "gaps_ms": [[round(gap.seconds * 1e3, 4), gap.same] for gap in run.gaps],
    }

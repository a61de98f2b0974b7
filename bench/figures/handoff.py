"""How long a pod that serves one request at a time is idle between two of them, while others wait in the queue."""

import json
import time
from collections.abc import Sequence
from random import Random
from typing import Annotated, NamedTuple

from typer import Option

from bench.command import Bench, instance_counts
from bench.fleet import Fleet, queued
from bench.http import get_text
from bench.pods import NOTED
from bench.processes import BenchError
from bench.table import Figure, Outcome, Section, percentile, short
from bench.traffic import Clients, Loop

WAITING = 2  # clients for each pod besides the one it serves: some request always waits
WARM_UP_SECONDS = 1.0
GOALS_AT = (10, 20)  # instances and pods for which the goals are stated
GOAL_P50_MS, GOAL_P99_MS, GOAL_SAME_MS = 1.5, 5.0, 1.2
PATHS = {"out of step": "/out-of-step", "in step": "/in-step"}  # of the routes, by when their pods end
FIGURES = ("p50 ms", "p99 ms", "p50 same", "p99 same", "p50 other", "p99 other")
COLUMNS = ("instances", "pods end", *FIGURES, "handoffs", "crowded")
NOTES = (
    "Idle is measured at the pods: from the end of a reply to the next request's last byte. Same, other: "
    "whether both came through one instance. Crowded: requests that came to a pod that was not free.",
    "Where processes are more than cores, what ends in step is handled one after another: in step this shows the "
    "machine as much as slb.",
)


class Run(NamedTuple):
    """With so many instances. `gaps`: seconds a pod was idle, and whether both requests came through one instance;
    `crowded`: requests that came to a pod that was not free."""

    instances: int
    step: str
    gaps: Sequence[tuple[float, bool]]
    crowded: int

    def milliseconds(self, share: float, same: bool | None = None) -> float:
        """Of all gaps, or of those on the same instance, or of those on another; NaN without any."""
        return percentile([gap for gap, was in self.gaps if same is None or was is same], share) * 1e3

    def cells(self) -> list[str]:
        figures = [short(self.milliseconds(share, same)) for same in (None, True, False) for share in (0.5, 0.99)]
        return [str(self.instances), self.step, *figures, f"{len(self.gaps):,}", str(self.crowded)]

    def goals(self, pods: int) -> list[Figure]:
        """At 10 instances and 20 pods both percentiles, and the same instance; at other numbers the median."""
        of = f"{self.instances} {'instance' if self.instances == 1 else 'instances'}, {self.step}"
        same = self.milliseconds(0.5, same=True)
        figures = [
            Figure(f"{of}: p50", self.milliseconds(0.5), "ms", at_most=GOAL_P50_MS),
            Figure(f"{of}: p99", self.milliseconds(0.99), "ms", at_most=GOAL_P99_MS),
            Figure(f"{of}: p50 on the same instance", same, "ms", at_most=GOAL_SAME_MS),
        ]
        stated = (len(figures) if self.instances == GOALS_AT[0] else 1) if pods == GOALS_AT[1] else 0
        return figures[:stated]


def handoff(
    bench: Bench,
    instances: Annotated[str, Option(help="Numbers of instances, with commas.")] = "1,2,5,10,20",
    pods: Annotated[int, Option(min=1, help="Each serves one request at a time.")] = 20,
    seconds: Annotated[float, Option(min=0.1, help="That each run is counted.")] = 10,
    service: Annotated[float, Option(min=0.01, help="Mean service time, seconds.")] = 0.1,
    seed: Annotated[int, Option(help="Of service times, and of which instance a client asks.")] = 1,
) -> Outcome:
    """How long a pod that serves one request at a time is idle between two, while others wait in the queue."""
    counts, clients, fleet = instance_counts(instances), pods * (1 + WAITING), bench.fleet()
    ports: dict[str, int] = {}
    for step, path in PATHS.items():
        started = fleet.start_pods("noting", pods, service=service, in_step=step == "in step", seed=seed)
        fleet.write_route(path, started, queued(1, "60s"))
        ports[step] = started[0]
    runs: list[Run] = []
    with Loop() as loop:
        for count in counts:
            bench.to(f"starting {count} instances")
            fleet.start_instances(count - len(fleet.instances))
            for step, path in PATHS.items():
                bench.to(f"{count} instances, {step}")
                asking = Clients([each.port for each in fleet.instances], path, clients, Random(seed))
                runs.append(Run(count, step, *_noted(fleet, loop, asking, ports[step], seconds)))
    title = f"{pods} pods, {clients} clients, {service * 1e3:g} ms"
    goals = [figure for run in runs for figure in run.goals(pods)]
    table = Section(title, (), NOTES, COLUMNS, [run.cells() for run in runs], words=2)
    return Outcome([table, Section("goals", goals)] if goals else [table])


def _noted(
    fleet: Fleet, loop: Loop, clients: Clients, pod: int, seconds: float
) -> tuple[list[tuple[float, bool]], int]:
    """What the pods noted in the counted seconds. Raises BenchError where a request failed."""
    loop.run(clients.start())
    time.sleep(WARM_UP_SECONDS)
    get_text(pod, NOTED)
    time.sleep(seconds)
    found = json.loads(get_text(pod, NOTED))
    loop.run(clients.stop())
    fleet.check_alive()
    if clients.failed:
        raise BenchError(f"requests through {len(fleet.instances)} instances failed: {dict(clients.failed)}")
    return [(gap, same) for gap, same in found["gaps"]], found["crowded"]

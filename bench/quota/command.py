"""`python -m bench quota`: a backlog drained through the router, and as it is drained today."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from bench.chart import check_pictures
from bench.command import Job
from bench.errors import BenchError
from bench.gpu.traces import TRACES_FOLDER
from bench.outcome import refuse
from bench.processes import Processes
from bench.progress import Steps
from bench.quota.backlog import traced
from bench.quota.bound import least_seconds
from bench.quota.cases import crowded, few_callers, full_slots, metered, routed, unheld
from bench.quota.chart import draw
from bench.quota.crowds import Setting
from bench.quota.demand import FEW_PART, SLOTS_LONGER, under_demand
from bench.quota.models import ten_models
from bench.quota.real import STEPS_A_SECOND, drained
from bench.quota.report import (
    demand_goals,
    drain_goals,
    drain_section,
    held_section,
    share_goal,
    share_section,
    slot_goals,
)
from bench.quota.standing import Standing
from bench.table import Outcome, Section

ALL = 1_000_000
SIMULATED_IN_A_STEP = 10
SIMULATED: tuple[tuple[str, Callable[[Setting], Standing]], ...] = (
    ("as-is, limits not kept", unheld),
    ("as-is, models answer 429", metered),
    ("through the router", routed),
    ("demand above every limit", crowded),
    ("few callers", few_callers),
    ("more callers than slots, and tokens enough", full_slots),
)


@dataclass(frozen=True)
class Plan:
    """What is drained. `real` of the prompts are drained in real time as well, `factor` times as fast; `demand` is
    the length of the runs in which something is always short."""

    prompts: int
    scale: float
    seed: int
    real: int
    factor: float
    demand: float

    @property
    def simulated_steps(self) -> int:
        """Of the bar, for each way; a prompt in real time is one."""
        return self.prompts // SIMULATED_IN_A_STEP

    @property
    def steps(self) -> int:
        """Of the whole bar."""
        demand = round((2 + FEW_PART + SLOTS_LONGER) * self.demand * STEPS_A_SECOND)
        return self.real + len(SIMULATED) * self.simulated_steps + demand


def quota(
    prompts: Annotated[int, typer.Option(min=100, help="Of the backlog; fewer where the traces have fewer.")] = ALL,
    scale: Annotated[float, typer.Option(min=0.01, help="All limits times this.")] = 1.0,
    real: Annotated[int, typer.Option(min=0, help="Prompts drained in real time as well; 0: none.")] = 12_000,
    demand: Annotated[
        float, typer.Option(min=0, help="Seconds of each run in real time where something is short; 0: none.")
    ] = 65.0,
    factor: Annotated[float, typer.Option(min=1, help="By this real time is compressed.")] = 10,
    seed: Annotated[int, typer.Option(help="The same seed is the same backlog.")] = 1,
    traces: Annotated[Path, typer.Option(help="Where the traces are.")] = TRACES_FOLDER,
    png: Annotated[Path | None, typer.Option(help="Draw how the backlog shrinks into this file.")] = None,
) -> Job:
    """Ten models of 1 s to 2 min and real prompt lengths: single calls through the quota router beside batches."""
    check_pictures("--png", png and png.parent)
    try:
        backlog = traced(traces, prompts, seed)
    except BenchError as error:
        refuse(f"--traces: {error}")
    setting = Setting(ten_models(backlog, scale), backlog, seed)
    plan = Plan(len(backlog), scale, seed, min(real, len(backlog)), factor, demand)

    def measure(processes: Processes, home: Path, steps: Steps) -> Outcome:
        sections = simulated(setting, steps, png)
        if plan.real:
            few = replace(setting, backlog=backlog[: plan.real])
            sections += in_real_time(few, drained(home / "drain", few, factor, steps))
        if plan.demand:
            sections += under_demand(home, setting, factor, demand, steps)
        return Outcome(sections)

    return Job(measure, plan.steps)


def simulated(setting: Setting, steps: Steps, png: Path | None) -> list[Section]:
    """All ways in simulated time."""
    found: list[Standing] = []
    for name, way in SIMULATED:
        steps.to(f"simulated: {name}")
        found.append(way(setting))
        steps.done(len(setting.backlog) // SIMULATED_IN_A_STEP)
    as_is, (through, demand, few, full) = found[:2], found[2:]
    bound = least_seconds(setting.models, setting.backlog)
    if png is not None:
        draw([*as_is, through], bound, len(setting.backlog), png)
    goals = [*drain_goals(through, as_is, bound), *demand_goals(demand), share_goal(few), *slot_goals(full)]
    title = f"{len(setting.backlog):,} prompts, {len(setting.models)} models, simulated time"
    return [
        drain_section(title, [*as_is, through, demand], bound),
        held_section(through),
        held_section(demand),
        share_section(full),
        Section("goals, in simulated time", goals),
    ]


def in_real_time(setting: Setting, real: Standing) -> list[Section]:
    """Beside the same prompts in simulated time, as is and through the router."""
    bound = least_seconds(setting.models, setting.backlog)
    ways = [unheld(setting), metered(setting), routed(setting)]
    title = f"{len(setting.backlog):,} of the prompts, {real.hurry:g} times as fast, beside simulated time"
    return [
        drain_section(title, [*ways, real], bound),
        held_section(real),
        Section("goals of the drain, in real time", drain_goals(real, ways[:2], bound)),
    ]

"""`python -m bench jobs-crash`: a worker is killed, or frozen, while it runs 5 of 10 jobs, and another takes
over."""

import math
import os
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from typer import Option

from bench.command import Bench, chosen
from bench.jobs.systems import NAMES, System, make, missing
from bench.processes import BenchError, Processes, Running
from bench.table import Figure, Outcome, Section, short

JOBS, AT_ONCE, SERVICE_SECONDS, INTO_SECONDS = 10, 5, 2.0, 0.5
LOOK_SECONDS, SETTLE_SECONDS = 0.02, 3.0
GOAL_SECONDS = 4.0
SIGNALS = {"killed": signal.SIGKILL, "frozen": signal.SIGSTOP}
COLUMNS = ("", "the worker is", "begun again", "the last after s", "results", "of an older run")
NOTES = (
    "Begun again: of the 5 jobs in flight. Of an older run: results that are not those of the job's latest run.",
    "The second worker is started before, is stopped while the first takes its jobs, and goes on at the crash.",
)


@dataclass
class Crash:
    """`again`: seconds from the crash until each of the jobs that were in flight began again, in ascending order;
    `kept`: results at the end, `stale` of them not of the job's latest run."""

    system: str
    how: str
    again: Sequence[float] = ()
    kept: int = 0
    stale: int = 0
    failure: str = ""

    @property
    def last(self) -> float:
        """When all had begun again; NaN where they have not."""
        return self.again[-1] if len(self.again) == AT_ONCE else math.nan

    def cells(self) -> list[str]:
        if self.failure:
            return [self.system, self.how, "-", "-", "-", "-"]
        last = short(self.again[-1]) if self.again else "-"
        return [
            self.system,
            self.how,
            f"{len(self.again)} of {AT_ONCE}",
            last,
            f"{self.kept} of {JOBS}",
            str(self.stale),
        ]


def jobs_crash(
    bench: Bench,
    only: Annotated[str, Option(help="Systems, with commas.")] = "all",
    frozen: Annotated[float, Option(min=0.1, help="Seconds that a frozen worker stands still.")] = 19,
    watched: Annotated[float, Option(min=1, help="Seconds from the crash to the end.")] = 32,
) -> Outcome:
    """A worker is killed, or frozen, while it runs 5 of 10 jobs of 2 s, and another takes over."""
    names = chosen("--only", only, NAMES)
    notes = [why for name in names if (why := missing(name))]
    crashes: list[Crash] = []
    for how in SIGNALS:
        bench.to(f"{how}: starting all")
        with Processes() as processes, ThreadPoolExecutor() as threads:
            ready = [(name, *_ready(bench, processes, name)) for name in names if not missing(name)]
            bench.to(f"{how}: watching for {watched:.0f} s")
            crashes += threads.map(partial(_crash, how, frozen, watched), ready)
    notes += [f"{each.system}, {each.how}: {each.failure}" for each in crashes if each.failure]
    table = Section(
        f"{JOBS} jobs, {AT_ONCE} at a time",
        (),
        [*NOTES, *notes],
        COLUMNS,
        [each.cells() for each in crashes],
        words=2,
    )
    goals = [figure for each in crashes if each.system == "slb" for figure in _goals(each)]
    return Outcome([table, Section("goals", goals)], failed=any(each.failure for each in crashes))


def _goals(crash: Crash) -> list[Figure]:
    older = Figure(f"slb, {crash.how}: results of older runs", crash.stale, at_most=0)
    if crash.how == "killed":
        return [Figure("slb, killed: all 5 begun again after", crash.last, "s", at_most=GOAL_SECONDS), older]
    return [older]


def _ready(bench: Bench, processes: Processes, name: str) -> tuple[System, Running, Running]:
    """A system with two workers, of which the second is stopped."""
    system = make(name, bench, processes, AT_ONCE, SERVICE_SECONDS)
    first, second = system.start(), system.start()
    system.submit("warm", 2 * AT_ONCE)
    system.pod.wait(2 * AT_ONCE)
    time.sleep(SERVICE_SECONDS)
    return system, first, second


def _crash(how: str, frozen: float, watched: float, ready: tuple[str, System, Running, Running]) -> Crash:
    name, system, first, second = ready
    try:
        os.kill(second.pid, signal.SIGSTOP)
        before = system.pod.look()
        system.submit("job", JOBS)
        system.pod.wait(before + AT_ONCE)
        time.sleep(INTO_SECONDS)
        crashed = time.monotonic()
        os.kill(first.pid, SIGNALS[how])
        os.kill(second.pid, signal.SIGCONT)
        _watch(system, crashed, first if how == "frozen" else None, frozen, watched)
        return _found(name, how, system, before, crashed)
    except BenchError as error:
        return Crash(name, how, failure=str(error))


def _watch(system: System, crashed: float, thawed: Running | None, frozen: float, watched: float) -> None:
    while (passed := time.monotonic() - crashed) < watched:
        if thawed is not None and passed >= frozen:
            os.kill(thawed.pid, signal.SIGCONT)
            thawed = None
        system.pod.look()
        time.sleep(LOOK_SECONDS)


def _found(name: str, how: str, system: System, before: int, crashed: float) -> Crash:
    runs = system.pod.begun
    in_flight = [job for job, at in runs[before:] if at < crashed]
    again = {job: at - crashed for job, at in reversed(runs[before:]) if at >= crashed and job in in_flight}
    latest = {job: number for number, (job, _) in enumerate(runs, 1)}
    kept = system.results([f"job{number}" for number in range(1, JOBS + 1)])
    stale = sum(latest[job] != run for job, run in kept.items())
    return Crash(name, how, sorted(again.values()), len(kept), stale)

"""What a small request costs slb as it is in this tree, beside slb as it is in another commit.

Both serve the whole time, on one core, and have their turns in short bursts. A machine that others use too changes
from minute to minute by more than most changes to slb do. Two bursts that follow each other have the same machine.
"""

import math
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated

from typer import Argument, Option

from bench.command import Bench, chosen
from bench.measure import CASES, Case, Measurement, Sample, Served
from bench.peers import SLB, Peer
from bench.processes import REPOSITORY, BenchError
from bench.procstat import python
from bench.table import Figure, Outcome, Section

BURST_SECONDS, WARM_BURSTS = 1, 3
GOAL = 1.02
SURE = 2.0
"""Standard errors on each side of a ratio, between which it is 19 times of 20."""


def before(
    bench: Bench,
    commit: Annotated[str, Argument(help="What `git archive` knows: a hash, a branch, HEAD~1.")],
    cases: Annotated[str, Option(help=f"Of {', '.join(case.name for case in CASES)}.")] = "repeat,distinct",
    bursts: Annotated[int, Option(min=2, help="Of each, in each case, of 1 s.")] = 60,
    connections: Annotated[int, Option(min=1, help="Connections wrk keeps alive.")] = 64,
) -> Outcome:
    """What a small request costs slb, beside slb as it is in another commit; both under this Python, with its
    libraries."""
    wanted = chosen("--cases", cases, [case.name for case in CASES])
    measurement = Measurement(bench, BURST_SECONDS, 0)
    with ExitStack() as stack:
        old, new = (
            stack.enter_context(measurement.serving(_from(tree)))
            for tree in (_archived(commit, bench.home / "before"), REPOSITORY)
        )

        def burst(served: Served, case: Case) -> float:
            return _cost(measurement.burst(served, case, connections))

        sections = list[Section]()
        for case in [case for case in CASES if case.name in wanted]:
            bench.to(f"{case.name}: warming up")
            for served in (old, new) * WARM_BURSTS:
                burst(served, case)
            turns: list[tuple[float, float]] = []
            for number in range(1, bursts + 1):
                bench.to(f"{case.name}: burst {number} of {bursts}")
                if number % 2:  # each is first in every other turn: what grows meanwhile speaks for neither
                    turns.append((burst(old, case), burst(new, case)))
                else:
                    late = burst(new, case)
                    turns.append((burst(old, case), late))
            sections.append(_section(case, commit, turns))
    return Outcome(sections)


def _archived(commit: str, folder: Path) -> Path:
    """slb of that commit. Raises BenchError where there is none."""
    folder.mkdir()
    packed = subprocess.run(["git", "archive", commit, "slb"], cwd=REPOSITORY, capture_output=True)
    if packed.returncode:
        raise BenchError(packed.stderr.decode(errors="replace").strip())
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    return folder


def _from(tree: Path) -> Peer:
    return replace(SLB, environment={**SLB.environment, "PYTHONPATH": str(tree)})


def _cost(sample: Sample) -> float:
    """µs of CPU a request. Raises BenchError where some failed."""
    if errors := sum(sample.load.errors.values()):
        raise BenchError(f"{errors} requests failed")
    return sample.cpu_us


def _section(case: Case, commit: str, turns: Sequence[tuple[float, float]]) -> Section:
    ratio, error = ratio_of(turns)
    figures = [
        Figure(f"CPU a request, {commit}", fmean(old for old, _ in turns), "µs"),
        Figure("CPU a request, this tree", fmean(new for _, new in turns), "µs"),
        Figure("their ratio", round(ratio, 4), at_most=GOAL),
    ]
    sure = f"19 times of 20 the ratio is between {ratio - SURE * error:.4f} and {ratio + SURE * error:.4f}"
    notes = [f"{len(turns)} bursts of each; {sure}", f"slb ran under {python()}"]
    return Section(f"{case.name}: {case.title}", figures, notes)


def ratio_of(turns: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The second's cost in units of the first's, and the standard error of that. `turns`: at least two."""
    logs = [math.log(new / old) for old, new in turns]
    return math.exp(fmean(logs)), stdev(logs) / math.sqrt(len(logs))

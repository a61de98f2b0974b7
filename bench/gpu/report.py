"""What was measured as tables, and the goals."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table

from bench.figures.figure import Figure, Section, short
from bench.gpu.standing import Standing
from bench.gpu.work import Work

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
COMPARED = {"slb": "vs slb", "slb-queue": "vs queue"}
"""The rows of slb by which others' p99 is divided, and the columns where it stands."""

MULTIPLES = {
    0.05: {"slb-queue": 1.20},
    0.1: {"slb": 1.30, "slb-queue": 1.10},
    0.2: {"slb": 1.35, "slb-queue": 1.10},
    1.0: {"slb-queue": 1.03},
}
"""Of the ideal's p99, at most, by mean service time in seconds: what a handoff takes weighs more in short ones."""
ADVANTAGES = {0.2: {"slb": 2.0, "slb-queue": 2.5}}
"""Envoy's p99 in units of slb's, at least, by mean service time."""
WORTH_SAYING_MS = 2.0


@dataclass(frozen=True)
class CaseResult:
    """One case: its work, what was computed for it, and by name how each balancer did."""

    work: Work
    ideal: Standing
    exact: Standing
    standings: Mapping[str, Standing]

    def rows(self) -> list[Standing]:
        return [self.ideal, self.exact, *self.standings.values()]

    def p99(self, name: str) -> float:
        return self.standings[name].p99 if name in self.standings else math.nan


@dataclass(frozen=True)
class CaseSection(Section):
    """A section whose table has a row for each balancer instead of one for each figure."""

    result: CaseResult | None = None

    def table(self) -> Table:
        assert self.result is not None
        table = Table(box=SIMPLE_HEAD)
        table.pad_edge, table.show_edge = False, False
        table.add_column("", no_wrap=True)
        compared = [column for name, column in COMPARED.items() if name in self.result.standings]
        for column in (*(f"{name} ms" for name in PERCENTILES), "p99 vs ideal", *compared, "shed", "errors"):
            table.add_column(column, justify="right", no_wrap=True)
        for row in self.result.rows():
            table.add_row(
                row.label,
                *cells(self.result, row),
                style="dim" if row in (self.result.ideal, self.result.exact) else None,
            )
        return table

    def as_json(self) -> dict[str, object]:
        assert self.result is not None
        by_name = {"ideal": self.result.ideal, "exact-counts": self.result.exact, **self.result.standings}
        return {
            "title": self.title,
            "case": self.result.work.name,
            "balancers": {name: standing.as_json() for name, standing in by_name.items()},
        }


def cells(result: CaseResult, row: Standing) -> list[str]:
    """All columns of a row but the first."""
    ratios = [result.ideal.p99, *(result.p99(name) for name in COMPARED if name in result.standings)]
    return [
        *(short(row.at(share)) for share in PERCENTILES.values()),
        *(f"{row.p99 / unit:.2f}" if math.isfinite(row.p99 / unit) else "-" for unit in ratios),
        f"{row.shed / row.requests:.1%}" if row.shed else "0",
        str(row.errors),
    ]


def case_section(result: CaseResult) -> CaseSection:
    """The table, and below it who failed and whether the load was late."""
    notes = [f"{each.label}: {each.failure}" for each in result.standings.values() if each.failure]
    failures = [Figure("balancers without figures", len(notes), at_most=0)] if notes else []
    late = max((each.late_ms for each in result.standings.values()), default=0.0)
    if late > WORTH_SAYING_MS:
        notes.append(f"The load sent its requests late by up to {late:.1f} ms (p99): the machine was busy.")
    return CaseSection(result.work.title, failures, notes, result)


def goals_section(result: CaseResult) -> Section | None:
    """The goals for this service time, of those balancers that took part; None where there are none."""
    service = result.work.service
    figures = [
        Figure(f"{result.standings[name].label}: p99, in units of the ideal's", multiple, at_most=most)
        for name, most in MULTIPLES.get(service, {}).items()
        if name in result.standings
        for multiple in [result.p99(name) / result.ideal.p99]
    ]
    figures += [
        Figure(f"Envoy's p99, in units of {result.standings[name].label}'s", advantage, at_least=least)
        for name, least in ADVANTAGES.get(service, {}).items()
        if {name, "envoy"} <= result.standings.keys()
        for advantage in [result.p99("envoy") / result.p99(name)]
    ]
    return Section(f"goals, Poisson arrivals, service {service * 1e3:.0f} ms", figures) if figures else None

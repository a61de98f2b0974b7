"""How each balancer did in each case, as tables; and the goals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from bench.gpu.work import Work
from bench.sending import Result
from bench.table import Figure, Section, percentile, short

SERVED, SHED = 200, 503
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
class Standing:
    """`latencies_ms` are those of the requests that were served, in ascending order; `failure` is why there are
    none. `late_ms` is how late the load sent its requests, p99: part of every latency, and the load's own doing."""

    label: str
    latencies_ms: Sequence[float] = ()
    requests: int = 0
    shed: int = 0
    errors: int = 0
    late_ms: float = 0.0
    failure: str = ""

    @classmethod
    def of(cls, label: str, result: Result) -> Self:
        ended = list(zip(result.statuses, result.latencies, strict=True))
        served = sorted(latency * 1e3 for status, latency in ended if status == SERVED)
        shed = result.statuses.count(SHED)
        late = percentile(result.sent_late, 0.99) * 1e3
        return cls(label, served, len(ended), shed, len(ended) - len(served) - shed, late)

    @classmethod
    def computed(cls, label: str, latencies: Sequence[float]) -> Self:
        return cls(label, sorted(latency * 1e3 for latency in latencies), len(latencies))

    def at(self, share: float) -> float:
        """The latency in milliseconds that `share` of the served requests do not exceed; NaN without any."""
        return percentile(self.latencies_ms, share)

    @property
    def p99(self) -> float:
        return self.at(0.99)


@dataclass(frozen=True)
class CaseResult:
    """One case: its work, what was computed for it, and by name how each balancer did."""

    work: Work
    ideal: Standing
    exact: Standing
    standings: Mapping[str, Standing]

    def p99(self, name: str) -> float:
        return self.standings[name].p99 if name in self.standings else math.nan


def cells(result: CaseResult, row: Standing) -> list[str]:
    """A row of the table."""
    ratios = [result.ideal.p99, *(result.p99(name) for name in COMPARED if name in result.standings)]
    return [
        row.label,
        *(short(row.at(share)) for share in PERCENTILES.values()),
        *(f"{row.p99 / unit:.2f}" if math.isfinite(row.p99 / unit) else "-" for unit in ratios),
        f"{row.shed / row.requests:.1%}" if row.shed else "0",
        str(row.errors),
    ]


def case_section(result: CaseResult) -> Section:
    """The table with a row for each balancer, and below it what failed and whether the load was late."""
    notes = [f"{each.label}: {each.failure}" for each in result.standings.values() if each.failure]
    failures = [Figure("balancers without figures", len(notes), at_most=0)] if notes else []
    late = max((each.late_ms for each in result.standings.values()), default=0.0)
    if late > WORTH_SAYING_MS:
        notes.append(f"The load sent its requests late by up to {late:.1f} ms (p99): the machine was busy.")
    compared = [column for name, column in COMPARED.items() if name in result.standings]
    columns = ("", *(f"{name} ms" for name in PERCENTILES), "p99 vs ideal", *compared, "shed", "errors")
    rows = [cells(result, row) for row in (result.ideal, result.exact, *result.standings.values())]
    return Section(result.work.title, failures, notes, columns, rows, dim=2)


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

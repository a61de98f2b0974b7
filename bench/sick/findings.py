"""What came of a case: a finding for each kind of proxy, and the table of all of them with slb's goals."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, nan
from typing import NamedTuple

from bench.gpu.command import LATE_MS, Balancer
from bench.sending import Result
from bench.sick.case import SERVERS, Case
from bench.sick.measure import Sickness, Stretch, back_after, left_out, left_out_after
from bench.sick.servers import BUSY_SECONDS, Visit
from bench.table import Figure, Section, percentile, short

SLB = "slb"
FAILED, OUT, P99, WRONGLY = "failed, %", "left out after, s", "p99 of the served, ms", "wrongly left out, servers"


@dataclass(frozen=True)
class Finding:
    """What came of one case behind one kind of proxy. Shares are per cent of the requests that were due while the
    server was ill, `out` and `back` seconds (None: never), `p99` milliseconds of those that were served. `wrong`:
    where a server was left out that should not be, in seconds from the beginning of the load."""

    requests: int
    failed: float
    to_sick: float
    out: float | None
    back: float | None
    p99: float
    wrong: Sequence[Stretch]
    late_ms: float

    @property
    def wrongly(self) -> int:
        """So many servers."""
        return len({each.server for each in self.wrong})


def found(case: Case, begin: float, result: Result, logs: Sequence[Sequence[Visit]]) -> Finding:
    """Judge by what the clients got and what the servers noted; the load began at `begin`."""
    since = begin + case.times.well
    until = since + case.times.sick
    outcomes = [
        (begin + arrival, status == 200, latency)
        for arrival, status, latency in zip(case.arrivals, result.statuses, result.latencies, strict=True)
    ]
    meanwhile = [each for each in outcomes if since <= each[0] < until]
    failed = [due for due, served, _ in meanwhile if not served]
    latencies = [latency * 1e3 for _, served, latency in meanwhile if served]
    visits = [[each for each in log if each.arrived >= begin] for log in logs]
    late = percentile(result.sent_late, 0.99) * 1e3
    share, p99 = 100 / max(1, len(meanwhile)), percentile(latencies, 0.99)
    whole = begin, begin + case.times.whole
    if case.server is None:
        wrong = left_out(visits, *whole)
        return Finding(len(meanwhile), len(failed) * share, nan, None, None, p99, _from(begin, wrong), late)
    fair = len(case.arrivals) / case.times.whole / SERVERS
    sickness = Sickness(case.server, since, until, fair, hangs=case.kind.hangs)
    arrivals = [each.arrived for each in visits[case.server]]
    if case.name == "refuse":  # what is refused is in no server's log: the clients tell
        arrivals = sorted([*failed, *(each for each in arrivals if each >= until)])
    reached = sum(since <= each < until for each in arrivals)
    out = left_out_after(sickness, arrivals)
    back = None if out is None else back_after(sickness, arrivals)
    wrong = _from(begin, _wrong(case, sickness, visits, whole))
    return Finding(len(meanwhile), len(failed) * share, reached * share, out, back, p99, wrong, late)


def _wrong(
    case: Case, sickness: Sickness, visits: Sequence[Sequence[Visit]], whole: tuple[float, float]
) -> list[Stretch]:
    """Of the healthy servers; and of the full one, however busy it is, but for as long as it asks to be left alone:
    it is not broken."""
    healthy = [each for each in left_out(visits, *whole) if each.server != sickness.server]
    if case.name != "full":
        return healthy
    as_if_idle = list(visits)
    as_if_idle[sickness.server] = list(_idle_unless_it_asks(visits[sickness.server]))
    full = left_out(as_if_idle, sickness.since, sickness.until)
    return healthy + [each for each in full if each.server == sickness.server]


def _idle_unless_it_asks(visits: Sequence[Visit]) -> Iterator[Visit]:
    """In use from each request that it turned away, for as long as its `Retry-After` says, and for nothing else."""
    until = -inf
    for each in visits:
        if each.began is None and each.ended is not None:
            yield Visit(each.arrived, max(each.arrived, until), each.arrived + BUSY_SECONDS)
            until = each.arrived + BUSY_SECONDS
        else:
            yield Visit(each.arrived)


def _from(begin: float, stretches: Sequence[Stretch]) -> list[Stretch]:
    return [Stretch(each.server, each.begin - begin, each.end - begin) for each in stretches]


class Row(NamedTuple):
    """One figure of a case, how a finding's is written, and slb's goals, each with a word for it."""

    what: str
    shown: Callable[[Finding], str]
    goals: Sequence[tuple[str, Figure]]

    @property
    def verdicts(self) -> str:
        return "; ".join(f"{word}: {'met' if goal.met else 'MISSED'}" for word, goal in self.goals)


@dataclass
class Standings:
    """All cases of one shape. `findings` by case and proxy; `failures`: by the same, why there is none."""

    title: str
    balancers: Sequence[Balancer]
    cases: Sequence[Case]
    findings: dict[tuple[str, str], Finding] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)

    def of(self, case: Case) -> dict[str, Finding]:
        """By proxy, those that there are."""
        names = [each.name for each in self.balancers if (case.name, each.name) in self.findings]
        return {name: self.findings[case.name, name] for name in names}

    def section(self) -> Section:
        """A row for each figure, a column for each kind of proxy, and slb's goals beside them."""
        rows, figures = list[Sequence[str]](), list[Figure]()
        for case in self.cases:
            found = self.of(case)
            for number, row in enumerate(_rows(case, found)):
                cells = [row.shown(found[each.name]) if each.name in found else "-" for each in self.balancers]
                rows.append(("" if number else case.name, row.what, *cells, row.verdicts))
                figures += [goal for _, goal in row.goals]
        if self.failures:
            figures.append(Figure("cases without a finding", len(self.failures), at_most=0))
        columns = ("ill", "figure", *(each.label for each in self.balancers), "goals of slb")
        return Section(self.title, figures, self._notes(), columns, rows, words=2)

    def _notes(self) -> list[str]:
        labels = {each.name: each.label for each in self.balancers}
        notes = [
            f"{case.name}: {labels[proxy]} left out {each.server + 1} from {each.begin:.1f} to {each.end:.1f} s"
            for case in self.cases
            for proxy, finding in self.of(case).items()
            for each in finding.wrong
        ]
        notes += [f"{name}: {labels[proxy]}: {why}" for (name, proxy), why in self.failures.items()]
        late = max((each.late_ms for each in self.findings.values()), default=0.0)
        if late > LATE_MS:
            notes.append(f"The load sent its requests late by up to {late:.1f} ms (p99): the machine was busy.")
        return notes


def _rows(case: Case, found: Mapping[str, Finding]) -> Iterator[Row]:
    goals = dict[str, list[tuple[str, Figure]]]()
    for row, word, goal in _goals(case, found) if SLB in found else ():
        goals.setdefault(row, []).append((word, goal))
    shown: dict[str, Callable[[Finding], str]] = {FAILED: lambda each: short(each.failed)}
    if case.server is not None:
        shown |= {
            "sent to the sick one, %": lambda each: short(each.to_sick),
            OUT: lambda each: "never" if each.out is None else f"{each.out:.1f}",
            "back after, s": lambda each: _back(each, case),
        }
    shown |= {P99: lambda each: short(each.p99), WRONGLY: lambda each: str(each.wrongly)}
    for what, text in shown.items():
        yield Row(what, text, goals.get(what, ()))


def _goals(case: Case, found: Mapping[str, Finding]) -> Iterator[tuple[str, str, Figure]]:
    """Of slb: the row that each belongs to, and a word for it."""
    slb, kind = found[SLB], case.kind
    others = [each for name, each in found.items() if name != SLB]
    if kind.failed_below is not None:
        most = kind.failed_below
        yield FAILED, f"under {most:g}", Figure(f"{case.name}: failed", slb.failed, "%", below=most)
    if others and case.server is not None and not kind.slow:
        best = min(each.failed for each in others)
        what = f"{case.name}: failed, as the best of the others"
        yield FAILED, "first", Figure(what, slb.failed, "%", at_most=best)
    if kind.out_within is not None:
        seconds, most = nan if slb.out is None else slb.out, kind.out_within
        yield OUT, f"within {most:g}", Figure(f"{case.name}: left out after", seconds, "s", at_most=most)
    if others and kind.slow:
        best = min(each.p99 for each in others)
        yield P99, "first", Figure(f"{case.name}: p99, as the best of the others", slb.p99, "ms", at_most=best)
    yield WRONGLY, "nobody", Figure(f"{case.name}: wrongly left out", slb.wrongly, at_most=0)


def _back(finding: Finding, case: Case) -> str:
    """One that was not left out is not back either."""
    if finding.out is None:
        return "-"
    return f"> {case.times.back:g}" if finding.back is None else f"{finding.back:.1f}"

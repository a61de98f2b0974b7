"""`python -m bench sick`: one of eight servers falls ill behind three proxies; what the callers notice, who is left
out, and when."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle, islice
from math import nan
from pathlib import Path
from random import Random
from typing import Annotated, NamedTuple

from typer import Option

from bench.command import Bench, chosen, refuse
from bench.gpu.command import LATE_MS, Balancer
from bench.gpu.work import log_normal, poisson_arrivals, read_trace
from bench.http import free_ports
from bench.peers import ENVOY, HAPROXY, NGINX, SLB
from bench.processes import BenchError, Processes
from bench.sending import START_SECONDS, Plan, Result, sent
from bench.sick.measure import (
    BACK_SECONDS,
    LEFT_SECONDS,
    Sickness,
    Stretch,
    back_after,
    left_out,
    left_out_after,
)
from bench.sick.servers import HEALTH, STREAM, Visit, Ward
from bench.table import Figure, Outcome, Section, percentile, short

SERVERS, PROXIES = 8, 3
PATH = "/v1/completions"
BODY = '{"model":"m","prompt":"once upon a time","max_tokens":64}'
CV = 0.5  # of service times without a trace
PATIENCE_SECONDS = 20.0
GOAL_FAILED, GOAL_OUT, GOAL_STUCK = 2.0, 5.0, 40.0
WELL_SECONDS, MINUTE = 2.0, 60.0
HEALTHY = "none"


@dataclass(frozen=True)
class Kind:
    """How a server is ill, at least for `seconds`. `streams`: all answers come in events. Goals are fewer failures
    than `failed_below` per cent, and to be left out within `out_within` seconds. `slow`: latency shows it."""

    what: str
    seconds: float = 0.0
    streams: bool = False
    failed_below: float | None = None
    out_within: float | None = None
    slow: bool = False


AT_ONCE = partial(Kind, failed_below=GOAL_FAILED, out_within=GOAL_OUT)
KINDS = {
    "500": AT_ONCE("answers 500 at once"),
    "503": Kind("answers 503 to 30 % of the requests at once", failed_below=GOAL_FAILED),
    "hang": Kind("accepts requests and never answers", seconds=46.0, out_within=GOAL_STUCK),
    "slow5": Kind("takes 5 times as long", slow=True),
    "slow20": Kind("takes 20 times as long", slow=True),
    "cut": AT_ONCE("begins a stream and cuts the connection in its middle", streams=True),
    "refuse": AT_ONCE("its process has ended"),
    "flap": Kind("answers 500 for 5 s and is well for 5 s, in turn", seconds=15.0),
    "garbage": AT_ONCE("answers what is no HTTP"),
    "full": Kind("is full of other work for 1 s of 2, and then answers 503 with Retry-After"),
}
WELL = Kind("no server is ill")


class Shape(NamedTuple):
    """Slots of a server, and the mean service time in seconds."""

    slots: int
    service: float


SHAPES = {"1": Shape(1, 0.1), "8": Shape(8, 0.2)}
"""Of the servers' time 63 % and 16 % is asked for at 50 requests a second."""

CHECKED = {
    "health_path": HEALTH,
    "health_interval": "2s",
    "health_timeout": "1s",
    "health_fall": "3",
    "health_rise": "2",
}
BALANCERS = (
    Balancer("slb", "slb", SLB, {"policy": "least_inflight", **CHECKED}),
    Balancer("haproxy", "HAProxy", HAPROXY.configured("sick")),
    Balancer("envoy", "Envoy", ENVOY.configured("sick")),
    Balancer("nginx", "nginx", NGINX.configured("sick")),
)


@dataclass(frozen=True)
class Times:
    """Seconds before, during and after the sickness."""

    well: float
    sick: float
    back: float

    @property
    def whole(self) -> float:
        return self.well + self.sick + self.back


@dataclass(frozen=True)
class Case:
    """What every proxy gets alike: requests, when and through which proxy they come, and which server falls ill
    (None: none does)."""

    name: str
    slots: int
    times: Times
    arrivals: Sequence[float]
    requests: Sequence[str]
    to: Sequence[int]
    server: int | None = None

    @property
    def kind(self) -> Kind:
        return KINDS.get(self.name, WELL)


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


def made_case(name: str, shape: Shape, times: Times, rate: float, seed: int, tokens: Sequence[int]) -> Case:
    """The same for the same seed. `tokens`: of answers; their times are in proportion."""
    rng = Random(f"{seed} {name} {shape.slots}")
    arrivals = poisson_arrivals(rng, rate, times.whole)
    if tokens:
        taken = list(islice(cycle(tokens), len(arrivals)))
        services = [each * shape.service * len(taken) / sum(taken) for each in taken]
    else:
        services = log_normal(rng, shape.service, CV, len(arrivals))
    path = STREAM if KINDS.get(name, WELL).streams else PATH
    requests = [_post(path, service) for service in services]
    to = [rng.randrange(PROXIES) for _ in arrivals]
    return Case(name, shape.slots, times, arrivals, requests, to, rng.randrange(SERVERS) if name in KINDS else None)


def _post(path: str, service: float) -> str:
    return (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nX-Service-Time: {service:.6f}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}"
    )


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
    sickness = Sickness(case.server, since, until, len(case.arrivals) / case.times.whole / SERVERS)
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
    """Of the healthy servers; and of the full one, however busy it is: it is not broken."""
    healthy = [each for each in left_out(visits, *whole) if each.server != sickness.server]
    if case.name != "full":
        return healthy
    as_if_idle = list(visits)
    as_if_idle[sickness.server] = [Visit(each.arrived) for each in visits[sickness.server]]
    full = left_out(as_if_idle, sickness.since, sickness.until)
    return healthy + [each for each in full if each.server == sickness.server]


def _from(begin: float, stretches: Sequence[Stretch]) -> list[Stretch]:
    return [Stretch(each.server, each.begin - begin, each.end - begin) for each in stretches]


class Row(NamedTuple):
    """One figure of a case: how it is written, and slb's goals, each with a word for it."""

    what: str
    cells: Sequence[str]
    goals: Sequence[tuple[str, Figure]] = ()

    @property
    def verdicts(self) -> str:
        return "; ".join(f"{word}: {'met' if goal.met else 'MISSED'}" for word, goal in self.goals)


@dataclass
class Standings:
    """All cases of one shape. `failures`: why a proxy has no finding in a case; both by case and proxy."""

    title: str
    balancers: Sequence[Balancer]
    cases: Sequence[Case]
    findings: dict[tuple[str, str], Finding] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)

    def section(self) -> Section:
        """A row for each figure, a column for each kind of proxy, and slb's goals beside them."""
        rows, figures = list[Sequence[str]](), list[Figure]()
        for case in self.cases:
            for number, row in enumerate(self._rows(case)):
                rows.append(("" if number else case.name, row.what, *row.cells, row.verdicts))
                figures += [goal for _, goal in row.goals]
        if self.failures:
            figures.append(Figure("cases without a finding", len(self.failures), at_most=0))
        columns = ("ill", "figure", *(each.label for each in self.balancers), "goals of slb")
        return Section(self.title, figures, self._notes(), columns, rows, words=2)

    def _rows(self, case: Case) -> Iterator[Row]:
        name, ill = case.name, case.server is not None
        yield self._row(case, "failed, %", lambda each: short(each.failed), self._failed_goals(case))
        if ill:
            yield self._row(case, "sent to the sick one, %", lambda each: short(each.to_sick))
            yield self._row(case, "left out after, s", lambda each: _seconds(each.out), self._out_goals(case))
            yield self._row(case, "back after, s", lambda each: _back(each, case))
        yield self._row(case, "p99 of the served, ms", lambda each: short(each.p99), self._p99_goals(case))
        nobody = [
            ("nobody", Figure(f"{name}: wrongly left out", each.wrongly, at_most=0)) for each in self._slb(case)
        ]
        yield self._row(case, "wrongly left out, servers", lambda each: str(each.wrongly), nobody)

    def _row(
        self,
        case: Case,
        what: str,
        shown: Callable[[Finding], str],
        goals: Iterable[tuple[str, Figure]] = (),
    ) -> Row:
        findings = [self.findings.get((case.name, each.name)) for each in self.balancers]
        return Row(what, ["-" if each is None else shown(each) for each in findings], tuple(goals))

    def _slb(self, case: Case) -> list[Finding]:
        return [each for (name, proxy), each in self.findings.items() if (name, proxy) == (case.name, "slb")]

    def _best(self, case: Case, figure: Callable[[Finding], float]) -> float | None:
        """Of the others; None where there are none."""
        figures = [
            figure(each) for (name, proxy), each in self.findings.items() if name == case.name and proxy != "slb"
        ]
        return min(figures, default=None)

    def _failed_goals(self, case: Case) -> Iterator[tuple[str, Figure]]:
        kind = case.kind
        for each in self._slb(case):
            if kind.failed_below is not None:
                what = f"{case.name}: failed"
                yield f"under {kind.failed_below:g}", Figure(what, each.failed, "%", below=kind.failed_below)
            best = self._best(case, lambda found: found.failed)
            if best is not None and case.server is not None and not kind.slow:
                yield "first", Figure(f"{case.name}: failed, as the best of the others", each.failed, "%", best)

    def _out_goals(self, case: Case) -> Iterator[tuple[str, Figure]]:
        within = case.kind.out_within
        for each in self._slb(case) if within is not None else ():
            seconds = nan if each.out is None else each.out
            yield f"within {within:g}", Figure(f"{case.name}: left out after", seconds, "s", at_most=within)

    def _p99_goals(self, case: Case) -> Iterator[tuple[str, Figure]]:
        best = self._best(case, lambda found: found.p99)
        for each in self._slb(case) if case.kind.slow and best is not None else ():
            yield "first", Figure(f"{case.name}: p99, as the best of the others", each.p99, "ms", at_most=best)

    def _notes(self) -> list[str]:
        labels = {each.name: each.label for each in self.balancers}
        notes = [
            f"{case.name}: {labels[proxy]} left out {each.server + 1} from {each.begin:.1f} to {each.end:.1f} s"
            for case in self.cases
            for (name, proxy), finding in self.findings.items()
            if name == case.name
            for each in finding.wrong
        ]
        notes += [f"{name}: {labels[proxy]}: {why}" for (name, proxy), why in self.failures.items()]
        late = max((each.late_ms for each in self.findings.values()), default=0.0)
        if late > LATE_MS:
            notes.append(f"The load sent its requests late by up to {late:.1f} ms (p99): the machine was busy.")
        return notes


def _seconds(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f}"


def _back(finding: Finding, case: Case) -> str:
    """One that was not left out is not back either."""
    if finding.out is None:
        return "-"
    return f"> {case.times.back:g}" if finding.back is None else f"{finding.back:.1f}"


def sick(
    bench: Bench,
    kinds: Annotated[str, Option(help=f"Some of: {', '.join(KINDS)}.")] = "",
    only: Annotated[str, Option(help=f"Some of: {', '.join(each.name for each in BALANCERS)}.")] = "",
    shape: Annotated[str, Option(help="Slots of a server, some of: 1, 8.")] = "1",
    seconds: Annotated[float, Option(min=LEFT_SECONDS, help="How long the server is ill, at least.")] = 10,
    back: Annotated[float, Option(min=BACK_SECONDS, help="How long it is well again.")] = 10,
    rate: Annotated[float, Option(min=1, help="Requests a second.")] = 50,
    seed: Annotated[int, Option(help="The same seed is the same work.")] = 1,
    quick: Annotated[bool, Option("--quick", help="One kind, a minute in all.")] = False,
    healthy: Annotated[float, Option(min=0, help="Minutes of traffic in which no server is ill, instead.")] = 0,
    trace: Annotated[
        Path | None, Option(help="Service times in proportion to the tokens of this trace.", show_default=False)
    ] = None,
) -> Outcome:
    """One of eight servers falls ill behind three proxies: what callers notice, who is left out, and when."""
    if quick:
        kinds, seconds, back = kinds or "500", 6, 4
    balancers, notes = _present(only or ("slb" if healthy else ""))
    tokens = [max(1, line.generated) for line in read_trace(trace)] if trace else []
    standings: list[Standings] = []
    for name in chosen("--shape", shape, SHAPES):
        made = partial(made_case, shape=SHAPES[name], rate=rate, seed=seed, tokens=tokens)
        if healthy:
            cases = [made(HEALTHY, times=Times(0, healthy * MINUTE, 0))]
        else:
            illnesses = {kind: KINDS[kind] for kind in chosen("--kinds", kinds, KINDS)}
            cases = [
                made(kind, times=Times(WELL_SECONDS, max(seconds, each.seconds), back))
                for kind, each in illnesses.items()
            ]
        standings.append(Standings(_title(SHAPES[name], rate, trace), balancers, cases))
    interrupted = False
    try:
        for table in standings:
            _take_turns(bench, table, seed)
    except KeyboardInterrupt:
        if not standings[0].findings:
            raise
        interrupted = True
        notes.append("Interrupted: what is missing above was not measured to its end.")
    sections = [each.section() for each in standings]
    sections[-1] = replace(sections[-1], notes=[*sections[-1].notes, *notes])
    return Outcome(sections, interrupted, any(each.failures for each in standings))


def _present(only: str) -> tuple[list[Balancer], list[str]]:
    """Those that are asked for and installed; a sentence for each that is not. Refuses where none is left."""
    names = chosen("--only", only, [each.name for each in BALANCERS])
    asked_for = [each for each in BALANCERS if each.name in names]
    present = [each for each in asked_for if each.needs.program()]
    if not present:
        refuse(f"--only: not installed: {', '.join(each.needs.install for each in asked_for)}")
    return present, [
        f"{each.label} was left out: {each.needs.install}" for each in asked_for if each not in present
    ]


def _title(shape: Shape, rate: float, trace: Path | None) -> str:
    spread = f"as in {trace.name}" if trace else f"log-normal (CV {CV:g})"
    return (
        f"{SERVERS} servers, slots of each: {shape.slots}; {PROXIES} proxies of each kind; "
        f"{rate:g} requests a second, service {shape.service * 1e3:.0f} ms {spread}"
    )


def _take_turns(bench: Bench, standings: Standings, seed: int) -> None:
    """Each proxy with each case, one after another; `standings` has what is complete so far."""
    for case in standings.cases:
        for each in standings.balancers:
            home = bench.home / f"{case.slots}-{case.name}-{each.name}"
            home.mkdir()
            try:
                standings.findings[case.name, each.name] = _turn(bench, home, each, case, seed)
            except (BenchError, OSError) as error:
                standings.failures[case.name, each.name] = str(error)


def _turn(bench: Bench, home: Path, balancer: Balancer, case: Case, seed: int) -> Finding:
    """Fresh servers and proxies, the work, and their end. Raises BenchError."""
    words = f"{case.name}, servers with {case.slots}: "
    with Processes() as processes:
        bench.to(f"{words}starting {balancer.label}")
        *ports, control = free_ports(SERVERS + 1)
        ward = Ward(processes, home / "servers", ports, control, case.slots, f"{seed} {case.name}")
        fleet = balancer.start(processes, home, ports, PROXIES)
        bench.to(f"{words}{balancer.label}")
        begin = time.monotonic() + START_SECONDS
        if case.server is not None:
            since = begin + case.times.well
            ward.make_ill(case.server, case.name, since, since + case.times.sick)
        plan = Plan(begin, list(fleet), case.arrivals, case.requests, case.to, PATIENCE_SECONDS)
        result = sent(processes, home / "load", plan)
        for running in fleet.values():
            running.check_alive()
        finding = found(case, begin, result, ward.visits())
        for running in fleet.values():
            running.process.terminate()  # all at once; waiting for each is left to their owner
    return finding

"""`python -m bench gpu`: what a view of the whole fleet is worth, in front of slow upstreams."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, nan
from pathlib import Path
from random import Random
from typing import Annotated, Self

from typer import Option

from bench.command import Bench, chosen, refuse
from bench.envoys import Processors, start_envoy
from bench.fleet import READY_SECONDS, Fleet, queued
from bench.gpu.work import (
    TRACES,
    Shape,
    TracesOption,
    Work,
    exact_counts,
    fast_work,
    one_queue,
    poisson_work,
    read_trace,
    trace_work,
)
from bench.http import wait_until_served
from bench.peers import ENVOY, HAPROXY, NGINX, SLB, Peer
from bench.pods import start_pods
from bench.ports import free_ports
from bench.processes import BenchError, Processes, Running
from bench.sending import START_SECONDS, Plan, Result, sent
from bench.table import Figure, Outcome, Section, percentile, short
from bench.traffic import get

CASES = ("poisson", *TRACES, "fast")
SERVICES = "0.2,0.05,0.1,1"
SHORTEST_SERVICE = 0.001
GOALS_AT = (0.85, 20, 10)  # load, pods and proxies for which the goals are stated
MULTIPLES = {
    0.05: {"slb-queue": 1.20},
    0.1: {"slb": 1.30, "slb-queue": 1.10},
    0.2: {"slb": 1.35, "slb-queue": 1.10, "envoy-slb-1": 1.4, "envoy-slb-2": 1.4, "envoy-slb-5": 1.4},
    1.0: {"slb-queue": 1.03},
}
"""Of the ideal's p99, at most, by mean service time in seconds: what a handoff takes weighs more in short ones."""

ADVANTAGES = {0.2: {"slb": 2.0, "slb-queue": 2.5}}  # Envoy's p99 in units of slb's, at least, by the same
PATH = "/v1/completions"
GIVE_UP_SECONDS = 120.0
SERVED, SHED = 200, 503
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
COMPARED = {
    "slb": "vs slb",
    "slb-queue": "vs queue",
}  # rows of slb by which others' p99 is divided, and where it stands
LATE_MS = 2.0  # worth saying


@dataclass(frozen=True)
class Balancer:
    """A fleet of one kind. `name` is for `--only`, `label` for tables. `settings` are those of slb's one route; a
    peer has a static configuration, and each of its proxies sees only its own requests, unless it asks
    `processors` of slb's."""

    name: str
    label: str
    needs: Peer
    settings: Mapping[str, str] | None = None
    processors: int = 0

    def start(self, processes: Processes, home: Path, pods: Sequence[int], proxies: int) -> dict[int, Running]:
        """In a folder of its own: its processes by their data ports; every proxy serves. Raises BenchError."""
        if self.settings is None:
            peers = [self.needs.start(processes, home / str(number), pods) for number in range(proxies)]
            started = {site.port: running for site, running in peers}
        elif self.processors:
            fleet = Fleet(processes, home)
            fleet.write_route("/", pods, self.settings)
            asked = Processors(fleet, self.processors, pods).ports
            started = dict(start_envoy(processes, home / str(number), pods, asked) for number in range(proxies))
        else:
            fleet = Fleet(processes, home)
            fleet.write_route("/", pods, self.settings)
            started = {each.port: each.running for each in fleet.start_instances(proxies)}
            fleet.wait_until_shown("/", pods, fleet.instances[0].running)
        for port, running in started.items():
            wait_until_served([port], "/", running, READY_SECONDS)
        return started


PATIENCE = "600s"  # any of them waits so long for an upstream: in a burst, requests queue for longer than defaults
PATIENT = {"first_byte_timeout": PATIENCE}
_SHARED_QUEUE = {**queued(1, PATIENCE), **PATIENT}
BALANCERS = (
    Balancer("envoy", "Envoy LEAST_REQUEST", ENVOY.configured("fleet")),
    Balancer("nginx", "nginx least_conn", NGINX.configured("fleet")),
    Balancer("haproxy", "HAProxy leastconn", HAPROXY.configured("fleet")),
    Balancer("slb-local", "slb least_local", SLB, {"policy": "least_local", **PATIENT}),
    Balancer("slb", "slb least_inflight", SLB, {"policy": "least_inflight", **PATIENT}),
    Balancer("slb-queue", "slb shared queue", SLB, _SHARED_QUEUE),
    *(
        Balancer(f"envoy-slb-{number}", f"envoy + slb ext_proc, {number}", ENVOY, _SHARED_QUEUE, number)
        for number in (1, 2, 5)
    ),
)


@dataclass(frozen=True)
class Standing:
    """How one did. `latencies_ms` are those of the requests that were served; `failure` is why there are none.
    `late_ms` is how late the load sent its requests, p99: part of every latency, and the load's own doing."""

    label: str
    latencies_ms: Sequence[float] = ()
    requests: int = 0
    shed: int = 0
    errors: int = 0
    late_ms: float = 0.0
    failure: str = ""

    @classmethod
    def of(cls, label: str, result: Result) -> Self:
        ended = zip(result.statuses, result.latencies, strict=True)
        served = [latency * 1e3 for status, latency in ended if status == SERVED]
        shed, count = result.statuses.count(SHED), len(result.statuses)
        late = percentile(result.sent_late, 0.99) * 1e3
        return cls(label, served, count, shed, count - len(served) - shed, late)

    @classmethod
    def computed(cls, label: str, latencies: Sequence[float]) -> Self:
        return cls(label, [latency * 1e3 for latency in latencies], len(latencies))

    @property
    def p99(self) -> float:
        """Milliseconds that 99 % of the served requests do not exceed; NaN without any."""
        return percentile(self.latencies_ms, 0.99)


@dataclass(frozen=True)
class CaseResult:
    """One case: its work, what was computed for it, and by name how each balancer did."""

    work: Work
    ideal: Standing
    exact: Standing
    standings: Mapping[str, Standing]

    def p99(self, name: str) -> float:
        return self.standings[name].p99 if name in self.standings else nan

    def table(self) -> Section:
        """A row for each balancer, and below it what failed and whether the load was late."""
        notes = [f"{each.label}: {each.failure}" for each in self.standings.values() if each.failure]
        failures = [Figure("balancers without figures", len(notes), at_most=0)] if notes else []
        late = max((each.late_ms for each in self.standings.values()), default=0.0)
        if late > LATE_MS:
            notes.append(f"The load sent its requests late by up to {late:.1f} ms (p99): the machine was busy.")
        compared = {name: column for name, column in COMPARED.items() if name in self.standings}
        units, rows = [self.ideal.p99, *map(self.p99, compared)], []
        for each in (self.ideal, self.exact, *self.standings.values()):
            times = [f"{each.p99 / unit:.2f}" if isfinite(each.p99 / unit) else "-" for unit in units]
            shares = [short(percentile(each.latencies_ms, share)) for share in PERCENTILES.values()]
            shed = f"{each.shed / each.requests:.1%}" if each.shed else "0"
            rows.append([each.label, *shares, *times, shed, str(each.errors)])
        columns = (
            "",
            *(f"{name} ms" for name in PERCENTILES),
            "p99 vs ideal",
            *compared.values(),
            "shed",
            "errors",
        )
        return Section(self.work.title, failures, notes, columns, rows, dim=2)

    def goals(self) -> Section | None:
        """The goals for this service time, of those balancers that took part; None where there are none."""
        service, took_part = self.work.service, self.standings.keys()
        figures = [
            Figure(f"{self.standings[name].label}: p99, in units of the ideal's", times, at_most=most)
            for name, most in MULTIPLES.get(service, {}).items()
            if name in took_part
            for times in [self.p99(name) / self.ideal.p99]
        ]
        figures += [
            Figure(f"Envoy's p99, in units of {self.standings[name].label}'s", times, at_least=least)
            for name, least in ADVANTAGES.get(service, {}).items()
            if {name, "envoy"} <= took_part
            for times in [self.p99("envoy") / self.p99(name)]
        ]
        return Section(f"goals, Poisson arrivals, service {service * 1e3:.0f} ms", figures) if figures else None


def gpu(
    bench: Bench,
    only: Annotated[str, Option(help=f"Some of: {', '.join(each.name for each in BALANCERS)}.")] = "",
    cases: Annotated[str, Option(help=f"Some of: {', '.join(CASES)}.")] = "",
    seconds: Annotated[float, Option(min=1, help="How long requests arrive, each time.")] = 60,
    load: Annotated[float, Option(min=0.01, max=0.99, help="Share of the pods' time asked for.")] = 0.85,
    service: Annotated[str, Option(help="Mean service times in seconds, with commas.")] = SERVICES,
    pods: Annotated[int, Option(min=1, help="Upstreams; each serves one request at a time.")] = 20,
    proxies: Annotated[int, Option(min=1, help="In each fleet.")] = 10,
    seed: Annotated[int, Option(help="The same seed is the same work.")] = 1,
    traces: TracesOption = None,
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
            works += [poisson_work(shape, load, mean) for mean in services]
        elif case == "fast":
            works.append(fast_work(shape))
        elif traces is None:
            lacking.append(f"The trace `{case}` was left out: --traces names the folder with {TRACES[case]}.")
        elif (path := traces / TRACES[case]).is_file():
            works.append(trace_work(case, read_trace(path), shape, load, services[0]))
        else:
            lacking.append(f"The trace `{case}` was left out: there is no {path}.")
    if not works:
        refuse(" ".join(lacking))
    results: list[CaseResult] = []
    interrupted = False
    try:
        _take_turns(bench, balancers, works, shape, results)
    except KeyboardInterrupt:
        if not results or not results[0].standings:
            raise
        interrupted = True
        lacking.append("Interrupted: what is missing above was not measured to its end.")
    sections: list[Section] = []
    for result in results:
        has_goals = result.work.name == "poisson" and (load, pods, proxies) == GOALS_AT
        sections += filter(None, (result.table(), result.goals() if has_goals else None))
    sections[-1] = replace(sections[-1], notes=[*sections[-1].notes, *lacking])
    return Outcome(sections, interrupted)


def chosen_services(text: str) -> list[float]:
    """Seconds, from a text with commas, in their order. Refuses what is no time, or too short to be kept to."""
    try:
        services = [float(word) for word in text.split(",")]
    except ValueError:
        refuse(f"--service: {text}: seconds with commas between them, as in {SERVICES}")
    if not all(SHORTEST_SERVICE <= service < inf for service in services):
        refuse(f"--service: {text}: each has to be at least {SHORTEST_SERVICE} s")
    return services


def _take_turns(
    bench: Bench, balancers: Sequence[Balancer], works: Sequence[Work], shape: Shape, results: list[CaseResult]
) -> None:
    """Each balancer with each work, before the same pods. `results` has what is complete so far."""
    pods = free_ports(shape.pods)
    start_pods(bench.processes, bench.home / "pods", "slot", pods)
    for work in works:
        ideal = one_queue(work.arrivals, work.services, shape.pods)
        exact = exact_counts(work.arrivals, work.services, shape.pods, Random(shape.seed))
        computed = Standing.computed("ideal: one queue", ideal), Standing.computed("ideal: exact counts", exact)
        standings: dict[str, Standing] = {}
        results.append(CaseResult(work, *computed, standings))
        for each in balancers:
            home = bench.home / f"turn-{len(results)}-{each.name}"
            home.mkdir()
            try:
                standings[each.name] = Standing.of(each.label, _sent(bench, home, each, work, pods, shape))
            except (BenchError, OSError) as error:
                standings[each.name] = Standing(each.label, failure=str(error))


def _sent(bench: Bench, home: Path, balancer: Balancer, work: Work, pods: Sequence[int], shape: Shape) -> Result:
    """Of one turn: a fresh fleet, the work, and the fleet's end. Raises BenchError."""
    with Processes() as processes:
        bench.to(f"{work.name}: starting {balancer.label}")
        fleet = balancer.start(processes, home, pods, shape.proxies)
        bench.to(f"{work.name}: {balancer.label}")
        requests = [get(PATH, f"X-Service-Time: {each:.6f}\r\n").decode() for each in work.services]
        begin = time.monotonic() + START_SECONDS
        plan = Plan(begin, list(fleet), work.arrivals, requests, work.proxies, GIVE_UP_SECONDS)
        result = sent(bench.processes, home / "load", plan)
        for running in fleet.values():
            running.check_alive()
        for running in fleet.values():
            running.process.terminate()  # all at once; waiting for each is left to their owner
    return result

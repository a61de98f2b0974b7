"""`python -m bench sick`: one of eight servers falls ill behind three proxies; what the callers notice, who is left
out, and when."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Option

from bench.command import Bench, chosen, refuse
from bench.gpu.command import Balancer
from bench.gpu.work import read_trace
from bench.peers import ENVOY, HAPROXY, NGINX, SLB
from bench.ports import free_ports
from bench.processes import BenchError, Processes
from bench.sending import START_SECONDS, Plan, sent
from bench.sick.case import CV, KINDS, PROXIES, SERVERS, SHAPES, Case, Shape, Times, made_case
from bench.sick.findings import Finding, Standings, found
from bench.sick.measure import BACK_SECONDS, LEFT_SECONDS
from bench.sick.servers import HEALTH, Ward
from bench.table import Outcome

PATIENCE_SECONDS = 20.0
WELL_SECONDS, MINUTE = 2.0, 60.0
HEALTHY = "none"
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
        kinds, back = kinds or "500", BACK_SECONDS
    balancers, notes = _present(only or ("slb" if healthy else ""))
    tokens = [max(1, line.generated) for line in read_trace(trace)] if trace else []
    times = {
        kind: Times(WELL_SECONDS, max(seconds, KINDS[kind].seconds), back)
        for kind in chosen("--kinds", kinds, KINDS)
    }
    if healthy:
        times = {HEALTHY: Times(0, healthy * MINUTE, 0)}
    standings: list[Standings] = []
    for each in (SHAPES[name] for name in chosen("--shape", shape, SHAPES)):
        cases = [made_case(name, each, its, rate, seed, tokens) for name, its in times.items()]
        standings.append(Standings(_title(each, rate, trace), balancers, cases))
    interrupted = False
    try:
        for table in standings:
            _take_turns(bench, table, seed)
    except KeyboardInterrupt:
        if not standings[0].findings:
            raise
        interrupted = True
        notes.append("Interrupted: what is missing above was not measured to its end.")
    sections = [table.section() for table in standings]
    sections[-1] = replace(sections[-1], notes=[*sections[-1].notes, *notes])
    return Outcome(sections, interrupted, any(table.failures for table in standings))


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

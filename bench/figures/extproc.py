"""What an Envoy that asks slb costs, beside the same Envoy alone: CPU of each, and what is added to a request."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Annotated, NamedTuple

from typer import Option

from bench.command import Bench
from bench.envoys import Processors, start_envoy
from bench.fleet import READY_SECONDS, Fleet
from bench.http import wait_until_served
from bench.measure import CASES, LoadReport, Wrk, counted, pinned_cores
from bench.peers import ENVOY, SLB
from bench.pods import start_upstreams
from bench.ports import free_ports
from bench.processes import BenchError, Running
from bench.procstat import ProcessTree
from bench.table import Figure, Outcome, Section

POLICIES: dict[str, Mapping[str, str]] = {
    "round_robin": {"policy": "round_robin"},
    "least_inflight": {"policy": "least_inflight"},
}
CONNECTIONS = (32, 8, 1)
GOAL_AT = 8  # connections: busy, and not so busy that much is done at once
GOAL_CPU_US, GOAL_ADDED_P50_MS = 400, 1.5
WARMUP_SECONDS = 1


class _Envoy(NamedTuple):
    port: int
    running: Running


class _Turn(NamedTuple):
    """One counted run: the load's report, and microseconds of CPU a request."""

    load: LoadReport
    envoy_us: float
    slb_us: float = 0.0


def extproc(
    bench: Bench,
    rounds: Annotated[int, Option(min=1, help="Times that each has its turn.")] = 3,
    seconds: Annotated[int, Option(min=1, help="Length of one counted run.")] = 4,
) -> Outcome:
    """What Envoy's asking slb costs a small request, beside Envoy alone."""
    core, load_core = pinned_cores()
    pods, home = free_ports(2), bench.home / "pods"
    home.mkdir()
    start_upstreams(bench.processes, home, load_core, pods)
    site, running = ENVOY.start(bench.processes, bench.home / "alone", pods, core)
    wait_until_served([site.port], "/", running, READY_SECONDS)
    alone = _Envoy(site.port, running)
    sections = []
    for name, settings in POLICIES.items():
        folder = bench.home / name
        folder.mkdir()
        fleet = Fleet(bench.processes, folder)
        fleet.write_route("/", pods, settings)
        processors = Processors(fleet, 1, pods, core)
        asking = _Envoy(*start_envoy(bench.processes, folder / "envoy", pods, processors.ports, core))
        (slb,) = processors.running
        for connections in CONNECTIONS:
            bench.to(f"{name}, {connections} connections")
            wrk = Wrk(load_core, connections)
            turns = [
                (_turn(wrk, alone, seconds), _turn(wrk, asking, seconds, ProcessTree(slb.pid, SLB.not_counted)))
                for _ in range(rounds)
            ]
            sections.append(_section(name, connections, turns))
        for each in (asking.running, slb):
            bench.processes.stop(each)
    return Outcome(sections)


def _turn(wrk: Wrk, envoy: _Envoy, seconds: int, *slb: ProcessTree) -> _Turn:
    """Raises BenchError where a request failed."""
    trees = (ProcessTree(envoy.running.pid), *slb)

    def load(length: int) -> LoadReport:
        return wrk.run(CASES[0], envoy.port, length, envoy.running.home)

    report, used = counted(load, WARMUP_SECONDS, seconds, envoy.running, *trees)
    if report.errors:
        raise BenchError(f"requests failed: {report.errors}")
    return _Turn(report, *(each * 1e6 / report.requests for each in used))


def _section(name: str, connections: int, turns: Sequence[tuple[_Turn, _Turn]]) -> Section:
    """With many connections in a closed loop p50 is their number divided by the rate, whatever a request waits for:
    so what is added to it has its goal where nothing queues."""
    added = median((asking.load.p50_us - alone.load.p50_us) / 1000 for alone, asking in turns)
    figures = [
        Figure("CPU a request, slb", median(each.slb_us for _, each in turns), "µs", at_most=_goal(connections)),
        Figure("CPU a request, Envoy that asks", median(each.envoy_us for _, each in turns), "µs"),
        Figure("CPU a request, Envoy alone", median(each.envoy_us for each, _ in turns), "µs"),
        Figure("added to p50", added, "ms", at_most=GOAL_ADDED_P50_MS if connections == 1 else None),
    ]
    return Section(f"{name}, {connections} connections, small GET; median of {len(turns)} rounds", figures)


def _goal(connections: int) -> float | None:
    return GOAL_CPU_US if connections == GOAL_AT else None

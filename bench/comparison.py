"""`python -m bench` without a subcommand: slb and its peers in turn, and a table for each case."""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench.cases import CASES
from bench.errors import BenchError
from bench.machine import python
from bench.outcome import ALL, INTERRUPTED, Check, Json, check_folder, chosen, end, plain_console, refuse
from bench.peers import PEERS, find_program
from bench.processes import ENDING
from bench.run import Choice, Run
from bench.table import case_table, disturbance, goal_lines, notes


def compare(
    context: typer.Context,
    json: Json = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often each proxy has its turn.")] = 3,
    seconds: Annotated[int, typer.Option(min=1, help="Length of one counted run.")] = 5,
    warmup: Annotated[int, typer.Option(min=1, help="Seconds of load before it, not counted.")] = 1,
    connections: Annotated[int, typer.Option(min=1, help="Connections wrk keeps alive.")] = 64,
    only: Annotated[str, typer.Option(help=f"Of {','.join(peer.name for peer in PEERS)}.")] = ALL,
    cases: Annotated[str, typer.Option(help=f"Of {','.join(case.name for case in CASES)}.")] = ALL,
    proxy_core: Annotated[int | None, typer.Option(help="Core of the proxy; default the last one.")] = None,
    load_core: Annotated[int | None, typer.Option(help="Core of wrk and upstreams; default the first.")] = None,
    check: Check = False,
) -> None:
    """Measure slb and its peers in turn under the same load; with a COMMAND, a figure of slb alone.

    docs/benchmarks.md explains the columns.
    """
    if context.invoked_subcommand is not None:
        return
    cores = _cores(proxy_core, load_core)
    peers = chosen("--only", only, [peer.name for peer in PEERS])
    shapes = chosen("--cases", cases, [case.name for case in CASES])
    choice = Choice(
        peers=tuple(peer for peer in PEERS if peer.name in peers),
        cases=tuple(case for case in CASES if case.name in shapes),
        rounds=rounds,
        seconds=seconds,
        warmup_seconds=warmup,
        connections=connections,
        proxy_core=cores[0],
        load_core=cores[1],
    )
    check_folder("--json", json and json.parent)
    wrk = find_program("wrk")
    if wrk is None:
        refuse("wrk is not installed, and all the load comes from it: apt-get install wrk")
    raise typer.Exit(_report(Run(choice, wrk), json, check))


def _report(run: Run, json: Path | None, check: bool) -> int:
    """Run it all; show and keep what was measured, also when it was cut short. Returns the exit code."""
    for number in ENDING:
        signal.signal(number, end)
    console = plain_console()
    code = 0
    try:
        run.execute(Console(stderr=True))
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BenchError as error:
        refuse(str(error))
    names = [peer.name for peer in run.choice.peers]
    for case in run.choice.cases:
        console.print(case_table(case, run.samples, names))
        for note in notes(case, run.samples, run.missing, names):
            console.print(note, style="red", markup=False, highlight=False)
    console.print(
        f"slb ran under {python()} (why it matters: docs/benchmarks.md)", markup=False, highlight=False, style="dim"
    )
    if warning := disturbance(run.samples):
        console.print(warning, style="yellow")
    for line, met in goal_lines(run.samples):
        console.print(line, style="green" if met else "red")
        code = code or int(check and not met)
    if json is not None:
        json.write_bytes(run.as_json())
    if code == INTERRUPTED:
        print("interrupted: the figures are of the rounds until then", file=sys.stderr)
    return code or int(any(sample.failure for sample in run.samples))


def _cores(proxy: int | None, load: int | None) -> tuple[int, int]:
    if not hasattr(os, "sched_getaffinity"):
        refuse("the bench needs Linux: it pins processes to cores and reads their CPU time from /proc")
    allowed = sorted(os.sched_getaffinity(0))
    proxy = allowed[-1] if proxy is None else proxy
    load = allowed[0] if load is None else load
    if proxy == load or not {proxy, load} <= set(allowed):
        refuse(f"the proxy and the load need a core each, out of {allowed}; got {proxy} and {load}")
    return proxy, load

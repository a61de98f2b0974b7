"""`python -m bench quota-rate`: decisions a second, coalesced and one by one, in turn on the same core."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

from typer import Option

from bench.command import Bench
from bench.errors import BenchError
from bench.http import ask, free_ports, send_json
from bench.load import Case, Wrk
from bench.peers import SLB
from bench.processes import Processes, Running, wait_until
from bench.procstat import ProcessTree
from bench.redis import PrivateRedis
from bench.table import Figure, Outcome, Section

GOAL = 3.0
MODELS = 10
LIMITS = {
    "all are admitted": {
        "max_tokens_per_minute": 1_000_000_000,
        "max_concurrent_requests": 1_000_000,
        "burst": 1_000_000_000,
    },
    "nearly all have to wait": {"max_tokens_per_minute": 60_000, "max_concurrent_requests": 10},
}
WARMUP_SECONDS = 1
READY_SECONDS = 30.0
CASE = Case("schedule", "POST /schedule", "/schedule")
ROUTER = replace(
    SLB,
    arguments=("serve", "--roles", "quota", "--api", "127.0.0.1:@port@", "--access-log", "errors"),
    announce=lambda site: ask(site.port, "/models")[0] == 200,
)
"""`slb serve` as it is, with nothing but the quota router on."""


class Turn(NamedTuple):
    """Decisions a second; CPU time of the router and of Redis for each, microseconds."""

    rate: float
    cpu_us: float
    redis_us: float


Start = Callable[[Processes, Path, str, int], tuple[Running, int]]
"""A router in a folder that is to be made, on the Redis of a URL, pinned to a core; and its port. It is ready."""


def start_slb(processes: Processes, home: Path, url: str, core: int) -> tuple[Running, int]:
    peer = replace(ROUTER, arguments=(*ROUTER.arguments, "--redis", url))
    started = peer.start(processes, home, (0,), core)
    started.wait_until_ready()
    return started.running, started.site.port


def start_plain(processes: Processes, home: Path, url: str, core: int) -> tuple[Running, int]:
    """The yardstick: a command for each decision."""
    (port,) = free_ports(1)
    running = processes.start_module(home, "bench.quota.plain", url, port, core=core)
    wait_until(lambda: ask(port, "/ready")[0] == 200, running, READY_SECONDS, "becoming ready")
    return running, port


def quota_rate(
    bench: Bench,
    rounds: Annotated[int, Option(min=1, help="Times that both have their turn.")] = 3,
    seconds: Annotated[int, Option(min=1, help="Length of one turn.")] = 4,
    connections: Annotated[int, Option(min=1, help="Callers that ask at the same time.")] = 256,
) -> Outcome:
    """Decisions a second of one router on one core, beside one that sends Redis a command for each. The load and
    Redis have the first core, the router in its turn the last."""
    load_core, *_, router_core = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {load_core})
    wrk = Wrk(load_core, connections)
    sections = []
    for number, (name, limits) in enumerate(LIMITS.items()):
        turns: dict[Start, list[Turn]] = {start_slb: [], start_plain: []}
        for turn in range(rounds):
            for start, taken in turns.items():
                bench.to(f"{name}: {start.__name__.removeprefix('start_')}, round {turn + 1}")
                home = bench.home / f"turn-{number}-{turn}-{start.__name__}"
                taken.append(_turn(home, start, router_core, limits, wrk, seconds))
        title = f"{name}: {connections} callers, {MODELS} models, one core; best of {rounds} rounds"
        sections.append(_section(title, max(turns[start_slb]), max(turns[start_plain])))
    return Outcome(sections)


def _turn(home: Path, start: Start, core: int, limits: dict[str, int], wrk: Wrk, seconds: int) -> Turn:
    """With a fresh Redis, so that none finds what another left."""
    home.mkdir()
    with Processes() as processes:
        redis = PrivateRedis(processes, home / "redis")
        redis.start()
        setter, port = start_slb(processes, home / "setter", redis.url, core)
        for number in range(MODELS):
            send_json("PUT", port, f"/models/model-{number}", limits)
        processes.stop(setter)
        running, port = start(processes, home / "router", redis.url, core)
        wrk.run(CASE, port, WARMUP_SECONDS, home)
        trees = ProcessTree(running.pid), ProcessTree(redis.pid)
        before = [tree.cpu_seconds() for tree in trees]
        report = wrk.run(CASE, port, seconds, home)
        used = [tree.cpu_seconds() - had for tree, had in zip(trees, before, strict=True)]
        running.check_alive()
        if report.errors or not report.requests:
            raise BenchError(f"{start.__name__}: {report.requests} decisions, errors: {report.errors}")
        return Turn(report.requests / report.seconds, *(each / report.requests * 1e6 for each in used))


def _section(title: str, slb: Turn, other: Turn) -> Section:
    """Of the best rounds: whatever else the machine does can only slow a round down."""
    figures = [
        Figure("slb, coalesced", slb.rate, "decisions/s"),
        Figure("one command for each", other.rate, "decisions/s"),
        Figure("their ratio", slb.rate / other.rate, at_least=GOAL),
        Figure("CPU of slb", slb.cpu_us, "µs a decision"),
        Figure("CPU of the other router", other.cpu_us, "µs a decision"),
        Figure("CPU of Redis, with slb", slb.redis_us, "µs a decision"),
        Figure("CPU of Redis, with the other", other.redis_us, "µs a decision"),
    ]
    return Section(title, figures)

"""Many routes of many upstreams: the first sync, memory, lookups, and how long a resync holds the event loop."""

import time
from collections.abc import Sequence
from statistics import median
from typing import Annotated, Any

import orjson
from typer import Option

from bench.command import Bench
from bench.errors import BenchError
from bench.figures.large_table import LargeTable, set_of
from bench.fleet import Fleet, Instance
from bench.http import ask
from bench.processes import LOG, wait_until
from bench.procstat import MIB, memory_mib
from bench.progress import Steps
from bench.table import Figure, Outcome, Section

GOAL_FIRST_SYNC_SECONDS = 3.0
GOAL_RESIDENT_MB = 150.0
GOAL_LOOKUP_US = 3.0
GOAL_HELD_MS = 5.0
SYNC_SECONDS = 120.0
FOLLOWER_SECONDS = 300.0
LOOK_EVERY_SECONDS = 0.05
MB = 1_000_000
NO_ROUTE = 404
CLOSED = "127.0.0.1:1"
"""An upstream that refuses connections."""

FOLLOWER = "bench.figures.follower"
STEPS = 3
"""Of the bar, besides one a route."""

Stretches = Sequence[dict[str, float]]
"""Milliseconds for which the loop was held at the longest, one entry a stretch of time: `wall` and `cpu`."""


def routes(
    bench: Bench,
    count: Annotated[int, Option("--routes", min=100, help="Routes in Redis.")] = 10_000,
    upstreams: Annotated[int, Option(min=1, help="Of each route; no two have one in common.")] = 10,
    resyncs: Annotated[int, Option(min=1, help="Of each kind.")] = 5,
) -> Outcome:
    """A large table: the first sync, memory, lookups, and how long a resync holds the event loop."""
    bench.steps.expect(count + STEPS)
    fleet, table = bench.fleet(), LargeTable(count, upstreams)
    bench.steps.to("writing routes into Redis")
    table.write(fleet.redis.client, bench.steps.done)
    outside = _instance(fleet, bench.steps, resyncs)
    bench.steps.to("resyncs, seen from inside")
    running = fleet.start_module(FOLLOWER, fleet.redis.url, count, upstreams, resyncs)
    if code := running.process.wait(FOLLOWER_SECONDS):
        raise BenchError(f"{FOLLOWER} ended with {code}: {running.tail()}")
    inside = orjson.loads((running.home / LOG).read_bytes().splitlines()[-1])
    bench.steps.done()
    sections = [size_section(table, outside, inside), held_section(inside)]
    return Outcome(sections, {"instance": outside, "follower": inside})


def _instance(fleet: Fleet, steps: Steps, resyncs: int) -> dict[str, float]:
    """One `slb serve`: seconds until it is ready, and MB resident after several resyncs."""
    steps.to("starting one instance")
    started = time.monotonic()
    instance = fleet.start_instance()
    instance.wait_until_ready()
    ready = time.monotonic()
    steps.done()
    steps.to("resyncs of the instance")
    for number in range(resyncs):
        _resync(fleet, instance, number)
    steps.done()
    resident, peak = (mib * MIB / MB for mib in memory_mib(instance.running.pid))
    fleet.stop_instance(instance)
    return {"start_seconds": ready - started, "resident_mb": resident, "peak_mb": peak}


def _resync(fleet: Fleet, instance: Instance, number: int) -> None:
    """Cut the instance's subscription, and add a route that it can now only find by reading everything again."""
    path = f"/resync/{number}"
    fleet.redis.client.client_kill_filter(_type="pubsub")
    fleet.redis.client.sadd(set_of(path), CLOSED)
    wait_until(
        lambda: ask(instance.port, path)[0] not in (0, NO_ROUTE),
        instance.running,
        SYNC_SECONDS,
        "a resync",
        LOOK_EVERY_SECONDS,
    )


def size_section(table: LargeTable, outside: dict[str, float], inside: dict[str, Any]) -> Section:
    """What grows with the table."""
    first_held = inside["first_held"]
    return Section(
        f"{table.routes:,} routes of {table.each} upstreams each",
        [
            Figure("first sync, from connecting", inside["first_sync_seconds"], "s", below=GOAL_FIRST_SYNC_SECONDS),
            Figure("slb serve, from its start until it is ready", outside["start_seconds"], "s"),
            Figure("resident memory", outside["resident_mb"], "MB", at_most=GOAL_RESIDENT_MB),
            Figure("resident memory, its peak", outside["peak_mb"], "MB"),
            Figure("one lookup, CPU", inside["lookup_ns"] / 1e3, "µs", below=GOAL_LOOKUP_US),
            Figure("a resync that finds nothing new", inside["resync_seconds"], "s"),
            Figure("the first sync held the event loop at most", first_held["cpu"], "ms of CPU"),
        ],
    )


def held_section(inside: dict[str, Any]) -> Section:
    """How long the event loop was held: what its thread worked at a time, which is what the goal is for, and how
    late its timer was, in which the machine has its part."""
    kinds = {
        "unchanged": "resync, nothing new",
        "changed": "resync, 1 % of routes new",
        "one_registration": "one registration",
        "idle": "idle",
    }
    figures = [figure for kind, words in kinds.items() for figure in held_figures(words, inside[kind], kind)]
    return Section("how long the event loop is held at a time", figures, [NOTE])


NOTE = (
    "CPU: the most that the loop's thread worked between two beats of a 1 ms timer. Late: how late a beat came,\n"
    "median and most over the stretches; where that is no more than when idle, it was the machine that was busy."
)


def held_figures(words: str, stretches: Stretches, kind: str) -> list[Figure]:
    """Of one kind of stretch."""
    goal = GOAL_HELD_MS if kind in ("unchanged", "changed") else None
    wall = [each["wall"] for each in stretches]
    return [
        Figure(f"{words}: CPU, most", max(each["cpu"] for each in stretches), "ms", at_most=goal),
        Figure(f"{words}: late, median", median(wall), "ms"),
        Figure(f"{words}: late, most", max(wall), "ms"),
    ]

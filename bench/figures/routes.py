"""Many routes of many upstreams: the first sync, memory, lookups, and how long a resync holds the event loop."""

import time
from collections.abc import Sequence
from statistics import median
from typing import Annotated, Any

import orjson
from typer import Option

from bench.command import Bench
from bench.errors import BenchError
from bench.figures.large_table import set_of, write_table
from bench.fleet import Fleet, Instance
from bench.http import ask
from bench.processes import LOG, wait_until
from bench.procstat import MIB, memory_mib
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
HELD = {
    "unchanged": ("resync, nothing new", GOAL_HELD_MS),
    "changed": ("resync, 1 % of routes new", GOAL_HELD_MS),
    "one_registration": ("one registration", None),
    "idle": ("idle", None),
}
"""Stretches of time in which the event loop is watched: in words, and for how long it may be held at a time."""

NOTE = (
    "CPU: the most that the loop's thread worked between two beats of a 1 ms timer. Late: how late a beat came,\n"
    "median and most over the stretches; where that is no more than when idle, it was the machine that was busy."
)


def routes(
    bench: Bench,
    count: Annotated[int, Option("--routes", min=100, help="Routes in Redis.")] = 10_000,
    upstreams: Annotated[int, Option(min=1, help="Of each route; no two have one in common.")] = 10,
    resyncs: Annotated[int, Option(min=1, help="Of each kind.")] = 5,
) -> Outcome:
    """A large table: the first sync, memory, lookups, and how long a resync holds the event loop."""
    fleet = bench.fleet()
    bench.to("writing routes into Redis")
    write_table(fleet.redis.client, count, upstreams)
    started, resident, peak = _instance(bench, fleet, resyncs)
    bench.to("resyncs, seen from inside")
    words = (fleet.redis.url, count, resyncs)
    running = bench.processes.start_module(fleet.folder("follower"), FOLLOWER, *words)
    if code := running.process.wait(FOLLOWER_SECONDS):
        raise BenchError(f"{FOLLOWER} ended with {code}: {running.tail()}")
    inside = orjson.loads((running.home / LOG).read_bytes().splitlines()[-1])
    size = [
        Figure("first sync, from connecting", inside["first_sync_seconds"], "s", below=GOAL_FIRST_SYNC_SECONDS),
        Figure("slb serve, from its start until it is ready", started, "s"),
        Figure("resident memory", resident, "MB", at_most=GOAL_RESIDENT_MB),
        Figure("resident memory, its peak", peak, "MB"),
        Figure("one lookup, CPU", inside["lookup_ns"] / 1e3, "µs", below=GOAL_LOOKUP_US),
        Figure("a resync that finds nothing new", inside["resync_seconds"], "s"),
        Figure("the first sync held the event loop at most", inside["first_held"]["cpu"], "ms of CPU"),
    ]
    held = [figure for kind, (words, goal) in HELD.items() for figure in held_figures(words, inside[kind], goal)]
    title = f"{count:,} routes of {upstreams} upstreams each"
    return Outcome([Section(title, size), Section("how long the event loop is held at a time", held, [NOTE])])


def _instance(bench: Bench, fleet: Fleet, resyncs: int) -> tuple[float, float, float]:
    """One `slb serve`: seconds until it is ready, and MB resident after several resyncs, and their peak."""
    bench.to("starting one instance")
    began = time.monotonic()
    (instance,) = fleet.start_instances(1)
    started = time.monotonic() - began
    bench.to("resyncs of the instance")
    for number in range(resyncs):
        _resync(fleet, instance, number)
    resident, peak = (mib * MIB / MB for mib in memory_mib(instance.running.pid))
    fleet.stop_instance(instance)
    return started, resident, peak


def _resync(fleet: Fleet, instance: Instance, number: int) -> None:
    """Cut the instance's subscription, and add a route that it can now only find by reading everything again."""
    path = f"/resync/{number}"
    fleet.redis.client.client_kill_filter(_type="pubsub")
    fleet.redis.client.sadd(set_of(path), CLOSED)

    def serves() -> bool:
        return ask(instance.port, path)[0] not in (0, NO_ROUTE)

    wait_until(serves, instance.running, SYNC_SECONDS, "a resync", LOOK_EVERY_SECONDS)


def held_figures(words: str, stretches: Sequence[dict[str, Any]], goal: float | None) -> list[Figure]:
    """Of one kind of stretch. `stretches`: of each, for how many ms the loop was held at the longest."""
    wall = [each["wall"] for each in stretches]
    return [
        Figure(f"{words}: CPU, most", max(each["cpu"] for each in stretches), "ms", at_most=goal),
        Figure(f"{words}: late, median", median(wall), "ms"),
        Figure(f"{words}: late, most", max(wall), "ms"),
    ]

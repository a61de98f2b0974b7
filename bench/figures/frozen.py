"""One of six upstreams with caches stops dead for a while: what do requests notice that begin meanwhile?"""

import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Annotated

from typer import Option

from bench.command import Bench
from bench.fleet import Instance, member
from bench.http import free_ports
from bench.lab.model import ZipfKeys
from bench.pods import HIT, start_pods
from bench.processes import Running
from bench.sending import Plan, Result, Sending, begin_in
from bench.table import Figure, Outcome, Section, percentile
from bench.traffic import get
from slb.balance.ring import Ring
from slb.balance.upstream import LiveUpstream
from slb.model import Upstream

ROUTE = "/products"
UPSTREAMS = 6
KEYS = 3000
CAPACITY = 350
"""Of each cache: less than its part of the keys, so that there are misses all the time."""

EXPONENT = 1.0
SIGNALS = ("effective", "inflight", "off")
MEASURED = "effective"
"""The load signal with a goal; the others are there to be compared with."""

PATIENCE_SECONDS = 30.0
SETTLE_SECONDS = 3.0
"""Of load before the requests that are counted."""

QUIET_SECONDS = 5.0
"""What is counted before the freeze, and after it."""

SLOW_SECONDS = 1.0
GOAL_SLOW_PERCENT = 2.0


@dataclass(frozen=True)
class Freeze:
    """From when to when (`time.monotonic`), the port of the upstream, and the seconds that were asked for."""

    begun: float
    ended: float
    port: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Fetched:
    """One request: when it was due and ended (`time.monotonic`), the status (0 or below: none), and of the reply
    whether it came from a cache, and the upstream's port."""

    due: float
    ended: float
    status: int
    hit: bool
    upstream: int

    def is_slow(self) -> bool:
        return self.ended - self.due > SLOW_SECONDS


def fetched(plan: Plan, result: Result) -> list[Fetched]:
    found = []
    for number, arrival in enumerate(plan.arrivals):
        port, _, cache = result.upstreams[number].partition(" ")
        due = plan.begin + arrival
        ended = due + result.latencies[number]
        found.append(Fetched(due, ended, result.statuses[number], cache == HIT, int(port or 0)))
    return found


def section(name: str, all_fetched: Sequence[Fetched], freeze: Freeze) -> Section:
    """What one signal made of it; the goals are those of the effective load. A request belongs to the stretch in
    which it was due, and its latency counts from then."""

    def due(begin: float, end: float) -> list[Fetched]:
        return [each for each in all_fetched if begin <= each.due < end]

    def percent(of: Sequence[Fetched], condition: Callable[[Fetched], bool]) -> float:
        return 100 * sum(map(condition, of)) / len(of) if of else math.nan

    def latency_ms(of: Sequence[Fetched], share: float) -> float:
        return percentile([each.ended - each.due for each in of], share) * 1e3

    before, during = due(freeze.begun - QUIET_SECONDS, freeze.begun), due(freeze.begun, freeze.ended)
    after = due(freeze.ended, freeze.ended + QUIET_SECONDS)
    caught = sum(each.due < freeze.begun and each.ended >= freeze.ended for each in all_fetched)
    slow_goal, failed_goal = (GOAL_SLOW_PERCENT, 0) if name == MEASURED else (None, None)
    figures = [
        Figure(
            "of all requests, at the one to be frozen before",
            percent(before, lambda each: each.upstream == freeze.port),
            "%",
        ),
        Figure("begun during the freeze", len(during)),
        Figure(f"slower than {SLOW_SECONDS:g} s", percent(during, Fetched.is_slow), "%", at_most=slow_goal),
        Figure("failed", sum(each.status != 200 for each in during), at_most=failed_goal),
        Figure("latency, p50", latency_ms(during, 0.5), "ms"),
        Figure("latency, p99", latency_ms(during, 0.99), "ms"),
        Figure("begun before it and held up by it", caught),
        Figure("from a cache, before", percent(before, lambda each: each.hit), "%"),
        Figure("from a cache, during", percent(during, lambda each: each.hit), "%"),
        Figure("from a cache, after", percent(after, lambda each: each.hit), "%"),
        Figure("latency before, p99", latency_ms(before, 0.99), "ms"),
        Figure("latency after, p99", latency_ms(after, 0.99), "ms"),
    ]
    return Section(f"load_signal = {name}: one upstream frozen for {freeze.seconds:g} s", figures)


def busiest(ports: Sequence[int], zipf: ZipfKeys) -> int:
    """The port whose keys are requested most."""
    load = dict.fromkeys(ports, 0.0)
    ring = Ring.of(LiveUpstream(Upstream.of(member(port))) for port in ports)
    for rank, key in enumerate(zipf.keys, start=1):
        load[ring.pick(key).spec.port] += zipf.share(rank)
    return max(ports, key=load.__getitem__)


def stopped(running: Running, seconds: float) -> tuple[float, float]:
    """Stop a process for so long: when it no longer ran, and when it was continued (`time.monotonic`)."""
    os.kill(running.pid, signal.SIGSTOP)
    begun = time.monotonic()
    try:
        sleep_until(begun + seconds)
    finally:
        ended = time.monotonic()
        os.kill(running.pid, signal.SIGCONT)
    return begun, ended


def sleep_until(when: float) -> None:
    time.sleep(max(0.0, when - time.monotonic()))


def frozen(
    bench: Bench,
    rate: Annotated[int, Option(min=1, help="Requests per second, whatever the replies.")] = 500,
    seconds: Annotated[float, Option(min=0.1, help="That the upstream is stopped for.")] = 3.0,
    seed: Annotated[int, Option(help="Of which keys are requested, and when.")] = 1,
) -> Outcome:
    """One of six upstreams with caches frozen under load, with each load signal of the ring."""
    bench.steps.expect(len(SIGNALS))
    fleet = bench.fleet()
    ports, rng = free_ports(UPSTREAMS), Random(seed)
    zipf = ZipfKeys(KEYS, EXPONENT, rng)
    count = int((SETTLE_SECONDS + QUIET_SECONDS + seconds + QUIET_SECONDS) * rate)
    paths = [zipf.draw().decode() for _ in range(count)]
    all_paths = rng.sample([key.decode() for key in zipf.keys], KEYS)
    arrivals = list(accumulate(rng.expovariate(rate) for _ in range(count)))
    target = busiest(ports, zipf)

    def sending(instance: Instance, arrivals: Sequence[float], paths: Sequence[str]) -> tuple[Plan, Sending]:
        requests = [get(path).decode() for path in paths]
        plan = Plan(begin_in(), [instance.port], arrivals, requests, [0] * len(paths), PATIENCE_SECONDS)
        return plan, Sending(bench.processes, fleet.folder("sending"), plan)

    def case(name: str) -> Section:
        """The same upstreams on the same ports, with empty caches each time; an instance of its own."""
        bench.steps.to(f"{name}: starting")
        upstreams = {
            port: start_pods(bench.processes, fleet.folder("caching"), "caching", [port], capacity=CAPACITY)
            for port in ports
        }
        fleet.write_route(ROUTE, ports, {"policy": "consistent_hash", "hash_key": "path", "load_signal": name})
        (instance,) = fleet.start_instances(1)
        bench.steps.to(f"{name}: filling the caches")
        sending(instance, [number / rate for number in range(KEYS)], all_paths)[1].result()
        bench.steps.to(f"{name}: under load")
        plan, load = sending(instance, arrivals, paths)
        sleep_until(plan.begin + SETTLE_SECONDS + QUIET_SECONDS)
        begun, ended = stopped(upstreams[target], seconds)
        found = fetched(plan, load.result())
        fleet.stop_instance(instance)
        for running in upstreams.values():
            bench.processes.stop(running)
        bench.steps.done()
        return section(name, found, Freeze(begun, ended, target, seconds))

    return Outcome([case(name) for name in SIGNALS])

"""One of six upstreams with caches stops dead for a while: what do those notice whose requests begin meanwhile?"""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import accumulate
from random import Random
from typing import Any

import orjson

from bench.errors import BenchError
from bench.figures.figure import Outcome
from bench.figures.fleet import Fleet, Instance
from bench.figures.frozen_case import QUIET_SECONDS, Case, Freeze, section
from bench.figures.open_loop import Fetched
from bench.figures.open_loop import Plan as Sending
from bench.http import ask, free_ports
from bench.lab.keys import ZipfKeys
from bench.processes import Running, wait_until
from bench.progress import Steps
from slb.balance.ring import Ring
from slb.balance.upstream import LiveUpstream
from slb.control import keys as stored
from slb.model import Upstream

ROUTE = "/products"
UPSTREAMS = 6
KEYS = 3000
CAPACITY = 350
"""Of each cache: less than its part of the keys, so that there are misses all the time."""

EXPONENT = 1.0
SIGNALS = ("effective", "inflight", "off")
PATIENCE_SECONDS = 30.0
START_SECONDS = 2.0
"""For the process of the load to be there."""

SETTLE_SECONDS = 3.0
"""Of load before what is looked at."""

READY_SECONDS = 15.0


@dataclass(frozen=True)
class Plan:
    """What the user asked for: requests a second, seconds of standing still, and the seed of keys and times."""

    rate: int = 500
    seconds: float = 3.0
    seed: int = 1

    @property
    def whole(self) -> float:
        """Seconds of load of one case."""
        return SETTLE_SECONDS + QUIET_SECONDS + self.seconds + QUIET_SECONDS


class Load:
    """A process that sends what it was told to."""

    def __init__(self, fleet: Fleet, sending: Sending) -> None:
        self.begin = sending.begin
        self._seconds = sending.arrivals[-1] + sending.patience
        folder = fleet.folder("sending")
        plan, self._result = folder / "plan.json", folder / "result.json"
        plan.write_bytes(orjson.dumps(asdict(sending)))
        self._running = fleet.start_module("bench.figures.open_loop", plan, self._result)

    def fetched(self) -> list[Fetched]:
        """All of it, once all have ended. Raises BenchError where the process fails."""
        if self._running.process.wait(START_SECONDS + self._seconds + READY_SECONDS):
            raise BenchError(f"the load failed: {self._running.tail()}")
        return [Fetched(**each) for each in orjson.loads(self._result.read_bytes())]


class Freezes:
    """The same upstreams on the same ports, with empty caches each time; an instance of slb for each signal."""

    def __init__(self, fleet: Fleet, steps: Steps, plan: Plan) -> None:
        self._fleet = fleet
        self._steps = steps
        self._plan = plan
        self._ports = free_ports(UPSTREAMS)
        rng = Random(plan.seed)
        zipf = ZipfKeys(KEYS, EXPONENT, rng)
        requests = int(plan.whole * plan.rate)
        self._asked = [zipf.draw().decode() for _ in range(requests)]
        self._all = rng.sample([key.decode() for key in zipf.keys], KEYS)
        self._arrivals = list(accumulate(rng.expovariate(plan.rate) for _ in range(requests)))
        self._frozen = self._ports.index(busiest(self._ports, zipf))

    def case(self, name: str) -> Case:
        """Warm all up, freeze the busiest under load, and let it go on."""
        self._steps.to(f"{name}: starting")
        with self._upstreams() as upstreams, self._instance(name) as instance:
            self._steps.to(f"{name}: filling the caches")
            evenly = [number / self._plan.rate for number in range(KEYS)]
            self._load(instance, evenly, self._all).fetched()
            self._steps.to(f"{name}: under load")
            load = self._load(instance, self._arrivals, self._asked)
            sleep_until(load.begin + SETTLE_SECONDS + QUIET_SECONDS)
            begun, ended = stopped(upstreams[self._frozen], self._plan.seconds)
            case = Case.of(name, load.fetched(), Freeze(begun, ended, self._ports[self._frozen]))
        self._steps.done()
        return case

    @contextmanager
    def _upstreams(self) -> Iterator[list[Running]]:
        """With empty caches."""
        started = [self._fleet.start_module("bench.figures.caches", port, CAPACITY) for port in self._ports]
        for running, port in zip(started, self._ports, strict=True):
            wait_until(lambda port=port: ask(port, "/")[0] == 200, running, READY_SECONDS, "starting an upstream")  # type: ignore[misc]
        yield started
        for running in started:
            self._fleet.stop(running)

    @contextmanager
    def _instance(self, signal: str) -> Iterator[Instance]:
        """Which finds the route with this load signal in Redis."""
        settings: dict[Any, Any] = {"policy": "consistent_hash", "hash_key": "path", "load_signal": signal}
        redis = self._fleet.redis.client
        redis.hset(stored.settings_key(ROUTE), mapping=settings)
        redis.sadd(stored.route_key(ROUTE), *map(member, self._ports))
        instance = self._fleet.start_instance()
        instance.wait_until_ready()
        yield instance
        self._fleet.stop_instance(instance)

    def _load(self, instance: Instance, arrivals: Sequence[float], paths: Sequence[str]) -> Load:
        begin = time.monotonic() + START_SECONDS
        return Load(self._fleet, Sending(instance.port, begin, arrivals, paths, PATIENCE_SECONDS))


def member(port: int) -> str:
    return f"127.0.0.1:{port}"


def busiest(ports: Sequence[int], zipf: ZipfKeys) -> int:
    """The port whose keys are asked for most."""
    load = dict.fromkeys(ports, 0.0)
    ring = Ring.of(LiveUpstream(Upstream.of(member(port))) for port in ports)
    for rank, key in enumerate(zipf.keys, start=1):
        load[ring.pick(key).spec.port] += zipf.share(rank)
    return max(ports, key=load.__getitem__)


def stopped(running: Running, seconds: float) -> tuple[float, float]:
    """Stop a process for so long: when it no longer ran, and when it was told to go on (`time.monotonic`)."""
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


def measure(fleet: Fleet, steps: Steps, plan: Plan) -> Outcome:
    """Each of the signals in turn."""
    freezes = Freezes(fleet, steps, plan)
    cases = [freezes.case(name) for name in SIGNALS]
    return Outcome([section(case, plan.seconds) for case in cases], {"cases": [asdict(case) for case in cases]})

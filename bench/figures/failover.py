"""A master of Redis is killed or frozen under traffic, and another takes its place: how long until registrations
are taken and slots counted by all again, and what fails meanwhile. Beside it a plain Redis, started again."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from typing import Annotated, Protocol

from redis.exceptions import RedisError
from typer import Option

from bench.command import Bench, chosen, refuse
from bench.fleet import Fleet, Instance, queued
from bench.http import send_json
from bench.ports import free_port
from bench.processes import BenchError, Processes
from bench.table import Figure, Outcome, Section, short
from bench.traffic import Clients, Loop, Tally, Traffic
from slb.control import keys
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_nodes import RedisNode
from tests.support.redis_server import BINARY
from tests.support.redis_trio import Trio

INSTANCES, UPSTREAMS, CAP, CLIENTS = 2, 4, 5, 40
SERVICE_SECONDS = 0.1
DOWN_AFTER_SECONDS, NODE_TIMEOUT_SECONDS = 1.0, 2.0
QUIET_SECONDS = 3.0  # before each turn: counts are shared, and all is as it was
STAYS_SECONDS = 1.0  # so long counts have to stay shared before they are taken to be so
WAIT_SECONDS, LOOK_EVERY_SECONDS = 30.0, 0.02
WRITERS, STAGGER_SECONDS = 10, 0.2
"""A call that meets a frozen server is answered after 2 s: so several clients write, one after the other."""
PLAIN, CAPPED = "/plain", "/p"
PROBE = f"bench:{{{CAPPED}}}"  # in a cluster where the counts are
SECONDS_COLUMNS = ("Redis", "done", "times", "master s", "max", "writes s", "max", "counts s", "max")
REQUESTS_COLUMNS = ("Redis", "done", "without a cap", "failed", "max ms", "under a cap", "failed")


class Redises(Protocol):
    """One server or several, as `tests/support` has them."""

    @property
    def url(self) -> str: ...

    nodes: list[RedisNode]

    def primary_of(self, key: str) -> RedisNode: ...

    def mend(self) -> None: ...

    def close(self) -> None: ...


class Single:
    """One server with an append-only file."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="slb-single-"))
        self.nodes = [RedisNode(self._folder, free_port(), "--appendonly", "yes", "--save", "")]
        self.url = f"redis://{self.nodes[0].address}/0"

    def primary_of(self, key: str) -> RedisNode:
        return self.nodes[0]

    def mend(self) -> None:
        self.nodes[0].mend()

    def close(self) -> None:
        self.nodes[0].close()
        shutil.rmtree(self._folder, ignore_errors=True)


@dataclass(frozen=True)
class Kind:
    """`hows`: what is done to a master. `goal`: seconds until writes are taken again, at most."""

    label: str
    make: Callable[[], Redises]
    hows: Sequence[str]
    goal: float | None = None


KINDS = {
    "plain": Kind("one, started again", Single, ("kill",)),
    "sentinel": Kind("Sentinel, 1 + 2", lambda: Trio(down_after=DOWN_AFTER_SECONDS), ("kill", "freeze"), 4.0),
    "cluster": Kind(
        "Cluster, 3 + 3", lambda: RedisCluster(node_timeout=NODE_TIMEOUT_SECONDS), ("kill", "freeze"), 3.0
    ),
}


@dataclass
class Turns:
    """What one thing came to that was done to one kind, several times. Seconds from then: until a server took
    writes again, which is Redis's own part; until all instances took a registration again; until all shared counts
    again (0: they never ceased to). `not_capped`: requests of a route without a cap; `answered`, `failed`: those of
    the one with a cap."""

    kind: Kind
    how: str
    master: list[float] = field(default_factory=list)
    writes: list[float] = field(default_factory=list)
    shared: list[float] = field(default_factory=list)
    not_capped: Tally = field(default_factory=lambda: Tally.of([]))
    answered: int = 0
    failed: int = 0

    @property
    def name(self) -> list[str]:
        return [self.kind.label, self.how]

    def seconds(self) -> list[str]:
        """A row of SECONDS_COLUMNS."""
        found = [short(each) for of in (self.master, self.writes, self.shared) for each in (median(of), max(of))]
        return [*self.name, str(len(self.writes)), *found]

    def requests(self) -> list[str]:
        """A row of REQUESTS_COLUMNS."""
        free = self.not_capped
        found = (free.requests, free.failed, free.max_ms, self.answered + self.failed, self.failed)
        return [*self.name, *map(short, found)]

    def goals(self) -> list[Figure]:
        name = ", ".join(self.name)
        figures = [
            Figure(f"{name}: requests without a cap that failed", self.not_capped.failed, at_most=0),
            Figure(f"{name}: requests under a cap that failed", self.failed, at_most=0),
        ]
        if self.kind.goal:
            writes = Figure(f"{name}: writes again after, max", max(self.writes), "s", at_most=self.kind.goal)
            figures.insert(0, writes)
        return figures


class Failovers:
    """One fleet on one kind of Redis."""

    def __init__(self, bench: Bench, kind: Kind, redis: Redises, processes: Processes, home: Path) -> None:
        self._to, self._kind, self._redis = bench.to, kind, redis
        self._fleet = fleet = Fleet(processes, home, url=redis.url)
        self._numbers = count(1)
        self._written = _beside(redis, keys.pool_keys(CAPPED)[0])
        free = fleet.start_upstreams()
        self._pods = fleet.start_pods("noting", UPSTREAMS, service=SERVICE_SECONDS, spread=0.5, seed=1)
        self.instances = fleet.start_instances(INSTANCES)
        first = self.instances[0]
        for target in free:
            first.register(PLAIN, target)
        send_json("PUT", first.api_port, f"/routes{CAPPED}", queued(CAP, "30s", limit=1000))
        for port in self._pods:
            first.register(CAPPED, f"127.0.0.1:{port}")
        fleet.wait_until_shown(CAPPED, self._pods, first.running)

    def turns(self, how: str, times: int, rate: float) -> Turns:
        """Do it so often, under traffic all the while."""
        turns, ports = Turns(self._kind, how), [each.port for each in self.instances]
        with Loop() as loop, Traffic(ports, PLAIN, rate) as traffic:
            clients = Clients(ports, CAPPED, CLIENTS, Random(1))
            loop.run(clients.start())
            for number in range(times):
                self._to(f"{self._kind.label}: {how} {number + 1}")
                time.sleep(QUIET_SECONDS)
                self._one(turns)
            loop.run(clients.stop())
        turns.not_capped = Tally.of(traffic.answers)
        turns.answered, turns.failed = clients.answered, clients.failed.total()
        return turns

    def _one(self, turns: Turns) -> None:
        """The node that has the counts, and the route that is written to."""
        node = self._redis.primary_of(keys.pool_keys(CAPPED)[0])
        began = time.monotonic()
        getattr(node, turns.how)()
        with ThreadPoolExecutor(INSTANCES * WRITERS + 1) as pool:
            master = pool.submit(self._taken_over, node)
            written = [
                [
                    pool.submit(self._written_again, each, began + number * STAGGER_SECONDS)
                    for number in range(WRITERS)
                ]
                for each in self.instances
            ]
            turns.shared.append(self._shared_again(began, master.done))
            turns.master.append(master.result() - began)
            turns.writes.append(max(min(one.result() for one in of) for of in written) - began)
        self._redis.mend()

    def _taken_over(self, node: RedisNode) -> float:
        """When another server took a write that was this one's before; where there is none, this one is started.
        Raises BenchError."""
        others = [each for each in self._redis.nodes if each is not node]
        if not others:
            node.mend()
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            for each in others or [node]:
                with suppress(RedisError, OSError):  # READONLY, MOVED, CLUSTERDOWN
                    each.admin.set(PROBE, 1)
                    return time.monotonic()
            time.sleep(LOOK_EVERY_SECONDS)
        raise BenchError(f"{self._kind.label}: no server took over within {WAIT_SECONDS:.0f} s")

    def _written_again(self, instance: Instance, begin: float) -> float:
        """When this instance has taken a registration, tried again and again from `begin` on. Raises BenchError."""
        time.sleep(max(0.0, begin - time.monotonic()))
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            try:
                instance.register(self._written, f"10.0.0.1:{next(self._numbers)}")
            except (BenchError, OSError, HTTPException):  # 503 redis_down, or no answer
                time.sleep(LOOK_EVERY_SECONDS)
            else:
                return time.monotonic()
        raise BenchError(f"{self._kind.label}: no registration was taken for {WAIT_SECONDS:.0f} s")

    def _shared_again(self, began: float, has_taken_over: Callable[[], bool]) -> float:
        """Seconds from `began` until the counts of all instances were shared, and stayed so. Raises BenchError."""
        last, replaced = began, False
        while (now := time.monotonic()) < began + WAIT_SECONDS:
            replaced = replaced or has_taken_over()
            if not all(map(_shares, self.instances)):
                last = time.monotonic()
            elif replaced and now - last > STAYS_SECONDS:
                return last - began
            time.sleep(LOOK_EVERY_SECONDS)
        raise BenchError(f"{self._kind.label}: counts are not shared again after {WAIT_SECONDS:.0f} s")


def _shares(instance: Instance) -> bool:
    """Whether Redis decides with it who may have a slot."""
    return all(pool["mode"] == "shared" for pool in instance.shown("/status")["ledger"]["pools"].values())


def _beside(redis: Redises, key: str) -> str:
    """A path whose members are at the node that has `key`."""
    node = redis.primary_of(key)
    paths = (f"/written-{number}" for number in count())
    return next(path for path in paths if redis.primary_of(keys.route_key(path)) is node)


@contextmanager
def _started(kind: Kind) -> Iterator[Redises]:
    """Raises BenchError where its servers do not come to terms in time."""
    try:
        with closing(kind.make()) as redis:
            yield redis
    except AssertionError as error:  # of the waiting in tests/support
        raise BenchError(f"{kind.label}: {error}") from None


def failover(
    bench: Bench,
    only: Annotated[str, Option(help=f"Some of: {', '.join(KINDS)}.")] = "",
    times: Annotated[int, Option(min=1, help="Masters killed, and as many frozen, of each kind.")] = 5,
    rate: Annotated[int, Option(min=1, help="Requests per second of the route without a cap.")] = 200,
) -> Outcome:
    """A master of Redis killed or frozen: seconds until writes and counts work again, requests that failed."""
    if not BINARY:
        refuse("no redis-server here: apt-get install redis-server")
    found: list[Turns] = []
    for name in chosen("--only", only, KINDS):
        kind, home = KINDS[name], bench.home / name
        home.mkdir()
        bench.to(f"starting {kind.label}")
        with _started(kind) as redis, Processes() as processes:
            fleet = Failovers(bench, kind, redis, processes, home)
            found += [fleet.turns(how, times, rate) for how in kind.hows]
    title = (
        f"medians and maxima; {INSTANCES} instances; down-after {DOWN_AFTER_SECONDS:g} s, cluster-node-timeout "
        f"{NODE_TIMEOUT_SECONDS:g} s; {CLIENTS} clients of a route with max_inflight={CAP} and a queue"
    )
    took = Section(title, (), (), SECONDS_COLUMNS, [each.seconds() for each in found], words=2)
    asked = Section("requests meanwhile", (), (), REQUESTS_COLUMNS, [each.requests() for each in found], words=2)
    return Outcome([took, asked, Section("goals", [goal for each in found for goal in each.goals()])])

"""kill -9 of one of three instances under load with a cap and a queue: when are the counts in Redis true again?"""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from statistics import median
from typing import Annotated, Any, NamedTuple

from typer import Option

from bench.command import Bench
from bench.fleet import Fleet, Instance, member, queued
from bench.http import get_text
from bench.pods import NOTED
from bench.processes import TookTooLong
from bench.table import Figure, Outcome, Section
from bench.traffic import Clients, Loop
from slb.control import keys

PATH = "/p"
INSTANCES, UPSTREAMS = 3, 4
CAP = 20  # `max_inflight`: with 100 clients some always wait, and more do while a dead instance's slots are leased
SERVICE_SECONDS, SPREAD = 2.0, 0.5  # so long that a slot is seldom just on its way to the next request
QUIET_SECONDS = (1.0, 3.0)  # between all being well and the next kill, at random
GOAL_SECONDS, LOOK_EVERY_SECONDS = 4.0, 0.02
CLOSING_SECONDS = 0.05  # for upstreams to see that a dead process's connections are closed
DRIFT, REAPED, LOCAL = "slb_ledger_drift_total", "slb_ledger_reaped_total", "slb_ledger_local_total"
KEYS = keys.pool_keys(PATH)
INFLIGHT, HOLDERS, TICKETS, GRANTS = KEYS[0], KEYS[1], KEYS[3], KEYS[7]


class Kill(NamedTuple):
    """One of them: requests in flight, those of them that waited in the queue, and those upstreams saw end by it;
    seconds until its successor was ready, and until the scores were the truth (infinite: never)."""

    in_flight: int
    queued: int
    cut_off: int
    ready: float
    true_again: float


class Kills:
    """One fleet goes through all of them, one after another. `most`: requests at any upstream at once; `counters`
    are of the ledgers of all instances; `left`: what is in Redis when all is over."""

    def __init__(self, fleet: Fleet, loop: Loop, pod: int, clients: Clients, rng: Random) -> None:
        self._fleet, self._loop, self._pod, self._clients, self._rng = fleet, loop, pod, clients, rng
        self._redis: Any = fleet.redis.client  # its stubs do not know decoded replies
        self.kills: list[Kill] = []
        self.most = self.highest_score = 0
        self.counters = dict.fromkeys((DRIFT, REAPED, LOCAL), 0.0)
        self.left: Mapping[str, int] = {}

    def one(self) -> None:
        """At a random moment, once all is well."""
        self._seconds_until(self._scores_are_true)
        time.sleep(self._rng.uniform(*QUIET_SECONDS))
        number = self._rng.randrange(INSTANCES)
        instance = self._fleet.instances[number]
        self._count(instance)
        in_flight, queued = self._clients.in_flight, int(self._redis.hlen(TICKETS))
        before = sum(self._truth().values())
        self._loop.run(self._clients.shut(number))
        killed = time.monotonic()
        successor = self._fleet.kill_instance(instance)
        time.sleep(CLOSING_SECONDS)
        cut_off = before - sum(self._truth().values())
        successor.wait_until_ready()
        ready = time.monotonic() - killed
        self._loop.run(self._clients.open(number))
        true_again = self._seconds_until(self._scores_are_true, killed)
        self.kills.append(Kill(in_flight, queued, cut_off, ready, true_again))

    def end(self) -> None:
        """Wait until all are answered, and look at what is left."""
        self._loop.run(self._clients.stop())
        self._seconds_until(lambda: not self._left())
        for instance in self._fleet.instances:
            self._count(instance)
        self.left = self._left()

    def _count(self, instance: Instance) -> None:
        """What its ledger has counted, from its metrics."""
        text = get_text(instance.api_port, "/metrics")
        for name in self.counters:
            self.counters[name] += counter_in(text, name)

    def _seconds_until(self, condition: Callable[[], bool], since: float | None = None) -> float:
        """From `since` (now) until it holds; infinite where not. Raises BenchError where an instance ends."""
        since = since or time.monotonic()
        try:
            self._fleet.wait_until(condition, "waiting", LOOK_EVERY_SECONDS)
        except TookTooLong:
            return math.inf
        return time.monotonic() - since

    def _scores_are_true(self) -> bool:
        """Whether they are what the upstreams have, which has not changed while they were read."""
        before = self._truth()
        scores = self._scores()
        return scores == before == self._truth()

    def _truth(self) -> dict[str, int]:
        """By upstream, how many requests it has, of those that have any: all at one moment."""
        noted = json.loads(get_text(self._pod, NOTED))
        self.most = max(self.most, *noted["most"].values(), 0)
        return {member(int(port)): count for port, count in noted["present"].items()}

    def _scores(self) -> dict[str, int]:
        scores = {each: int(score) for each, score in self._redis.zrange(INFLIGHT, 0, -1, withscores=True)}
        self.highest_score = max(self.highest_score, *scores.values(), 0)
        return {each: score for each, score in scores.items() if score}

    def _left(self) -> dict[str, int]:
        """What is still counted, and holders that are none of the living."""
        living = {str(instance.shown("/status")["id"]) for instance in self._fleet.instances}
        counts = {
            "slots": sum(self._scores().values()),
            "tickets": int(self._redis.hlen(TICKETS)),
            "grants": int(self._redis.hlen(GRANTS)),
            "dead holders": strangers(self._redis.zrange(HOLDERS, 0, -1), living),
        }
        return {what: count for what, count in counts.items() if count}


def strangers(holders: Sequence[str], living: set[str]) -> int:
    """How many `<instance>-<number>` are of none of `living`."""
    return sum(holder.rpartition("-")[0] not in living for holder in holders)


def counter_in(metrics: str, name: str) -> float:
    """The value of a counter without labels. NaN where there is none: a figure that could not be had."""
    values = [line.split()[1] for line in metrics.splitlines() if line.startswith(f"{name} ")]
    return float(values[0]) if values else math.nan


def kill(
    bench: Bench,
    times: Annotated[int, Option(min=1, help="Instances killed, one after another; 15 s each.")] = 20,
    clients: Annotated[int, Option(min=1, help="Each has one request in flight all the time.")] = 100,
    seed: Annotated[int, Option(help="Of which is killed, when, and how long requests take.")] = 1,
) -> Outcome:
    """kill -9 of one of three instances under capped load: when are the counts in Redis true again?"""
    fleet, rng = bench.fleet(), Random(seed)
    bench.to("starting instances and upstreams")
    pods = fleet.start_pods("noting", UPSTREAMS, service=SERVICE_SECONDS, spread=SPREAD, seed=seed)
    fleet.write_route(PATH, pods, queued(CAP, "30s", limit=1000))
    instances = fleet.start_instances(INSTANCES)
    with Loop() as loop:
        asking = Clients([each.port for each in instances], PATH, clients, rng)
        kills = Kills(fleet, loop, pods[0], asking, rng)
        loop.run(asking.start())
        for number in range(times):
            bench.to(f"kill {number + 1}")
            kills.one()
        bench.to("waiting for all replies")
        kills.end()
    return Outcome([_section(kills, asking)])


def _section(run: Kills, clients: Clients) -> Section:
    """The figures, and what explains those that miss."""
    in_flight, queued, cut_off, ready, true_again = zip(*run.kills, strict=True)
    figures = [
        Figure("kills", len(run.kills)),
        Figure("requests in flight at the kill, least", min(in_flight)),
        Figure("of these in the queue, median", median(queued)),
        Figure("cut off at the upstreams by it, median", median(cut_off)),
        Figure("a new instance ready after, median", median(ready), "s"),
        Figure("scores equal the truth after, median", median(true_again), "s"),
        Figure("scores equal the truth after, max", max(true_again), "s", at_most=GOAL_SECONDS),
        Figure("drift", run.counters[DRIFT], at_most=0),
        Figure("most requests at one upstream at once", run.most, at_most=CAP),
        Figure("highest score of an upstream seen", run.highest_score, at_most=CAP),
        Figure("answered with 200", clients.answered),
        Figure("not, though their instance lived", clients.failed.total(), at_most=0),
        Figure("lost with their instance", clients.lost),
        Figure("left in Redis when all were answered", sum(run.left.values()), at_most=0),
        Figure("leases reaped", run.counters[REAPED]),
        Figure("slots given out without Redis", run.counters[LOCAL]),
    ]
    notes = []
    if clients.failed:
        notes.append(f"Failed, by status (0: no reply, -1: not connected): {dict(clients.failed)}")
    if run.left:
        notes.append(f"Left: {run.left}")
    if run.counters[LOCAL]:
        notes.append("Redis did not always answer in time: an instance that decides alone has its part of a cap.")
    title = f"kill -9 of 1 of {INSTANCES} instances; {UPSTREAMS} upstreams with max_inflight={CAP} and a queue"
    return Section(title, figures, notes)

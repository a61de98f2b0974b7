"""kill -9 of one of three instances under load with a cap and a queue: when are the counts in Redis true again?"""

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from statistics import median
from typing import Annotated, Any, NamedTuple

from typer import Option

from bench.command import Bench
from bench.fleet import Fleet, Instance, Pods, member
from bench.http import get_text
from bench.local import Loop
from bench.pods import NOTED
from bench.table import Figure, Outcome, Section
from bench.traffic import Clients
from slb.control import keys

PATH = "/p"
INSTANCES, UPSTREAMS = 3, 4
CAP = 20
"""`max_inflight`: with 100 clients some always wait, and more do while a dead instance's slots are leased."""

SERVICE_SECONDS, SPREAD = 2.0, 0.5
"""Long, so that a slot is seldom just on its way from one request to the next when it is looked at."""

QUIET_SECONDS = (1.0, 3.0)
"""Between all being well and the next kill, at random."""

GOAL_SECONDS = 4.0
GIVE_UP_SECONDS = 30.0
LOOK_EVERY_SECONDS = 0.02
CLOSING_SECONDS = 0.05
"""For upstreams to see that a dead process's connections are closed."""

DRIFT, REAPED, LOCAL = "slb_ledger_drift_total", "slb_ledger_reaped_total", "slb_ledger_local_total"
SETTINGS = {
    "policy": "least_inflight",
    "max_inflight": str(CAP),
    "when_full": "queue",
    "queue_limit": "1000",
    "queue_timeout": "30s",
}
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


class Ending(NamedTuple):
    """What there was to see when all was over. `most`: at any upstream at once; `left`: what is still in Redis."""

    answered: int
    failed: Mapping[int, int]
    lost: int
    most: int
    highest_score: int
    counters: Mapping[str, float]
    left: Mapping[str, int]


class Kills:
    """One fleet goes through all of them, one after another."""

    def __init__(self, fleet: Fleet, loop: Loop, pods: Pods, rng: Random) -> None:
        self._fleet = fleet
        self._redis: Any = fleet.redis.client  # its stubs do not know decoded replies
        self._loop = loop
        self._pods = pods
        self._rng = rng
        self._of_the_dead: Counter[str] = Counter()
        self._highest_score = 0
        self._most = 0

    def one(self, clients: Clients) -> Kill:
        """At a random moment, once all is well."""
        self._seconds_until(self._scores_are_true)
        time.sleep(self._rng.uniform(*QUIET_SECONDS))
        number = self._rng.randrange(INSTANCES)
        instance = self._fleet.instances[number]
        self._of_the_dead.update(counters_of(instance))
        in_flight, queued = clients.in_flight, int(self._redis.hlen(TICKETS))
        before = sum(self._truth().values())
        self._loop.run(clients.shut(number))
        killed = time.monotonic()
        successor = self._fleet.kill_instance(instance)
        time.sleep(CLOSING_SECONDS)
        cut_off = before - sum(self._truth().values())
        successor.wait_until_ready()
        ready = time.monotonic() - killed
        self._loop.run(clients.open(number))
        return Kill(in_flight, queued, cut_off, ready, self._seconds_until(self._scores_are_true, killed))

    def end(self, clients: Clients) -> Ending:
        """Wait until all are answered, and look at what is left."""
        self._loop.run(clients.stop())
        self._seconds_until(lambda: not self._left())
        counters = Counter(self._of_the_dead)
        for instance in self._fleet.instances:
            counters.update(counters_of(instance))  # it keeps what is NaN, as a sum would not
        found = clients.answered, clients.failed, clients.lost, self._most, self._highest_score
        return Ending(*found, counters, self._left())

    def _seconds_until(self, condition: Callable[[], bool], since: float | None = None) -> float:
        """From `since` (now) until it holds; infinite where not. Raises BenchError where an instance ends."""
        since = since or time.monotonic()
        while not condition():
            self._fleet.check_alive()
            if time.monotonic() - since > GIVE_UP_SECONDS:
                return math.inf
            time.sleep(LOOK_EVERY_SECONDS)
        return time.monotonic() - since

    def _scores_are_true(self) -> bool:
        """Whether they are what the upstreams have, which has not changed while they were read."""
        before = self._truth()
        scores = self._scores()
        return scores == before == self._truth()

    def _truth(self) -> dict[str, int]:
        """By upstream, how many requests it has, of those that have any: all at one moment."""
        noted = json.loads(get_text(self._pods.ports[0], NOTED))
        self._most = max(self._most, *noted["most"].values(), 0)
        return {member(int(port)): count for port, count in noted["present"].items()}

    def _scores(self) -> dict[str, int]:
        scores = {each: int(score) for each, score in self._redis.zrange(INFLIGHT, 0, -1, withscores=True)}
        self._highest_score = max(self._highest_score, *scores.values(), 0)
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


def counters_of(instance: Instance) -> Counter[str]:
    """Of the ledger, from its metrics."""
    text = get_text(instance.api_port, "/metrics")
    return Counter({name: counter_in(text, name) for name in (DRIFT, REAPED, LOCAL)})


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
    fleet.write_route(PATH, pods.ports, SETTINGS)
    instances = fleet.start_instances(INSTANCES)
    found: list[Kill] = []
    with Loop() as loop:
        kills = Kills(fleet, loop, pods, rng)
        asking = Clients([each.port for each in instances], PATH, clients, rng)
        loop.run(asking.start())
        for number in range(times):
            bench.to(f"kill {number + 1}")
            found.append(kills.one(asking))
        bench.to("waiting for all replies")
        return Outcome([section(found, kills.end(asking))])


def section(kills: Sequence[Kill], ending: Ending) -> Section:
    """The figures, and what explains those that miss."""
    figures = [
        Figure("kills", len(kills)),
        Figure("requests in flight at the kill, least", min(each.in_flight for each in kills)),
        Figure("of these in the queue, median", median(each.queued for each in kills)),
        Figure("cut off at the upstreams by it, median", median(each.cut_off for each in kills)),
        Figure("a new instance ready after, median", median(each.ready for each in kills), "s"),
        Figure("scores equal the truth after, median", median(each.true_again for each in kills), "s"),
        Figure("scores equal the truth after, max", max(each.true_again for each in kills), "s", GOAL_SECONDS),
        Figure("drift", ending.counters[DRIFT], at_most=0),
        Figure("most requests at one upstream at once", ending.most, at_most=CAP),
        Figure("highest score of an upstream seen", ending.highest_score, at_most=CAP),
        Figure("answered with 200", ending.answered),
        Figure("not, though their instance lived", sum(ending.failed.values()), at_most=0),
        Figure("lost with their instance", ending.lost),
        Figure("left in Redis when all were answered", sum(ending.left.values()), at_most=0),
        Figure("leases reaped", ending.counters[REAPED]),
        Figure("slots given out without Redis", ending.counters[LOCAL]),
    ]
    notes = []
    if ending.failed:
        notes.append(f"Failed, by status (0: no reply, -1: not connected): {counted(ending.failed)}")
    if ending.left:
        notes.append(f"Left: {counted(ending.left)}")
    if ending.counters[LOCAL]:
        notes.append(
            "Redis did not always answer in time: an instance that decides alone has only its part of a cap."
        )
    title = f"kill -9 of 1 of {INSTANCES} instances; {UPSTREAMS} upstreams with max_inflight={CAP} and a queue"
    return Section(title, figures, notes)


def counted(counts: Mapping[int, int] | Mapping[str, int]) -> str:
    return ", ".join(f"{what}: {count}" for what, count in counts.items())

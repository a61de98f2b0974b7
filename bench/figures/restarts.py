"""What fails under traffic while Redis is killed and brought back, with its data, empty, with older data; and while
every instance and every upstream is restarted, one after another."""

import shutil
import time
from collections.abc import Callable, Sequence
from typing import Annotated

from typer import Option

from bench.command import Bench
from bench.figures.routes import set_of, write_table
from bench.fleet import Fleet, Instance
from bench.http import ask
from bench.ports import free_ports
from bench.table import Figure, Outcome, Section
from bench.traffic import Tally, Traffic

STEADY, NEWER = "/steady", "/newer"
INSTANCES, UPSTREAMS = 2, 3
GIVE_UP_FACTOR = 4  # of the time that the requests of a takeover would take at their rate
SLOTS = 1000  # of each upstream: none of its requests has to wait for another
GOAL_TRUE_AGAIN_SECONDS = 1.0
QUIET_SECONDS = 2.0  # before the first is killed or stopped, and after all is well again
UPSTREAMS_PER_ROUTE = 10
GENERATION = "slb:generation"

After = Callable[[float], Sequence[Figure]]  # what else is measured once Redis is back, by when that was


class Outages:
    """One fleet goes through all cases, one after another."""

    def __init__(self, bench: Bench, rate: int, seconds: float, routes: int) -> None:
        self._to, self._rate, self._seconds = bench.to, rate, seconds
        self._fleet = bench.fleet()
        self._redis = self._fleet.redis
        self._copy = bench.home / "copy"
        self._to("starting two instances")
        targets = self._fleet.start_upstreams()
        self._target = targets[0]
        self._instances = self._fleet.start_instances(2)
        for target in targets:
            self._instances[0].register(STEADY, target)
        write_table(self._redis.client, routes, UPSTREAMS_PER_ROUTE)
        self._to("waiting until Redis is marked as having its data")
        self._until(lambda: bool(self._redis.client.exists(GENERATION)), "the generation of a new Redis")
        self._until_served(STEADY)

    def with_its_data(self) -> Section:
        """Brought back as it was."""
        return self._outage("with its data", lambda: None, lambda _: ())

    def empty(self) -> Section:
        """Brought back without anything, `slb:generation` gone: the instances give it its data again."""
        before = self._contents()

        def all_back(since: float) -> Sequence[Figure]:
            restored = self._until(lambda: before.items() <= self._contents().items(), "the data to be in Redis")
            return [Figure(f"all {len(before)} keys are back in Redis", restored - since, "s")]

        return self._outage("empty", lambda: shutil.rmtree(self._redis.data), all_back)

    def older(self) -> Section:
        """Brought back with what it had before a route was added: the instances keep it, and write it back."""
        shutil.copytree(self._redis.data, self._copy)
        self._instances[0].register(NEWER, self._target)
        self._until_served(NEWER)

        def return_to_copy() -> None:
            shutil.rmtree(self._redis.data)
            self._copy.rename(self._redis.data)

        def newer_back(since: float) -> Sequence[Figure]:
            back = self._until(lambda: set_of(NEWER) in self._contents(), f"{NEWER} to be in Redis")
            lost = sum(not _serves(each, NEWER) for each in self._instances)
            return [
                Figure("a newer route is back in Redis", back - since, "s"),
                Figure("instances that do not serve it", lost, at_most=0),
            ]

        return self._outage("with older data", return_to_copy, newer_back)

    def _outage(self, how: str, meanwhile: Callable[[], None], after: After) -> Section:
        """Under traffic: kill Redis, do something `meanwhile`, bring it back, measure what comes `after`."""
        title = f"Redis killed and brought back {how}"
        self._to(title)
        with Traffic([each.port for each in self._instances], STEADY, self._rate) as traffic:
            time.sleep(QUIET_SECONDS)
            self._redis.kill()
            killed = time.monotonic()
            meanwhile()
            time.sleep(max(0.0, killed + self._seconds - time.monotonic()))
            back = self._redis.start()
            true_again = self._true_again(how) - back
            more = after(back)
            time.sleep(QUIET_SECONDS)
        again = Figure("true again on both instances", true_again, "s", at_most=GOAL_TRUE_AGAIN_SECONDS)
        return Section(title, [*Tally.of(traffic.answers).figures(), again, *more])

    def _true_again(self, how: str) -> float:
        """When both instances served a route that was written into Redis by hand as soon as it answered, and
        `/status` of both shows that they follow it."""
        path = f"/probe/{how.replace(' ', '-')}"
        self._redis.client.sadd(set_of(path), self._target)
        self._until_served(path)
        return self._until(lambda: all(map(_follows, self._instances)), "both to follow Redis")

    def _until_served(self, path: str) -> None:
        self._until(lambda: all(_serves(each, path) for each in self._instances), f"200 for {path}")

    def _until(self, condition: Callable[[], bool], what: str) -> float:
        """When `condition()` held. Raises BenchError where it never does, or an instance ends."""
        self._fleet.wait_until(condition, f"waiting for {what}")
        return time.monotonic()

    def _contents(self) -> dict[str, object]:
        """Every key of routes, settings and upstreams with what it holds."""
        redis = self._redis.client
        found: dict[str, object] = {}
        for key in redis.scan_iter(match="slb[_:]*", count=1000):
            if key.startswith("slb_"):
                found[key] = frozenset(redis.smembers(key))
            elif key.startswith(("slb:route:", "slb:upstream:")):
                found[key] = redis.hgetall(key)
        return found


def _serves(instance: Instance, path: str) -> bool:
    return ask(instance.port, path)[0] == 200


def _follows(instance: Instance) -> bool:
    """Whether it shows that it is notified of every change in Redis."""
    redis = instance.shown("/status")["redis"]
    return bool(redis["up"]) and redis["mode"] == "sync"


def outage(
    bench: Bench,
    rate: Annotated[int, Option(min=1, help="Requests per second, whatever the replies.")] = 500,
    seconds: Annotated[float, Option(min=0.1, help="Without Redis, each time.")] = 10.0,
    routes: Annotated[int, Option(min=0, help="Routes of 10 upstreams besides the one under load.")] = 100,
) -> Outcome:
    """Redis killed under traffic and brought back: with its data, empty, with older data."""
    outages = Outages(bench, rate, seconds, routes)
    return Outcome([outages.with_its_data(), outages.empty(), outages.older()])


def rolling(
    bench: Bench,
    rate: Annotated[int, Option(min=1, help="Requests per second, whatever the replies.")] = 500,
    rounds: Annotated[int, Option(min=1, help="Times that everything is restarted.")] = 2,
    takeovers: Annotated[int, Option(min=1, help="Of the one instance at one address.")] = 10,
    requests: Annotated[int, Option(min=1, help="At least so many to that one.")] = 10_000,
) -> Outcome:
    """Every instance and every upstream restarted under traffic, one after another; and one instance at its one
    address, by takeover."""
    fleet = bench.fleet()
    return Outcome(
        [_one_by_one(bench, fleet, rate, rounds), _at_one_address(bench, fleet, rate, takeovers, requests)]
    )


def _at_one_address(bench: Bench, fleet: Fleet, rate: int, takeovers: int, requests: int) -> Section:
    """The clients know this address alone, and a connection that cannot be made has failed. One in four requests
    comes over a connection of its own."""
    while len(fleet.instances) > 1:
        fleet.stop_instance(fleet.instances[-1])
    port = fleet.instances[0].port
    with Traffic([port], STEADY, rate * 3 / 4) as kept, Traffic([port], STEADY, rate / 4, is_new=True) as new:
        time.sleep(QUIET_SECONDS)
        for number in range(takeovers):
            bench.to(f"takeover {number + 1}")
            fleet.take_over(fleet.instances[0])
        until = time.monotonic() + GIVE_UP_FACTOR * requests / rate
        while len(kept.answers) + len(new.answers) < requests and time.monotonic() < until:
            time.sleep(QUIET_SECONDS)
    answers = [*kept.answers, *new.answers]
    figures = [Figure("takeovers", takeovers), *Tally.of(answers).figures()]
    return Section(f"one instance taken over at its one address, {takeovers} times", figures)


def _one_by_one(bench: Bench, fleet: Fleet, rate: int, rounds: int) -> Section:
    instances, ports = fleet.start_instances(INSTANCES), free_ports(UPSTREAMS)
    upstreams = [fleet.start_stand_in(port, STEADY, SLOTS) for port in ports]

    def restart_instance(number: int) -> None:
        fleet.restart_instance(fleet.instances[number])

    def restart_upstream(number: int) -> None:
        fleet.stop_well(upstreams[number])
        upstreams[number] = fleet.start_stand_in(ports[number], STEADY, SLOTS)

    kinds: dict[str, tuple[Callable[[int], None], int]] = {
        "instances": (restart_instance, INSTANCES),
        "upstreams": (restart_upstream, UPSTREAMS),
    }
    spans: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}  # from when to when it was restarted
    with Traffic([each.port for each in instances], STEADY, rate, tries_others=True) as traffic:
        time.sleep(QUIET_SECONDS)
        for _ in range(rounds):
            for kind, (restart, members) in kinds.items():
                for number in range(members):
                    bench.to(f"restarting {kind} {number + 1}")
                    begun = time.monotonic()
                    restart(number)
                    spans[kind].append((begun, time.monotonic()))
        time.sleep(QUIET_SECONDS)
    failed = [answer for answer in traffic.answers if answer.status != 200]

    def failed_during(kind: str) -> int:
        return sum(any(each.due < end and each.ended > begun for begun, end in spans[kind]) for each in failed)

    count, all_failed, *latencies = Tally.of(traffic.answers).figures()
    while_restarted = (Figure(f"of these while {kind} restarted", failed_during(kind)) for kind in kinds)
    restarts = Figure("restarts", sum(map(len, spans.values())))
    figures = [restarts, count, all_failed, *while_restarted, *latencies]
    title = f"{INSTANCES} instances and {UPSTREAMS} upstreams restarted one after another"
    return Section(title, figures)

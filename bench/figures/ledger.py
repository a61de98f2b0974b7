"""The ledger alone: slots taken and given back by one instance, against one Redis; and what one call of each of its
scripts costs Redis, by upstreams and by how many requests wait."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, Any

import uvloop
from typer import Option

from bench.command import Bench
from bench.redis import PrivateRedis
from bench.table import Figure, Outcome, Section
from slb.balance.asking import Ask, Candidate, Scores, Turn
from slb.control import keys
from slb.control.connection import Connection
from slb.control.lane_timing import LaneTiming
from slb.control.ledger import Ledger
from slb.control.scripts import Reap
from slb.observe.metrics import Metrics

PATH = "/bench"
PAIR_UPSTREAMS = 20
PAIRS = ((1, 64, 60_000.0), (10, 1, 6_000.0), (1, 1, None))
"""Lanes, pairs under way at once in each, which travel in one batch, and the goal in pairs a second. Where a single
lane has one at a time, instance and Redis wait for each other, and the figure is how long a pair takes: no goal."""

ALONE = 10  # batches of one take so many times as long a pair: so many times fewer are measured
WAITING = (0, 200, 1000, 5000)
CALLS, BEATS, ROUNDS = 100, 20, 5
GOALS = {20: 150.0, 200: 200.0, 1000: 200.0}  # µs of Redis for a release, an ask or a look, by upstreams
BEAT_GOAL = 1000.0
WAITS = Turn("normal", 1, 1 << 20)
ONLY_WHAT_IS_MEASURED = LaneTiming(
    budget=60.0, silence=60.0, beat=1e6, lease=1e6, life=1e6, look=1e6, patience=60.0, deadline=60.0
)


def _fail(reason: str) -> None:
    raise RuntimeError(reason)


@dataclass(eq=False, kw_only=True)
class Asked:
    """One ask: `on_grant` is called with it and the member it is granted; it fails with `fail` otherwise."""

    on_grant: Callable[["Asked", str], None]
    fail: Callable[[str], None] = _fail
    view: str = PATH
    candidates: tuple[Candidate, ...] = ()
    avoid: tuple[str, ...] = ()
    reluctant: tuple[str, ...] = ()
    ordered: bool = False
    turn: Turn | None = None
    arrival: int = 0
    number: int = 0
    patient: bool = True
    scores: Scores | None = None

    def granted(self, member: str) -> None:
        self.on_grant(self, member)

    def refused(self, reason: str) -> None:
        self.fail(reason)

    def queued(self, position: int, number: int = 0) -> None:
        if self.turn is None:
            self.fail("no ask here may queue")


class Load:
    """`count` pairs in one lane, `at_once` under way at a time."""

    def __init__(self, ledger: Ledger, count: int, at_once: int, pool: str) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = count
        self._running = self._at_once = at_once
        self._lane = ledger.lane(pool, self._changed)
        self._candidates = tuple(Candidate(f"10.0.0.{number}:80", 0, 1) for number in range(PAIR_UPSTREAMS))

    def start(self) -> None:
        self._lane.view(PATH, self._candidates)
        for _ in range(self._at_once):
            self._lane.ask(Asked(on_grant=self._granted, fail=self._fail, candidates=self._candidates))

    def _fail(self, reason: str) -> None:
        self.ended.set_exception(RuntimeError(reason))

    def _changed(self, undecided: Sequence[Ask]) -> None:
        if undecided and not self.ended.done():
            self._fail("Redis does not answer")

    def _granted(self, asked: Asked, member: str) -> None:
        self._lane.release(member)
        self._left -= 1
        if self._left >= self._at_once:
            self._lane.ask(asked)
            return
        self._running -= 1
        if not self._running:
            self.ended.set_result(None)


async def _pairs(url: str, count: int, at_once: int, lanes: int) -> tuple[float, float]:
    """Seconds, and seconds of CPU of this process."""
    connection = Connection(url, Metrics())
    ledger = Ledger(connection, "bench", Metrics(), Random(1))
    running = asyncio.create_task(ledger.run())
    await asyncio.sleep(0)  # it has begun
    loads = [Load(ledger, count // lanes, at_once, f"{PATH}{number}") for number in range(lanes)]
    began, cpu = time.perf_counter(), time.process_time()
    for load in loads:
        load.start()
    await asyncio.gather(*(load.ended for load in loads))
    took = time.perf_counter() - began, time.process_time() - cpu
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await connection.aclose()
    return took


class Calls:
    """One pool with so many upstreams of one slot each: idle where none waits, else all of them busy."""

    def __init__(self, redis: PrivateRedis, upstreams: int, waiting: int) -> None:
        self._redis: Any = redis.client
        self._redis.flushall()
        self._upstreams, self._waiting = upstreams, waiting
        self._connection = Connection(redis.url, Metrics())
        self._ledger = Ledger(self._connection, "bench", Metrics(), Random(1), ONLY_WHAT_IS_MEASURED)
        self._reap = Reap(self._connection)
        numbers = range(upstreams)
        self._candidates = tuple(Candidate(f"10.0.{each >> 8}.{each & 255}:8000", 1, 1) for each in numbers)
        self._granted: deque[str] = deque()

    async def costs(self) -> dict[str, float]:
        """µs of Redis a call, by what is called."""
        self._lane = self._ledger.lane(PATH, lambda undecided: None)
        await self._ran()
        self._lane.view(PATH, self._candidates)
        busy = self._upstreams + self._waiting if self._waiting else min(self._upstreams, CALLS) // 2
        for number in range(busy):
            self._ask()
            if number % 256 == 255:
                await self._ran()
        await self._ran()
        releases = min(CALLS, self._waiting) if self._waiting else len(self._granted)
        found = {
            "release": await self._least(releases, lambda: self._lane.release(self._granted.popleft())),
            "ask": await self._least(releases, self._ask),
            "look": await self._least(CALLS, self._look),
        }
        if self._waiting:
            granted = keys.pool_keys(PATH)[18]
            self._redis.zadd(granted, {"another-1/1": 1000 * self._redis.time()[0]})  # which it does not take up
            found["look, a grant open"] = await self._least(CALLS, self._look)
            self._redis.delete(granted)
        found["beat"] = await self._least(BEATS, self._beat)
        found["reap"] = await self._least(BEATS, lambda: None, self._reaped)
        self._ledger.drop(PATH)
        await self._connection.aclose()
        return found

    async def _least(
        self, times: int, act: Callable[[], None], after: Callable[[], Awaitable[None]] | None = None
    ) -> float:
        """The mean of the round that cost least: what else runs on the machine makes Redis's clock go on."""
        rounds = []
        for _ in range(ROUNDS):
            self._redis.config_resetstat()
            for _ in range(times // ROUNDS):
                act()
                await (after or self._ran)()
            found = self._redis.info("commandstats")["cmdstat_evalsha"]
            rounds.append(float(found["usec"]) / int(found["calls"]))
        return min(rounds)

    async def _reaped(self) -> None:
        self._redis.delete(keys.pool_keys(PATH)[9])
        await self._reap(PATH, 1 << 30, reap_until=1 << 50, patience=60_000, period=1000)

    def _ask(self) -> None:
        def note(asked: Asked, member: str) -> None:
            self._granted.append(member)

        self._lane.ask(Asked(on_grant=note, candidates=self._candidates, turn=WAITS))

    def _look(self) -> None:
        self._lane.slots.builder.look()
        self._lane.wake()

    def _beat(self) -> None:
        self._lane.slots.builder.beat_due = 0.0
        self._lane.wake()

    async def _ran(self) -> None:
        """Until the lane has sent what it has to send, and has the reply."""
        lane, now = self._lane, asyncio.get_running_loop().time
        while lane.slots.builder.is_due(now()) or lane.in_flight:
            await asyncio.sleep(0.0002)
        await asyncio.sleep(0)  # decisions are handed out in the loop's next turn


def ledger(
    bench: Bench, count: Annotated[int, Option("--pairs", min=1000, help="Slots taken and given back.")] = 100_000
) -> Outcome:
    """The ledger alone: slots taken and given back a second, against one Redis."""
    redis = bench.fleet().redis
    sections: list[Section] = []
    for lanes, at_once, goal in PAIRS:
        title = f"{lanes} {'lane' if lanes == 1 else 'lanes'}, {at_once} at a time in each"
        bench.to(f"taking and giving back: {title}")
        pairs = count if at_once > 1 else count // ALONE
        before = redis.cpu_seconds()
        seconds, cpu = uvloop.run(_pairs(redis.url, pairs, at_once, lanes))
        figures = [
            Figure("acquire and release", pairs / seconds, "pairs/s", at_least=goal),
            Figure("CPU of the instance", cpu / pairs * 1e6, "µs a pair"),
            Figure("CPU of Redis", (redis.cpu_seconds() - before) / pairs * 1e6, "µs a pair"),
        ]
        whole = f"{pairs:,} pairs over {PAIR_UPSTREAMS} upstreams, {title}, one instance, one Redis"
        sections.append(Section(whole, figures))
    for upstreams, call_goal in GOALS.items():
        calls = []
        for waiting in WAITING:
            bench.to(f"one call with {upstreams:,} upstreams, {waiting:,} waiting")
            for what, cost in uvloop.run(Calls(redis, upstreams, waiting).costs()).items():
                goal = BEAT_GOAL if what in {"beat", "reap"} else call_goal
                calls.append(Figure(f"{what}, {waiting:,} waiting", cost, "µs", at_most=goal))
        sections.append(Section(f"Redis CPU of one call, {upstreams:,} upstreams", calls))
    return Outcome(sections)

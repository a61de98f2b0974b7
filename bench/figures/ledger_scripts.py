"""What one call of each of the ledger's scripts costs Redis, by upstreams and by how many wait."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from redis import Redis

from bench.figures.asked import Asked
from bench.figures.figure import Figure, Section
from slb.balance.asking import Candidate, Turn
from slb.control import keys
from slb.control.connection import Connection
from slb.control.lane_timing import LaneTiming
from slb.control.ledger import Ledger
from slb.control.scripts import Reap
from slb.observe.metrics import Metrics

UPSTREAMS = (20, 200, 1000)
WAITING = (0, 200, 1000, 5000)
CASES = len(UPSTREAMS) * len(WAITING)
CALLS = 100
BEATS = 20
ROUNDS = 5
GOALS = {20: 150.0, 200: 200.0, 1000: 200.0}
"""µs of Redis for a release, an ask or a look, by upstreams."""
BEAT_GOAL = 1000.0
PATH = "/scripts"
WAITS = Turn("normal", 1, 1 << 20)
_FOREVER = LaneTiming(
    budget=60.0, silence=60.0, beat=1e6, lease=1e6, life=1e6, look=1e6, patience=60.0, deadline=60.0
)
"""Nothing is said but what is measured."""


@dataclass(eq=False, kw_only=True)
class Asking(Asked):
    """One request: where it is granted a slot is remembered in `granted_to`."""

    granted_to: deque[str]

    def granted(self, member: str) -> None:
        self.granted_to.append(member)

    def refused(self, reason: str) -> None:
        raise RuntimeError(reason)

    def queued(self, position: int, number: int = 0) -> None:
        """It waits."""


class Case:
    """One pool with so many upstreams of one slot each: idle with nobody waiting, else all of them busy."""

    def __init__(self, connection: Connection, redis: Redis, upstreams: int, waiting: int) -> None:
        self._redis: Any = redis
        self._upstreams, self._waiting = upstreams, waiting
        self._ledger = Ledger(connection, "bench", Metrics(), Random(1), _FOREVER)
        self._reap = Reap(connection)
        self._candidates = tuple(
            Candidate(f"10.0.{each >> 8}.{each & 255}:8000", 1, 1) for each in range(upstreams)
        )
        self._granted: deque[str] = deque()

    async def costs(self) -> dict[str, float]:
        """µs of Redis a call, by what is called."""
        self._lane = self._ledger.lane(PATH, lambda undecided: None)
        await self._ran()
        self._lane.view(PATH, self._candidates)
        if self._waiting:
            await self._fill(self._upstreams + self._waiting)
        releases = min(CALLS, self._waiting or CALLS)
        found: dict[str, float] = {}
        if not self._waiting:
            await self._fill(min(self._upstreams, CALLS) // 2)
            releases = len(self._granted)
        found["release"] = await self._mean(self._release, releases)
        found["ask"] = await self._mean(self._ask, releases)
        found["look"] = await self._mean(self._look, CALLS)
        if self._waiting:
            found["look, a grant open"] = await self._mean_with_a_grant()
        found["beat"] = await self._mean(self._beat, BEATS)
        found["reap"] = await self._mean_reap()
        self._ledger.drop(PATH)
        return found

    async def _fill(self, count: int) -> None:
        for first in range(0, count, 256):
            for _ in range(first, min(first + 256, count)):
                self._lane.ask(self._asking())
            await self._ran()

    async def _mean(self, action: Callable[[], None], times: int) -> float:
        """Of the round that cost least: what else runs on the machine makes Redis's clock go on."""
        rounds = []
        for _ in range(ROUNDS):
            self._redis.config_resetstat()
            for _ in range(times // ROUNDS):
                action()
                await self._ran()
            rounds.append(self._cost())
        return min(rounds)

    async def _mean_reap(self) -> float:
        rounds = []
        for _ in range(ROUNDS):
            self._redis.config_resetstat()
            for _ in range(BEATS // ROUNDS):
                self._redis.delete(keys.pool_keys(PATH)[9])
                await self._reap(PATH, 1 << 30, reap_until=1 << 50, patience=60_000, period=1000)
            rounds.append(self._cost())
        return min(rounds)

    async def _mean_with_a_grant(self) -> float:
        """Looks while another holder has not taken up what it was granted."""
        granted = keys.pool_keys(PATH)[18]
        self._redis.zadd(granted, {"another-1/1": 1000 * self._redis.time()[0]})
        found = await self._mean(self._look, CALLS)
        self._redis.delete(granted)
        return found

    def _release(self) -> None:
        self._lane.release(self._granted.popleft())

    def _asking(self) -> Asking:
        return Asking(view=PATH, candidates=self._candidates, turn=WAITS, patient=True, granted_to=self._granted)

    def _ask(self) -> None:
        self._lane.ask(self._asking())

    def _look(self) -> None:
        self._lane._builder.look()
        self._lane.wake()

    def _beat(self) -> None:
        self._lane._builder.beat_due = 0.0
        self._lane.wake()

    async def _ran(self) -> None:
        """Until the lane has said what it has to say, and has been answered."""
        lane, now = self._lane, asyncio.get_running_loop().time
        while lane._builder.is_due(now()) or lane.in_flight:
            await asyncio.sleep(0.0002)
        await asyncio.sleep(0)  # answers are told in the loop's next turn

    def _cost(self) -> float:
        found = self._redis.info("commandstats")["cmdstat_evalsha"]
        return float(found["usec"]) / int(found["calls"])


async def measure(url: str, redis: Redis, at: Callable[[str], None]) -> list[Section]:
    """A table for each number of upstreams. `at` is told where it is."""
    sections = []
    for upstreams in UPSTREAMS:
        figures = []
        for waiting in WAITING:
            at(f"one call with {upstreams:,} upstreams, {waiting:,} waiting")
            redis.flushall()
            connection = Connection(url, Metrics())
            found = await Case(connection, redis, upstreams, waiting).costs()
            await connection.aclose()
            for what, cost in found.items():
                goal = BEAT_GOAL if what in {"beat", "reap"} else GOALS[upstreams]
                figures.append(Figure(f"{what}, {waiting:,} waiting", cost, "µs", at_most=goal))
        sections.append(Section(f"Redis CPU of one call, {upstreams:,} upstreams", figures))
    return sections

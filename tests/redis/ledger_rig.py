"""Several instances' ledgers in one process, driven by their lanes, on one real Valkey; and what stands in it."""

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import Any

import orjson
from redis.exceptions import ConnectionError as RedisConnectionError

from slb.balance.asking import Ask, Candidate, Scores, Turn
from slb.control import keys
from slb.control.connection import Connection
from slb.control.lane import Lane
from slb.control.lane_timing import LaneTiming
from slb.control.ledger import Ledger
from slb.control.resp import Word
from slb.control.script_line import ScriptLine
from slb.control.wire import OnReply
from slb.observe.metrics import Metrics
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

POOL = "/p"
NAMES = (
    *("inflight", "holders", "held:", "tickets", "class:", "classes", "views", "grants", "number", "reaped"),
    *("epoch", "live", "view:", "loads:", "line:", "lines:", "heads:", "granted", "granted:", "dying"),
    "round",
)
SHORT = LaneTiming(budget=5.0, beat=0.2, lease=1.0, look=0.05, settle=5.0, deadline=5.0, longest_backoff=0.1)
"""Beats and leases a test can wait for, and a budget that a busy machine does not use up."""
PATIENT = LaneTiming(budget=5.0, beat=60.0, lease=60.0, life=600.0, look=0.05, deadline=5.0)
"""Nothing happens but what the test does."""


def upstreams(count: int, capacity: int = 0, slots: int = 1) -> tuple[Candidate, ...]:
    """`u0`, `u1`, ..."""
    return tuple(Candidate(f"u{index}", capacity, slots) for index in range(count))


class Request:
    """An ask that records its answers."""

    def __init__(
        self,
        candidates: tuple[Candidate, ...],
        turn: Turn | None = None,
        view: str = POOL,
        avoid: tuple[str, ...] = (),
        ordered: bool = False,
        reluctant: tuple[str, ...] = (),
        number: int = 0,
        patient: bool = False,
    ) -> None:
        self.patient = patient
        self.arrival, self.number = 0, number
        self.view, self.candidates, self.ordered, self.turn = view, candidates, ordered, turn
        self.avoid, self.reluctant = avoid, reluctant
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.position: int | None = None
        self.scores: Scores | None = None

    def granted(self, member: str) -> None:
        self.answer.set_result(member)

    def refused(self, reason: str) -> None:
        self.answer.set_result(f"refused: {reason}")

    def queued(self, position: int, number: int = 0) -> None:
        self.position, self.number = position, number

    async def waits(self) -> "Request":
        """Until it is in the queue."""
        await eventually(lambda: self.position is not None, what="in the queue")
        return self


class _Line(ScriptLine):
    """One that can be held up, as the process around it would be by SIGSTOP."""

    connection: "_Connection"
    held_up: tuple[Callable[[], None], ...] = ()

    def send(self, keys: Sequence[str], args: Sequence[Word], on_reply: OnReply) -> None:
        def came(reply: Any) -> None:
            if self.connection.loses_replies:
                self.connection.loses_replies = False
                reply = RedisConnectionError("cut off before the reply")
            on_reply(reply)

        def go() -> None:
            self.connection.sent.append(("EVALSHA", *keys, *args))
            super(_Line, self).send(keys, args, came)

        if self.connection.is_frozen:
            self.held_up += (go,)
        else:
            go()

    def drop(self) -> None:
        self.held_up = ()
        super().drop()


class _Connection(Connection):
    def __init__(self, url: str, metrics: Metrics) -> None:
        super().__init__(url, metrics)
        self.is_frozen = False
        self.sent: list[tuple[Any, ...]] = []
        self.loses_replies = False
        self._lines: list[_Line] = []

    def thaw(self) -> None:
        """What was to be sent meanwhile is sent."""
        self.is_frozen = False
        for line in self._lines:
            held_up, line.held_up = line.held_up, ()
            for go in held_up:
                go()

    def script_line(self, source: str, key: str) -> ScriptLine:
        line = _Line(lambda: self.wire(key), source)
        line.connection = self
        self._lines.append(line)
        return line


class Instance:
    """Use with `async with`. `undecided`: asks its lane has handed back; `changes`: (ready, settling) each time one
    of the two had changed; `sent`: what its lanes have sent."""

    def __init__(
        self, valkey: Valkey, name: str, timing: LaneTiming = SHORT, reaping: bool = True, url: str = ""
    ) -> None:
        self.name = name
        self.metrics = Metrics()
        self.connection = _Connection(url or valkey.url, self.metrics)
        self.ledger = Ledger(self.connection, name, self.metrics, Random(1), timing)
        self.undecided: list[Ask] = []
        self.changes: list[tuple[bool, bool]] = []
        self._reaping = reaping
        self._task: asyncio.Task[None] | None = None

    @property
    def lane(self) -> Lane:
        """That of the pool `/p`."""
        return self.lane_of(POOL)

    def lane_of(self, pool: str) -> Lane:
        """Made when it is first asked for."""
        known = self.ledger.lanes.get(pool)
        return known or self.ledger.lane(pool, self._changed)

    def _changed(self, undecided: Sequence[Ask]) -> None:
        self.undecided.extend(undecided)
        self.changes.append((self.lane.state.ready, self.lane.settling))

    async def __aenter__(self) -> "Instance":
        if self._reaping:
            self._task = asyncio.create_task(self.ledger.run())
        await eventually(lambda: bool(self.lane.epochs.steady_since), what="a first answer")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.die()

    async def die(self) -> None:
        """End without a word, as of a kill -9."""
        tasks = [*(each.task for each in self.ledger._pools.values()), *([self._task] if self._task else [])]
        for pool in list(self.ledger.lanes):
            self.ledger.drop(pool)
        if self._task is not None:
            self._task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        self._task = None
        await self.connection.aclose()

    def freeze(self) -> None:
        """Nothing of its lanes' is sent any more: their leases end."""
        self.connection.is_frozen = True

    def thaw(self) -> None:
        """Go on after `freeze`, with what was to be sent."""
        self.connection.thaw()

    def ask(self, candidates: tuple[Candidate, ...], turn: Turn | None = None, **more: Any) -> Request:
        """Bring a request, and do not wait."""
        request = Request(candidates, turn, **more)
        self.lane.view(request.view, candidates)
        self.lane.ask(request)
        return request

    async def get(self, candidates: tuple[Candidate, ...], turn: Turn | None = None, **more: Any) -> str:
        """The answer to a request: a member, or `refused: ...`."""
        return await self.ask(candidates, turn, **more).answer

    async def queue(self, candidates: tuple[Candidate, ...], turn: Turn, **more: Any) -> Request:
        """A request that waits."""
        return await self.ask(candidates, turn, **more).waits()

    async def sent_all(self) -> None:
        """Until its lane has sent all there was to send."""
        lane, builder = self.lane, self.lane.slots.builder
        await eventually(
            lambda: builder.is_idle and not (builder.is_due(0.0) or lane.in_flight),
            what="all sent",
        )


class Books:
    """What stands in Redis about a pool, by a client of the tests' own."""

    def __init__(self, valkey: Valkey, pool: str = POOL) -> None:
        self.redis: Any = valkey.admin
        self.key = dict(zip(NAMES, keys.pool_keys(pool), strict=True))

    def scores(self) -> dict[str, int]:
        """member -> requests in flight."""
        found = self.redis.zrange(self.key["inflight"], 0, -1, withscores=True)
        return {member: int(score) if math.isfinite(score) else -1 for member, score in found}

    def holders(self) -> list[str]:
        """Who has a lease, or had one."""
        return sorted(self.redis.zrange(self.key["holders"], 0, -1))

    def held(self, holder: str) -> dict[str, int]:
        """What it holds."""
        found = self.redis.hgetall(self.key["held:"] + holder)
        return {member: int(count) for member, count in found.items() if member not in {"seq", "pushed", "silent"}}

    def seq(self, holder: str) -> int:
        """The number of its last batch."""
        return int(self.redis.hget(self.key["held:"] + holder, "seq"))

    def tickets(self) -> list[str]:
        """The tickets that wait."""
        return sorted(self.redis.hkeys(self.key["tickets"]))

    def grants(self) -> list[str]:
        """Tickets whose grant has not reached them."""
        return sorted(self.redis.hkeys(self.key["grants"]))

    def summed(self) -> dict[str, int]:
        """member -> what all holders have of it."""
        found: dict[str, int] = {}
        for holder in self.holders():
            for member, count in self.held(holder).items():
                found[member] = found.get(member, 0) + count
        return found

    async def score(self, expected: dict[str, int]) -> None:
        """Wait for just these scores, which are the sum of what is held."""
        await eventually(lambda: self.scores() == expected, what=f"{expected}, not {self.scores()}")
        await eventually(lambda: self.summed() == expected, what=f"held {expected}")


def batches(instance: Instance) -> list[dict[str, Any]]:
    """What its lane has sent, as the script reads it: what is not named is empty."""
    calls = [command for command in instance.connection.sent if command[0] == "EVALSHA"]
    return [defaultdict(list, orjson.loads(command[-3])) for command in calls]

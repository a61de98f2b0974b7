"""Which holder has which slot of which upstream: this instance's lanes, and what is done once for all of them."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from random import Random

import structlog
from redis.exceptions import RedisError

from slb.balance.asking import Ask
from slb.control import keys
from slb.control.cancelled import raise_if_cancelled
from slb.control.connection import Connection
from slb.control.granted import read_granted
from slb.control.lane import Lane
from slb.control.lane_timing import SPARE, LaneTiming
from slb.control.scores import scores_of
from slb.control.scripts import Idle, ReadMany, Reap, ledger_source
from slb.control.subscription import follow_channel
from slb.lifecycle import set_within
from slb.observe.metrics import Metrics

_REAP_PERIOD = 1.0
_REAPS_A_SECOND = 10
"""At most so many calls a second for one pool, from all its instances, and so many from one instance, for all its
pools. Each comes with one of the scores. So what this costs Redis grows neither with instances nor with pools; that
scores are read, and leases looked at by this instance, becomes rarer: every 10 s with 100 instances."""

_RECONNECT = 0.25

_log = structlog.get_logger()


async def slots_in_use(connection: Connection, pool: str, member: str) -> int:
    """Slots of a member in a pool, everywhere and now. Raises RedisUnavailable."""
    async with connection.answering() as redis:
        score = await redis.zscore(keys.pool_keys(pool)[0], member)
        return int(float(score or 0))


@dataclass(slots=True)
class _Pool:
    """`reap_at`: when it is asked next, by the event loop's clock."""

    lane: Lane
    task: asyncio.Task[None]
    reap_at: float = 0.0


class Ledger:
    """`instance` is this process's id. Lanes are made when a route first needs them, and end with this."""

    def __init__(
        self, connection: Connection, instance: str, metrics: Metrics, rng: Random, timing: LaneTiming | None = None
    ) -> None:
        self._connection = connection
        self._read_many = ReadMany(connection)
        self._instance = instance
        self._metrics = metrics
        self._rng = rng
        self._timing = timing or LaneTiming()
        self._reap = Reap(connection)
        self._idle = Idle(connection)
        self._pools: dict[str, _Pool] = {}
        self._names = count(1)
        self._damaged = asyncio.Event()
        self._died: dict[str, float] = {}
        self.answering_since = 0.0
        self._ended: asyncio.Future[None] | None = None
        self.scores: dict[str, Mapping[str, int]] = {}

    def bury(self, instances: Collection[str]) -> None:
        """These instances have died: what they hold is free. Remembered for one lease, for lanes that are made
        meanwhile."""
        now = asyncio.get_running_loop().time()
        self._died = {each: until for each, until in self._died.items() if until > now}
        self._died |= dict.fromkeys(instances, now + self._timing.lease)
        self._damaged.set()

    def set_patience(self, budget: float, silence: float) -> None:
        """How long Redis may take, in seconds, from now on, and a grant to be taken up: see `LaneTiming`."""
        self._timing = replace(self._timing, budget=budget, silence=silence, patience=silence + SPARE)
        for lane in self.lanes.values():
            lane.timing = self._timing

    @property
    def lanes(self) -> Mapping[str, Lane]:
        """pool -> its lane."""
        return {pool: each.lane for pool, each in self._pools.items()}

    def lane(self, pool: str, on_change: Callable[[Sequence[Ask]], None]) -> Lane:
        """A new pool's lane, running from now on."""
        line = self._connection.script_line(ledger_source(), keys.pool_keys(pool)[0])
        start = self._rng.randrange(1 << 16)
        on_late = partial(self._acknowledged_late, pool)
        lane = Lane(pool, line, self._new_holder, start, self._timing, on_change, self._damaged.set, on_late)
        task = asyncio.get_running_loop().create_task(lane.run(), name=f"lane {pool}")
        task.add_done_callback(self._lane_ended)
        self._pools[pool] = _Pool(lane, task)
        return lane

    def drop(self, pool: str) -> None:
        """End a lane that is not needed. What it held, if anything, is reaped."""
        self.scores.pop(pool, None)
        self._pools.pop(pool).task.cancel()

    async def leave(self) -> None:
        """Give back all that this instance holds, and be no holder any more: at a clean stop."""
        pools, self._pools = list(self._pools.values()), {}
        for each in pools:
            each.task.cancel()
        await asyncio.gather(*(each.task for each in pools), return_exceptions=True)
        for error in await asyncio.gather(*(each.lane.say_goodbye() for each in pools), return_exceptions=True):
            if isinstance(error, RedisError | OSError | TimeoutError):
                _log.debug("goodbye_failed", error=str(error))
            elif error is not None:
                raise error

    def _lane_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and self._ended is not None and not self._ended.done():
            self._ended.set_exception(task.exception() or RuntimeError("a lane has ended"))

    def _new_holder(self) -> str:
        return f"{self._instance}-{next(self._names)}"

    async def run(self) -> None:
        """Reap and listen until cancelled; raises what a lane died of, for a process without it would be blind."""
        self._ended = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._reap_for_ever())
                group.create_task(self._listen_for_ever())
                await self._ended
        finally:
            for pool in list(self._pools):
                self.drop(pool)

    # -- reaping

    async def _reap_for_ever(self) -> None:
        looked_at, loop = 0.0, asyncio.get_running_loop()
        while True:
            await set_within(self._damaged, _REAP_PERIOD)
            if loop.time() - looked_at > self._timing.lease / 2:
                self.answering_since = 0.0  # this process was frozen; so may others have been, which look dead now
            looked_at = loop.time()
            damaged = self._damaged.is_set()
            self._damaged.clear()
            for pool in list(self._pools.values()):
                if damaged or (pool.lane.epochs.steady_since and self._is_due(pool)):
                    await self._reap_one(pool.lane, damaged)
            raise_if_cancelled()

    def _is_due(self, pool: _Pool) -> bool:
        now = asyncio.get_running_loop().time()
        if now < pool.reap_at:
            return False
        pause = max(pool.lane.epochs.holders, len(self._pools)) / _REAPS_A_SECOND
        pool.reap_at = now + max(pause, _REAP_PERIOD) - _REAP_PERIOD / 2
        return True

    async def _reap_one(self, lane: Lane, damaged: bool) -> None:
        """No holder is reaped before Redis has answered for one whole lease, nor by a call that runs late: after a
        freeze all leases have ended."""
        now, timing = asyncio.get_running_loop().time(), self._timing
        since = self.answering_since, lane.epochs.steady_since
        may_reap = all(moment and now - moment >= timing.lease for moment in since)
        try:
            found = await self._reap(
                lane.pool,
                lease=int(timing.lease * 1000),
                reap_until=lane.epochs.redis_time(now) + int(_REAP_PERIOD * 1000) if may_reap else 0,
                patience=int(timing.patience * 1000),
                period=int(_REAP_PERIOD * 1000),
                life=int(timing.life * 1000),
                damaged=lane.holder if damaged else "",
                ended=[each for each, until in self._died.items() if until > now],
            )
            if found.more:
                self._damaged.set()  # the rest at once
            scores = scores_of(await self._read_many.first("z", keys.pool_keys(lane.pool)[0]))
            if lane.pool in self._pools:
                self.scores[lane.pool] = scores
        except (RedisError, OSError, TimeoutError) as error:
            _log.debug("reap_failed", pool=lane.pool, error=str(error))
            self.answering_since = 0.0
            return
        self.answering_since = self.answering_since or now
        metrics = self._metrics
        metrics.ledger.reaped += found.reaped
        metrics.ledger.drift += found.drift
        metrics.ledger.repaired += found.repaired
        metrics.ledger.grants_taken_back += found.taken_back
        if found.reaped or found.drift or found.repaired:
            _log.warning(
                "ledger_mended", pool=lane.pool, reaped=found.reaped, drift=found.drift, repaired=found.repaired
            )

    async def in_flight(self, pool: str, member: str) -> int:
        """A member's score, now. Raises RedisUnavailable."""
        return await slots_in_use(self._connection, pool, member)

    async def idle(self, pool: str, member: str, silence: float) -> int:
        """A member serves nothing: what holders have of it that have not called for so long is free. How many
        slots. Raises RedisUnavailable."""
        timing = self._timing
        times = (round(silence * 1000), int(timing.lease * 1000), int(timing.patience * 1000))
        async with self._connection.answering():
            return await self._idle(pool, member, *times, int(timing.life * 1000))

    # -- grants

    async def _listen_for_ever(self) -> None:
        """A message that is lost costs a quarter of a second: a waiting lane looks by itself."""
        await follow_channel(self._connection, keys.GRANTED_CHANNEL + self._instance, self._granted_in, _RECONNECT)

    def _granted_in(self, _: str, text: str) -> None:
        granted = read_granted(text)
        if granted is not None and (pool := self._pools.get(granted.pool)) is not None:
            pool.lane.receive(granted)

    def _acknowledged_late(self, pool: str, grants: int) -> None:
        self._metrics.ledger.local_grants += grants
        _log.warning("ledger_late", pool=pool, grants=grants)

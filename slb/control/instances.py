"""Who is alive: each instance keeps a short-lived hash in Redis for display, and its place in one list of all."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from redis.exceptions import RedisError

from slb.control import keys
from slb.control.cancelled import raise_if_cancelled
from slb.control.connection import Connection
from slb.control.departed import Departed
from slb.control.processes import has_ended, is_taken_over
from slb.control.resp import readable
from slb.control.scripts import INSTANCE_FIELDS, ReadMany, ScanNames, own
from slb.errors import RedisUnavailable
from slb.names import natural

BEAT = 2.0
LIFETIME = 10.0
_MISSED_BEATS = 2
"""So many beats somebody may be missing before they count as gone."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class InstanceInfo:
    """One slb process as others see it. `started` is Unix time, `roles` are comma-separated; `process` is what
    `slb.control.processes` knows it by, `binding` is its API's address there."""

    id: str
    name: str = ""
    address: str = ""
    api: str = ""
    version: str = ""
    roles: str = ""
    started: str = ""
    pid: str = ""
    host: str = ""
    process: str = ""
    binding: str = ""

    def as_hash(self) -> dict[str, str]:
        """What is written to Redis; the id is in the key."""
        return {name: getattr(self, name) for name in _STORED}


_STORED = INSTANCE_FIELDS


class Instances:
    """This process's heartbeat, and the list of all that beat. `known` is who was last seen alive. Each beat finds
    who has come and who has left; full syncs find the living too, whatever the list says. After an outage of Redis
    all are missing until they beat again, so whoever is missing then is known for a few beats more; not those whose
    process has ended on this machine, or whose address this process has now: `on_death` is called with their ids,
    and they leave the list."""

    def __init__(
        self,
        connection: Connection,
        info: InstanceInfo,
        beat: float = BEAT,
        lifetime: float = LIFETIME,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._read_many = ReadMany(connection)
        self._scan_names = ScanNames(connection)
        self._info = info
        self._beat = beat
        self._lifetime = lifetime
        self._clock = clock
        self._missing: dict[str, float] = {}
        self._steady_since: float | None = None
        self._died = Departed()
        self.known: Sequence[InstanceInfo] = ()
        self.on_death: Callable[[Collection[str]], None] = lambda ids: None

    @property
    def count(self) -> int:
        """How many instances were last known, at least this one."""
        return max(1, len(self.known))

    def found(self, hashes: Mapping[str, Mapping[str, str]]) -> None:
        """Who is alive: id -> hash."""
        self._see([_info(instance, written) for instance, written in hashes.items()])

    @property
    def info(self) -> InstanceInfo:
        """This process."""
        return self._info

    async def run(self) -> None:
        """Beat until cancelled. A beat that fails is made up by the next: the watcher logs Redis being away."""
        await self._each_beat(self.beat)

    async def follow(self) -> None:
        """Know who beats, without beating, until cancelled."""
        await self._each_beat(self.look)

    async def _each_beat(self, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            started = self._clock()
            try:
                with readable():
                    await act()
            except (RedisError, OSError, TimeoutError) as error:
                _log.debug("heartbeat_failed", error=str(error))
            raise_if_cancelled()
            await asyncio.sleep(max(0.0, self._beat - (self._clock() - started)))

    async def beat(self) -> None:
        """Say that this process lives, and see who else does."""
        await self._look(self._say)

    async def look(self) -> None:
        """See who lives, saying nothing."""
        await self._look(None)

    async def _look(self, say: Callable[[Any, int], None] | None) -> None:
        now = await self._redis_time()
        ends = await self._listed()
        others = [each for each in self.known if each.id != self._info.id]
        async with self._connection.client.pipeline(transaction=True) as pipe:
            for each in others:
                pipe.exists(keys.instance_key(each.id))
            if say is not None:
                say(pipe, now)
            alive = await pipe.execute() if len(pipe) else []
        came = await self._came(ends, now, {self._info.id, *(each.id for each in others)})
        stayed = [each for each, lives in zip(others, alive, strict=False) if lives]
        own = [] if say is None else [self._info]
        await self._notice_deaths([*stayed, *came])
        self._see([*own, *stayed, *came], self._is_steady(ends.get(self._info.id, 0.0) - now))

    async def _notice_deaths(self, others: Sequence[InstanceInfo]) -> None:
        now = self._clock()
        known = self._died.at(now)
        died = [each for each in others if each.id not in known and self._has_died(each)]
        if died:
            ids = [each.id for each in died]
            self._died.add(ids, now + self._lifetime)
            _log.warning("instances_died", names=[each.name for each in died])
            self.on_death(ids)
            await self._remove(ids)

    def _has_died(self, other: InstanceInfo) -> bool:
        return has_ended(other.process) or is_taken_over(other.binding, self._info.binding)

    def _say(self, pipe: Any, now: int) -> None:
        """Hash and place in the list end together."""
        key, lifetime = keys.instance_key(self._info.id), int(self._lifetime * 1000)
        pipe.hset(key, mapping=self._info.as_hash())
        pipe.pexpire(key, lifetime)
        pipe.zadd(keys.INSTANCES, {self._info.id: now + lifetime})
        pipe.pexpire(keys.INSTANCES, lifetime)

    async def _listed(self) -> dict[str, float]:
        """id -> end. Empty where the list is too large to be one: then full syncs find who lives."""
        listed = own((await self._read_many.first("z", keys.INSTANCES)).reply)
        return dict(zip(listed[::2], map(float, listed[1::2]), strict=True))

    async def _redis_time(self) -> int:
        """Milliseconds by Redis's clock: instances' own clocks differ."""
        seconds, microseconds = await self._connection.client.time()
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def _came(self, ends: Mapping[str, float], now: int, met: set[str]) -> Sequence[InstanceInfo]:
        """Those in the list who are not known yet; on the way, the dead are taken out of it."""
        dead = [each for each, end in ends.items() if end <= now and each != self._info.id]
        new = [each for each, end in ends.items() if end > now and each not in met]
        if dead:
            await self._connection.client.zrem(keys.INSTANCES, *dead)
        return await self._hashes_of(new[: keys.MOST_INSTANCES])

    async def _hashes_of(self, ids: Sequence[str]) -> Sequence[InstanceInfo]:
        """Those of them that have one."""
        reads = self._read_many([("h", keys.instance_key(each)) for each in ids])
        found = [own(read.reply) async for read in reads]
        hashes = [dict(zip(written[::2], written[1::2], strict=True)) for written in found]
        return [_info(each, written) for each, written in zip(ids, hashes, strict=True) if written]

    def _is_steady(self, left: float) -> bool:
        """Whether Redis has answered this process's beats for a while: then whoever is missing has left or died.
        `left`: the milliseconds its place in the list would have lasted without this beat."""
        now, patience = self._clock(), _MISSED_BEATS * self._beat
        if left < (self._lifetime - patience) * 1000 or left <= 0:
            self._steady_since = None
        elif self._steady_since is None:
            self._steady_since = now
        return self._steady_since is not None and now - self._steady_since >= patience

    async def remove(self) -> None:
        """Leave the list, at a clean stop. Best effort: the lifetime does it otherwise."""
        try:
            with readable():
                await self._remove([self._info.id])
        except (RedisError, OSError, TimeoutError) as error:
            _log.debug("heartbeat_not_removed", error=str(error))

    async def _remove(self, ids: Sequence[str]) -> None:
        async with self._connection.client.pipeline(transaction=True) as pipe:
            pipe.delete(*map(keys.instance_key, ids))
            pipe.zrem(keys.INSTANCES, *ids)
            await pipe.execute()

    async def list(self) -> Sequence[InstanceInfo]:
        """Everybody who beats, by name. Raises RedisUnavailable."""
        try:
            async with asyncio.timeout(self._connection.command_deadline):
                with readable():
                    found = await self._read()
        except (RedisError, OSError, TimeoutError) as error:
            raise RedisUnavailable(f"Redis does not answer: {error}") from None
        self._see(found)
        return _by_name(found)

    def _see(self, alive: Sequence[InstanceInfo], is_steady: bool = False) -> None:
        """`known` stays the same object while nothing changes, for those who make something of it. Nobody who is
        missing is spared where it `is_steady`; a full sync's reading may be older than the last beat's."""
        now = self._clock()
        died = self._died.at(now)
        alive = [each for each in alive if each.id not in died]
        seen = {each.id for each in alive} | died
        unseen = [each for each in self.known if each.id not in seen]
        self._missing = {each.id: self._missing.get(each.id, now) for each in unseen}
        patience = 0.0 if is_steady else _MISSED_BEATS * self._beat
        spared = [each for each in unseen if now - self._missing[each.id] < patience]
        known = _by_name([*alive, *spared])
        if known != self.known:
            self.known = known

    async def _read(self) -> Sequence[InstanceInfo]:
        found: set[str] = set()
        async for page in self._scan_names(keys.EVERY_INSTANCE):
            found.update(each for key in page if (each := keys.instance_of(key)) is not None)
        return await self._hashes_of(sorted(found)[: keys.MOST_INSTANCES])


def _by_name(found: Sequence[InstanceInfo]) -> Sequence[InstanceInfo]:
    return sorted(found, key=lambda info: (natural(info.name), info.id))


def _info(instance: str, written: Mapping[str, str]) -> InstanceInfo:
    return InstanceInfo(instance, **{name: written.get(name, "") for name in _STORED})

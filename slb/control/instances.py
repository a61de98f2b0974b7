"""Who is alive: each instance keeps a short-lived hash in Redis for display."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import structlog
from redis.exceptions import RedisError

from slb.control import keys
from slb.control.cancelled import raise_if_cancelled
from slb.control.connection import Connection
from slb.errors import RedisUnavailable

BEAT = 2.0
LIFETIME = 10.0
_SCAN_COUNT = 1000
_MISSED_BEATS = 2
"""So many beats somebody may be missing before they count as gone."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class InstanceInfo:
    """One slb process as others see it. `started` is Unix time, `roles` are comma-separated."""

    id: str
    name: str = ""
    address: str = ""
    api: str = ""
    version: str = ""
    roles: str = ""
    started: str = ""
    pid: str = ""
    host: str = ""

    def as_hash(self) -> dict[str, str]:
        """What is written to Redis; the id is in the key."""
        return {name: getattr(self, name) for name in _STORED}


_STORED = tuple(field.name for field in fields(InstanceInfo) if field.name != "id")


class Instances:
    """This process's heartbeat, and the list of all that beat. `known` is who was last seen alive: each full sync
    finds the living, and each beat takes out who has died since; not at once, for after an outage of Redis all
    are missing until they beat again."""

    def __init__(
        self,
        connection: Connection,
        info: InstanceInfo,
        beat: float = BEAT,
        lifetime: float = LIFETIME,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._info = info
        self._beat = beat
        self._lifetime = lifetime
        self._clock = clock
        self._missing: dict[str, float] = {}
        self.known: Sequence[InstanceInfo] = ()

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
        while True:
            started = self._clock()
            try:
                await self.beat()
            except (RedisError, OSError, TimeoutError) as error:
                _log.debug("heartbeat_failed", error=str(error))
            raise_if_cancelled()
            await asyncio.sleep(max(0.0, self._beat - (self._clock() - started)))

    async def beat(self) -> None:
        """Write this process's hash and its lifetime, in one step, and see who of those known is still alive."""
        key = keys.instance_key(self._info.id)
        others = [each for each in self.known if each.id != self._info.id]
        async with self._connection.client.pipeline(transaction=True) as pipe:
            pipe.hset(key, mapping=self._info.as_hash())
            pipe.pexpire(key, int(self._lifetime * 1000))
            for each in others:
                pipe.exists(keys.instance_key(each.id))
            alive = (await pipe.execute())[2:]
        self._see([self._info, *(each for each, lives in zip(others, alive, strict=True) if lives)])

    async def remove(self) -> None:
        """Leave the list, at a clean stop. Best effort: the lifetime does it otherwise."""
        try:
            await self._connection.client.delete(keys.instance_key(self._info.id))
        except (RedisError, OSError, TimeoutError) as error:
            _log.debug("heartbeat_not_removed", error=str(error))

    async def list(self) -> Sequence[InstanceInfo]:
        """Everybody who beats, by name. Raises RedisUnavailable."""
        try:
            async with asyncio.timeout(self._connection.command_deadline):
                found = await self._read()
        except (RedisError, OSError, TimeoutError) as error:
            raise RedisUnavailable(f"Redis does not answer: {error}") from None
        self._see(found)
        return _by_name(found)

    def _see(self, alive: Sequence[InstanceInfo]) -> None:
        """`known` stays the same object while nothing changes, for those who make something of it."""
        now, seen = self._clock(), {each.id for each in alive}
        unseen = [each for each in self.known if each.id not in seen]
        self._missing = {each.id: self._missing.get(each.id, now) for each in unseen}
        spared = [each for each in unseen if now - self._missing[each.id] < _MISSED_BEATS * self._beat]
        known = _by_name([*alive, *spared])
        if known != self.known:
            self.known = known

    async def _read(self) -> Sequence[InstanceInfo]:
        client = self._connection.client
        found = {key async for key in client.scan_iter(match=keys.INSTANCE + "*", count=_SCAN_COUNT)}
        ids = [key.removeprefix(keys.INSTANCE) for key in sorted(found)]
        async with client.pipeline(transaction=False) as pipe:
            for instance in ids:
                pipe.hgetall(keys.instance_key(instance))
            hashes = await pipe.execute() if ids else []
        return [_info(instance, written) for instance, written in zip(ids, hashes, strict=True) if written]


def _by_name(found: Sequence[InstanceInfo]) -> Sequence[InstanceInfo]:
    return sorted(found, key=lambda info: (info.name, info.id))


def _info(instance: str, written: Mapping[str, str]) -> InstanceInfo:
    return InstanceInfo(instance, **{name: written.get(name, "") for name in _STORED})

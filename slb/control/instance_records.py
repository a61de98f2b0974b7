"""What Redis holds of instances: of each a hash for display, its identity, and its place in one list of all."""

from collections.abc import Callable, Collection, Mapping, Sequence

from slb.control import keys
from slb.control.connection import Connection
from slb.control.scripts import ReadMany, own, pairs

REMEMBERED = 60.0
"""Seconds from the end of its life that an instance is kept: its slots may stand so long (`LaneTiming.life`)."""

_IDENTITY = ("name", "process", "binding")


class InstanceRecords:
    """`lifetime`: seconds that an instance counts as alive for after a beat."""

    def __init__(self, connection: Connection, lifetime: float) -> None:
        self._connection = connection
        self._read_many = ReadMany(connection)
        self._lifetime = int(lifetime * 1000)

    async def time(self) -> int:
        """Milliseconds by Redis's clock: instances' own clocks differ."""
        seconds, microseconds = await self._connection.servers.at(keys.INSTANCES, lambda node: node.time())
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def listed(self) -> dict[str, float]:
        """id -> end of its life, by Redis's clock. Empty where the list is too large."""
        listed = pairs(own((await self._read_many.first("z", keys.INSTANCES)).reply))
        return {each: float(end) for each, end in listed.items()}

    async def write(self, instance: str, written: Mapping[str, str], now: int) -> None:
        """`instance` is alive, at `now` by Redis's clock; `written`: its hash. List and identity outlive that."""
        key, identity = keys.instance_key(instance), keys.identity_key(instance)
        remembered = self._lifetime + int(REMEMBERED * 1000)
        async with self._connection.client.pipeline(transaction=True) as pipe:
            pipe.hset(key, mapping=dict(written))
            pipe.pexpire(key, self._lifetime)
            pipe.hset(identity, mapping={name: written[name] for name in _IDENTITY})
            pipe.pexpire(identity, remembered)
            pipe.zadd(keys.INSTANCES, {instance: now + self._lifetime})
            pipe.pexpire(keys.INSTANCES, remembered)
            await pipe.execute()

    async def read(
        self, ids: Sequence[str], key_of: Callable[[str], str] = keys.instance_key
    ) -> dict[str, dict[str, str]]:
        """id -> hash, of those that have one, some of them where there are many; with `keys.identity_key`: which
        process it was, and its binding."""
        ids = ids[: keys.MOST_INSTANCES]
        reads = self._read_many(("h", key_of(each)) for each in ids)
        hashes = [pairs(own(read.reply)) async for read in reads]
        return {each: written for each, written in zip(ids, hashes, strict=True) if written}

    async def unlist(self, ids: Collection[str]) -> list[str]:
        """Take them out of the list; those that were still in it."""
        return [each for each in ids if await self._connection.client.zrem(keys.INSTANCES, each)]

    async def remove(self, ids: Collection[str]) -> list[str]:
        """Forget them; those that were still in the list."""
        async with self._connection.client.pipeline(transaction=True) as pipe:
            for each in ids:
                pipe.zrem(keys.INSTANCES, each)
            for key in (*map(keys.instance_key, ids), *map(keys.identity_key, ids)):
                pipe.delete(key)
            found = await pipe.execute()
        return [each for each, was_there in zip(ids, found, strict=False) if was_there]

"""What Redis holds of instances: of each a hash for display, its identity, and its place in one list of all."""

from collections.abc import Collection, Iterable, Mapping

from slb.control import keys
from slb.control.connection import Connection
from slb.control.scripts import ReadMany, ScanNames, own

REMEMBERED = 60.0
"""Seconds that the list and the identities keep an instance for, from the end of its life: slots that it held may
stand as long (`LaneTiming.life`)."""

_IDENTITY = ("name", "process", "binding")


class InstanceRecords:
    """`lifetime`: seconds that an instance counts as alive for after a beat."""

    def __init__(self, connection: Connection, lifetime: float) -> None:
        self._connection = connection
        self._read_many = ReadMany(connection)
        self._scan_names = ScanNames(connection)
        self._lifetime = int(lifetime * 1000)

    async def time(self) -> int:
        """Milliseconds by Redis's clock: instances' own clocks differ."""
        seconds, microseconds = await self._connection.client.time()
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def listed(self) -> dict[str, float]:
        """id -> end of its life, by Redis's clock. Empty where the list is too large to be one: then full syncs
        find the living."""
        listed = own((await self._read_many.first("z", keys.INSTANCES)).reply)
        return dict(zip(listed[::2], map(float, listed[1::2]), strict=True))

    async def write(self, instance: str, written: Mapping[str, str], now: int) -> None:
        """Record that `instance` is alive, at `now` by Redis's clock; `written` is its hash, which expires at the
        end of life in the list; list and identity stay for longer."""
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

    async def present(self, ids: Collection[str]) -> set[str]:
        """Those of them that have a hash."""
        async with self._connection.client.pipeline(transaction=False) as pipe:
            for each in ids:
                pipe.exists(keys.instance_key(each))
            found = await pipe.execute()
        return {each for each, is_there in zip(ids, found, strict=True) if is_there}

    async def hashes(self, ids: Iterable[str]) -> dict[str, dict[str, str]]:
        """id -> hash, of those that have one."""
        return await self._read({each: keys.instance_key(each) for each in ids})

    async def identities(self, ids: Iterable[str]) -> dict[str, dict[str, str]]:
        """id -> which process it was or is, and what it has bound; of those of which that is known."""
        return await self._read({each: keys.identity_key(each) for each in ids})

    async def _read(self, wanted: Mapping[str, str]) -> dict[str, dict[str, str]]:
        found = [own(read.reply) async for read in self._read_many(("h", key) for key in wanted.values())]
        hashes = [dict(zip(written[::2], written[1::2], strict=True)) for written in found]
        return {each: written for each, written in zip(wanted, hashes, strict=True) if written}

    async def all(self) -> dict[str, dict[str, str]]:
        """id -> hash, of all that have one, whether they are in the list or not."""
        found: set[str] = set()
        async for page in self._scan_names(keys.EVERY_INSTANCE):
            found.update(each for key in page if (each := keys.instance_of(key)) is not None)
        return await self.hashes(sorted(found)[: keys.MOST_INSTANCES])

    async def unlist(self, ids: Collection[str]) -> None:
        """Take these out of the list."""
        await self._connection.client.zrem(keys.INSTANCES, *ids)

    async def remove(self, ids: Collection[str]) -> None:
        """Remove all records of these."""
        async with self._connection.client.pipeline(transaction=True) as pipe:
            pipe.delete(*map(keys.instance_key, ids), *map(keys.identity_key, ids))
            pipe.zrem(keys.INSTANCES, *ids)
            await pipe.execute()

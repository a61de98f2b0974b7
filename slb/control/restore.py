"""Writes back what Redis has lost: all of it, or what has changed since the data it came back with."""

from collections.abc import Mapping
from uuid import uuid4

import structlog

from slb.control import keys
from slb.control.behind import states
from slb.control.changes import Changes, WriteBack
from slb.control.connection import Connection
from slb.control.history import Snapshot, State, differing, holds, missing
from slb.control.reader import SPOILT
from slb.control.slices import rested

_LOCK_LIFE = 5000
"""Milliseconds; renewed with each step."""

_ROWS_AT_ONCE = 100

_log = structlog.get_logger()


class Restorer:
    """One restore at a time: `slb:restoring` keeps other instances waiting, for what they hold may be older."""

    def __init__(self, connection: Connection, changes: Changes) -> None:
        self.connection = connection
        self._changes = changes
        self._write = WriteBack(connection)
        self._id = uuid4().hex
        self._names = keys.generation_keys(connection.servers.cluster is not None)

    async def has_generation(self) -> bool:
        """Whether Redis has its data."""
        async with self.connection.client.pipeline(transaction=False) as pipe:
            for name in self._names:
                pipe.exists(name)
            return all(await pipe.execute())

    async def make_generation(self, known: str | None = None) -> str:
        """Set the generation where there is none, to the `known` one if any. Returns it; "" where there was one."""
        made = uuid4().hex if known in (None, SPOILT) else known
        first, *others = self._names
        client = self.connection.client
        if not others:
            return made if await client.set(first, made, nx=True) else ""
        await client.set(first, made, nx=True)
        made = await client.get(first) or made  # of several instances the first decides for all keys
        is_made = [await client.set(name, made, nx=True) for name in others]
        return made if any(is_made) else ""

    async def write_back(self, good: Snapshot, present: Snapshot) -> bool:
        """Add everything of `good` that `present` lacks, then the generation. False where another is at it. What
        has changed in Redis since the loss stays."""
        client = self.connection.client
        if not await client.set(keys.RESTORING, self._id, nx=True, px=_LOCK_LIFE):
            return False
        self.connection.note(
            "redis_replaced", self.connection.url_shown, f"it lost its data: {len(good.records)} routes go back"
        )
        _log.warning("redis_lost_its_data", writing_back=len(good.records), redis=self.connection.url_shown)
        await self._changes.number(await _put_by_hand(good, present))
        await self.catch_up(await _missing(good, present), good.history.floor, locked=True)
        await self.make_generation(good.history.generation)
        if await self._has_lock():
            await client.delete(keys.RESTORING)
        return True

    async def _has_lock(self) -> bool:
        """It may have ended during a stall, and be another's by now."""
        return bool(await self.connection.client.get(keys.RESTORING) == self._id)

    async def catch_up(self, lost: Mapping[str, State], floor: int, locked: bool = False) -> None:
        """Write those that are newer than what Redis has. Attributes come before members, so that no member is read
        without them. `locked`: `slb:restoring` is renewed meanwhile."""
        rows = sorted(lost.items(), key=lambda row: not row[0].startswith(keys.UPSTREAM))
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            if refused := await self._write(rows[start : start + _ROWS_AT_ONCE]):
                _log.warning("not_written_back", entries=refused, error="keys of another type are in the way")
            if locked and await self._has_lock():
                await self.connection.client.pexpire(keys.RESTORING, _LOCK_LIFE)
        await self._write.finish(floor)


async def _missing(good: Snapshot, present: Snapshot) -> dict[str, State]:
    """What `good` has and `present` has not, what is known to have left, and hashes that were made anew whole."""
    found = await states(good, missing(good, present))
    gone_or_whole = await states(good, good.history.of)
    return found | {entry: each for entry, each in gone_or_whole.items() if not each.value or each.is_whole_hash}


async def _put_by_hand(good: Snapshot, present: Snapshot) -> list[str]:
    """What has been written without a number since the loss: without one it would be older than what is known
    here."""
    return [
        entry
        async for entry in rested(differing(good, present))
        if not present.history.logged(entry) and good.history.logged(entry) and holds(entry, present)
    ]

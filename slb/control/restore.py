"""Writes back what Redis has lost: all of it, or what has changed since the data it came back with."""

from collections.abc import AsyncIterator, Mapping, Sequence
from uuid import uuid4

import structlog

from slb.control import keys
from slb.control.changes import Changes, WriteBack
from slb.control.connection import Connection
from slb.control.history import Snapshot, State, differing, state
from slb.control.reader import SPOILT
from slb.control.slices import Slices

_LOCK_LIFE = 5000
"""Milliseconds; renewed with each step."""

_ROWS_AT_ONCE = 100

Row = tuple[str, State]
"""An entry, and what it is."""

_log = structlog.get_logger()


class Restorer:
    """One restore at a time of a Redis that lost everything: `slb:restoring` keeps the others waiting, for what
    they hold may be older."""

    def __init__(self, connection: Connection, changes: Changes) -> None:
        self._connection = connection
        self._changes = changes
        self._write = WriteBack(connection)
        self._id = uuid4().hex

    async def has_generation(self) -> bool:
        """Whether Redis has its data: its generation exists."""
        return bool(await self._connection.client.exists(keys.GENERATION))

    async def make_generation(self, known: str | None = None) -> str:
        """Set the generation where there is none, the one that was known before rather than a new one: the new one.
        Empty where there was one."""
        made = uuid4().hex if known in (None, SPOILT) else known
        return made if await self._connection.client.set(keys.GENERATION, made, nx=True) else ""

    async def write_back(self, good: Snapshot, present: Snapshot) -> bool:
        """Add everything of `good` that `present` lacks, then the generation. False where another is at it.

        Whatever Redis has of a route and has changed since all was lost stays: members, settings and attributes are
        only added, each field by itself.
        """
        client = self._connection.client
        if not await client.set(keys.RESTORING, self._id, nx=True, px=_LOCK_LIFE):
            return False
        _log.warning("redis_lost_its_data", writing_back=len(good.records), redis=self._connection.url_shown)
        await self._changes.number([each async for each in _put_by_hand(good, present)])
        await self._write_all([each async for each in _missing(good, present)], good.history.floor, locked=True)
        await self.make_generation(good.history.generation)
        if await self._has_lock():
            await client.delete(keys.RESTORING)
        return True

    async def _has_lock(self) -> bool:
        """It may have ended during a stall, and be another's by now."""
        return bool(await self._connection.client.get(keys.RESTORING) == self._id)

    async def catch_up(self, lost: Mapping[str, State], floor: int) -> None:
        """Write what is newer than what Redis came back with. No lock: several instances may do so at once."""
        await self._write_all(list(lost.items()), floor)

    async def _write_all(self, rows: Sequence[Row], floor: int, locked: bool = False) -> None:
        """Attributes come before the member, so that no member is read without them. `locked`: `slb:restoring`
        is renewed with each step."""
        slices = Slices()
        for are_attributes in (True, False):
            some = [row for row in rows if row[0].startswith(keys.UPSTREAM) is are_attributes]
            for start in range(0, len(some), _ROWS_AT_ONCE):
                if refused := await self._write(some[start : start + _ROWS_AT_ONCE]):
                    _log.warning("not_written_back", entries=refused, error="keys of another type are in the way")
                if locked and await self._has_lock():
                    await self._connection.client.pexpire(keys.RESTORING, _LOCK_LIFE)
                await slices.rest()
        await self._write.finish(floor)


async def _missing(good: Snapshot, present: Snapshot) -> AsyncIterator[Row]:
    """What `good` has and `present` has not, what is known to have left, and hashes that were made anew whole."""
    slices = Slices()
    for entry in differing(good, present):
        if entry is not None and (each := state(entry, good)) and each.value and not _is_there(entry, present):
            yield entry, each
        await slices.rest()
    for entry in good.history.of:
        if (each := state(entry, good)) and (not each.value or each.is_whole_hash):
            yield entry, each
        await slices.rest()


async def _put_by_hand(good: Snapshot, present: Snapshot) -> AsyncIterator[str]:
    """What has been written without a number since all was lost: without one it would be older than what is known
    of it here. What was there before gets none: Redis may only not have evicted it yet."""
    slices = Slices()
    for entry in differing(good, present):
        is_numbered = entry is None or present.history.logged(entry)
        if entry is not None and not is_numbered and good.history.logged(entry) and _is_there(entry, present):
            yield entry
        await slices.rest()


def _is_there(entry: str, table: Snapshot) -> bool:
    each = state(entry, table)
    return each is not None and bool(each.value)

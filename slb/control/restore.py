"""Writes the last good routes back to a Redis that lost them."""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

import structlog

from slb.control import keys
from slb.control.connection import Connection
from slb.control.reader import Snapshot
from slb.control.slices import Slices
from slb.model import RouteRecord

_LOCK_LIFE = 5000
"""Milliseconds; renewed with each step."""

_COMMANDS_AT_ONCE = 100

_log = structlog.get_logger()


class Restorer:
    """One restore at a time: `slb:restoring` keeps others waiting, for they may hold older tables."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._id = uuid4().hex

    async def has_generation(self) -> bool:
        """Whether Redis says that it has its data. What it says is not read: anybody may have written there."""
        return bool(await self._connection.client.exists(keys.GENERATION))

    async def make_generation(self) -> str:
        """Set the generation where there is none: the new one. Empty where there was one."""
        made = uuid4().hex
        return made if await self._connection.client.set(keys.GENERATION, made, nx=True) else ""

    async def write_back(self, good: Snapshot, present: Snapshot) -> bool:
        """Add everything of `good` that `present` lacks, then the generation. False where another is at it.

        Whatever Redis has of a route stays: members are only added, settings and attributes only where there
        are none.
        """
        client = self._connection.client
        if not await client.set(keys.RESTORING, self._id, nx=True, px=_LOCK_LIFE):
            return False
        _log.warning("redis_lost_its_data", writing_back=len(good.records), redis=self._connection.url_shown)
        slices = Slices()
        written: set[str] = set()
        for step in _steps(good, present):
            async with client.pipeline(transaction=True) as pipe:
                for path, record in step:
                    _add(pipe, path, record, good, present, written)
                pipe.pexpire(keys.RESTORING, _LOCK_LIFE)
                for reply in await pipe.execute(raise_on_error=False):
                    if isinstance(reply, Exception):
                        _log.warning("not_written_back", error=str(reply))
            await slices.rest()
        await self.make_generation()
        await client.delete(keys.RESTORING)
        return True


def _steps(good: Snapshot, present: Snapshot) -> Iterator[list[tuple[str, RouteRecord]]]:
    step: list[tuple[str, RouteRecord]] = []
    commands = 0
    for path, record in good.records.items():
        if present.records.get(path) == record:
            continue
        step.append((path, record))
        commands += 2 + len(record.members)
        if commands >= _COMMANDS_AT_ONCE:
            yield step
            step, commands = [], 0
    if step:
        yield step


def _add(pipe: Any, path: str, record: RouteRecord, good: Snapshot, present: Snapshot, written: set[str]) -> None:
    for member in record.members:
        attributes: Mapping[str, str] | None = good.attributes.get(member)
        if attributes and member not in present.attributes and member not in written:
            written.add(member)
            pipe.hset(keys.upstream_key(member), mapping=dict(attributes))
    if record.members:
        pipe.sadd(keys.route_key(path), *record.members)
    found = present.records.get(path)
    if record.settings and not (found and found.settings):
        pipe.hset(keys.settings_key(path), mapping=dict(record.settings))

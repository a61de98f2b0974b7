"""The log of changes of the fleet in Redis: written in the background, read by who wants to know what has happened.

A stream, `slb:fleet:changes`, of some 2,000 entries at most, which goes a week after the last one. It is for
people: nothing in slb decides by it. Any program may write into it, so what is read is measured, and has the right
form.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import structlog
from redis.exceptions import RedisError, ResponseError

from slb.control import keys
from slb.control.cancelled import raise_if_cancelled
from slb.control.connection import Connection
from slb.control.resp import readable
from slb.observe.changes import LONGEST, Change, Changes

_KEPT = 2000
"""Entries, about: Redis cuts a stream by whole nodes of a hundred."""
_LIFE = 7 * 86400 * 1000
"""Milliseconds after the last entry."""
_TOGETHER = 0.2
"""Seconds in which all that is noted is written in one call."""
_AT_ONCE = 100
_RETRY = 2.0
MOST_READ = 200
_EXHAUSTED = "exhausted the last possible ID"
"""Redis says so once anybody has added an entry with `_LAST_ID`: to this stream nothing is added any more."""
_LAST_ID = f"{2**64 - 1}-{2**64 - 1}"
_MOST_PAGES = 15
"""Of 200 entries: all that the log has, since whoever writes a change cuts it."""

_log = structlog.get_logger("slb.fleet")


class Entry(NamedTuple):
    """`id`: its place in the log, which grows; `instance`: the id of the process that noted it, `name` its name.
    The rest is as in `Change`."""

    id: str
    time: float
    instance: str
    name: str
    what: str
    subject: str
    detail: str
    by: str


class ChangeLog:
    """`me`, `name`: this process. `changes`: what it notes."""

    def __init__(self, connection: Connection, changes: Changes, me: str, name: str) -> None:
        self._connection = connection
        self._changes = changes
        self._me = me
        self._name = name
        self._noted = asyncio.Event()
        self._refused = ""
        changes.on_note = self._noted.set

    async def run(self) -> None:
        """Write what is noted, until cancelled. While Redis is away it waits, and the last 500 with it."""
        while True:
            await self._noted.wait()
            self._noted.clear()
            await asyncio.sleep(_TOGETHER)
            while len(self._changes) and not await self.flush():
                raise_if_cancelled()
                await asyncio.sleep(_RETRY)
            raise_if_cancelled()

    async def flush(self) -> bool:
        """Write what waits now. Whether it was written: best effort."""
        if not self._connection.up:
            return False
        while some := self._changes.take(_AT_ONCE):
            try:
                async with asyncio.timeout(self._connection.command_deadline):
                    with readable():
                        await self._connection.servers.at(keys.FLEET_CHANGES, partial(self._written, some))
            except (RedisError, OSError, TimeoutError) as error:
                self._changes.put_back(some)
                self._log_refusal(error)
                return False
        return True

    async def _written(self, changes: Sequence[Change], node: Any) -> None:
        try:
            await self._add(changes, node)
        except ResponseError as error:
            if _EXHAUSTED not in str(error):
                raise
            _log.warning("changes_begun_anew", error=str(error))
            await self._add(changes, node, anew=True)

    async def _add(self, changes: Sequence[Change], node: Any, anew: bool = False) -> None:
        async with node.pipeline(transaction=anew) as pipe:
            if anew:
                pipe.delete(keys.FLEET_CHANGES)
            for each in changes:
                pipe.xadd(keys.FLEET_CHANGES, self._fields(each), maxlen=_KEPT, approximate=True)
            pipe.pexpire(keys.FLEET_CHANGES, _LIFE)
            await pipe.execute()

    def _fields(self, change: Change) -> dict[str, Any]:
        written = {name: _clean(each) for name, each in change._asdict().items() if name != "time"}
        return {"time": f"{change.time:.3f}", "instance": self._me, "name": self._name, **written}

    def _log_refusal(self, error: Exception) -> None:
        """Once for each reason."""
        reason = str(error)
        if reason != self._refused:
            self._refused = reason
            _log.info("changes_not_logged", error=reason)

    async def read(self, since: str = "", most: int = MOST_READ) -> list[Entry]:
        """The oldest first: those after the id `since`, or, without one, the last. Raises RedisUnavailable."""
        async with self._connection.answering():
            found: list[Entry] = await self._connection.servers.at(
                keys.FLEET_CHANGES, lambda node: _read(node, since, min(most, MOST_READ))
            )
            return found


async def _read(node: Any, since: str, most: int) -> list[Entry]:
    """In pages: what others wrote there, which is passed over, hides nothing behind it."""
    found: list[Entry] = []
    edge = f"({since}" if since else "+"
    for _ in range(_MOST_PAGES):
        if since:
            page = await node.xrange(keys.FLEET_CHANGES, edge, "+", count=MOST_READ)
        else:
            page = await node.xrevrange(keys.FLEET_CHANGES, edge, "-", count=MOST_READ)
        found += [entry for id_, fields in page if (entry := _entry(id_, fields)) is not None]
        if len(found) >= most or len(page) < MOST_READ:
            break
        edge = f"({page[-1][0]}"
    return found[:most] if since else found[:most][::-1]


def _entry(id_: Any, fields: Any) -> Entry | None:
    """None for what another program has written."""
    if not isinstance(id_, str) or id_ == _LAST_ID or not isinstance(fields, dict):
        return None
    texts = {name: fields.get(name, "") for name in Entry._fields[2:]}
    try:
        at = float(fields.get("time", ""))
    except ValueError:
        return None
    if not texts["what"] or not 0 <= at < 1e12 or any(len(each) > 2 * LONGEST for each in texts.values()):
        return None
    return Entry(id_, at, **texts)


def _clean(text: str) -> str:
    """Redis takes bytes: what is no Unicode, as in a name that a client sent, is escaped."""
    return text.encode("utf-8", "backslashreplace").decode()

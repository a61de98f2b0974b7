"""Registrations that end unless they are renewed, `slb:leases`: how they are renewed, and how they end."""

import asyncio
from collections.abc import Mapping, Sequence

import structlog
from redis.exceptions import RedisError, ResponseError

from slb.control import keys
from slb.control.cancelled import raise_if_cancelled
from slb.control.changes import Change, OnWritten, flat, leaving, replies_of
from slb.control.cluster_writes import ClusterWrites
from slb.control.connection import Connection
from slb.control.refused_writes import reason_of
from slb.control.resp import readable
from slb.control.scripts import source
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror

PERIOD = 1.0
"""Seconds between two looks; by `LONGEST_TICK` in lua/leases.lua a look may be one second late and still counts."""

_AT_ONCE = 200
_READ_AT_ONCE = 1000
_MOST_NAMED = 20
_CLOCK = "clock"

_log = structlog.get_logger()


class Renew:
    """`lua/renew.lua`: one call that extends the leases of registrations and changes nothing else."""

    def __init__(self, connection: Connection) -> None:
        self._by_key = ClusterWrites(connection) if connection.servers.cluster else None
        self._script = connection.client.register_script(source("leases", "renew"))

    async def __call__(
        self, items: Sequence[tuple[str, str, Mapping[str, str]]], ttls: Sequence[int | None]
    ) -> bool:
        """`items`: path, member, attributes; `ttls`: ms. False where one is to change; others may be renewed."""
        if self._by_key:
            return await self._by_key.renew(items, ttls)
        rows = list(zip(items, ttls, strict=True))
        for start in range(0, len(rows), _AT_ONCE):
            names: list[str] = []
            args: list[str] = []
            for (path, member, attributes), ttl in rows[start : start + _AT_ONCE]:
                names += [keys.route_key(path), keys.upstream_key(member)]
                args += [member, str(ttl), str(2 * len(attributes)), *flat(attributes)]
            if not await self._script(keys=[*names, keys.LEASES], args=args):
                return False
        return True


async def seconds_left(connection: Connection, items: Sequence[tuple[str, str]]) -> list[float | None]:
    """Of each registration (path, member) the seconds until its lease ends, None where it stands for good."""
    found: list[float | None] = []
    for start in range(0, len(items), _READ_AT_ONCE):
        entries = [keys.membership(*item) for item in items[start : start + _READ_AT_ONCE]]
        clock, *ends = await connection.client.zmscore(keys.LEASES, [_CLOCK, *entries])
        found += [None if end is None else max(0.0, end - (clock or 0.0)) / 1000 for end in ends]
    return found


class Leases:
    """Takes out registrations whose lease has ended, and moves the clock on by which they do: `lua/leases.lua`.
    `uses` as `Mirror` has it: attributes go with the last route that names their member."""

    def __init__(
        self,
        connection: Connection,
        mirror: Mirror,
        metrics: Metrics,
        on_written: OnWritten | None = None,
        period: float = PERIOD,
    ) -> None:
        self._connection = connection
        self._due = connection.client.register_script(source("leases", "leases_due"))
        self._change = Change(connection, on_written)
        self._mirror = mirror
        self._metrics = metrics
        self._period = period
        self._answered = False
        self._refused: set[str] = set()
        self._may_look = asyncio.Event()
        self._may_look.set()

    def leave_to_others(self) -> None:
        """Stop looking: this process gets no renewals from now on, and may be the only one."""
        self._may_look.clear()

    async def run(self) -> None:
        """Look until cancelled. While Redis does not answer the fleet's clock stands still; the first look after
        that, or after this process has started, does not count what has passed."""
        while True:
            await self._may_look.wait()
            try:
                with readable():
                    await self.expire()
            except (RedisError, OSError, TimeoutError) as error:
                self._answered = False
                self._log(error)
            raise_if_cancelled()
            await asyncio.sleep(self._period)

    def _log(self, error: Exception) -> None:
        """While Redis refuses, no lease ends: a warning for each reason. That it is away, the connection logs."""
        reason = reason_of(error)
        is_new = isinstance(error, ResponseError) and reason not in self._refused
        if is_new:
            self._refused.add(reason)
        (_log.warning if is_new else _log.debug)("leases_not_looked_at", error=reason)

    async def expire(self) -> int:
        """Look once; how many registrations were taken out. In steps: a renewal that comes between two holds."""
        gone: list[tuple[str, str]] = []
        is_more = True
        while is_more:
            due, is_more = await self._look()
            gone += await self._take_out(due)
        if gone:
            self._metrics.redis.registrations_expired += len(gone)
            named = [f"{member} of {path}" for path, member in gone[:_MOST_NAMED]]
            for path, member in gone[:_MOST_NAMED]:
                self._connection.note("lease_ended", member, path)
            _log.warning("registrations_expired", count=len(gone), upstreams=named)
        return len(gone)

    async def _look(self) -> tuple[list[str], bool]:
        """What has ended, and whether there may be more."""
        args = [int(self._answered), keys.LONGEST_ENTRY, _AT_ONCE]
        more, *due = await self._due(keys=[keys.LEASES], args=args)
        self._answered = True
        return due, more == "1"

    async def _take_out(self, due: Sequence[str]) -> list[tuple[str, str]]:
        named = {entry: keys.membership_of(entry) for entry in due}
        if foreign := [entry for entry, each in named.items() if each is None]:
            await self._connection.client.zrem(keys.LEASES, *foreign)
        ended = [each for each in named.values() if each is not None]
        rows = leaving("expire", ended, self._mirror)
        taken = replies_of("expire", rows, await self._change(rows))
        return [each for each, is_gone in zip(ended, taken, strict=True) if is_gone]

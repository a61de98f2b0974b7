"""Attributes of upstreams that no route names any more, left behind by a crash or by hand."""

from collections.abc import Callable

import structlog

from slb.control.changes import Change, orphaned
from slb.control.connection import Connection
from slb.control.slices import rested
from slb.routing.mirror import Mirror

_AT_ONCE = 1000
"""The rest waits for the next sweep."""

_log = structlog.get_logger()


class Orphans:
    """Removes `slb:upstream:<member>` hashes that two full syncs, `age` seconds apart, found without a route."""

    def __init__(self, connection: Connection, mirror: Mirror, age: float, clock: Callable[[], float]) -> None:
        self._change = Change(connection)
        self._mirror = mirror
        self._age = age
        self._clock = clock
        self._seen: dict[str, float] = {}

    async def sweep(self) -> None:
        """Call after a full sync that can be trusted."""
        now, members = self._clock(), list(self._mirror.attributes)
        unused = [member async for member in rested(members) if not self._mirror.uses(member)]
        seen = {member: self._seen.get(member, now) for member in unused}
        old = [member for member, since in seen.items() if now - since >= self._age][:_AT_ONCE]
        if old:
            await self._change([orphaned("remove_unused", member, self._mirror) for member in old])
            _log.info("orphaned_attributes_removed", count=len(old))
        self._seen = {member: since for member, since in seen.items() if member not in old}

"""Whether Redis may throw away what slb keeps there, said once at the start, and whether it has."""

import structlog
from redis.exceptions import ResponseError

from slb.control.connection import Connection

_KEEPS_ALL = "noeviction"

_log = structlog.get_logger()


async def warn_of_eviction(connection: Connection) -> None:
    """Log where a full Redis removes keys: routes go with `allkeys-...`, counts of slots with `volatile-...`, which
    takes what has a lifetime. Where Redis does not let us see it, nothing is said."""
    try:
        memory = await connection.client.info("memory")
    except ResponseError as error:
        _log.debug("info_forbidden", error=str(error))
        return
    policy, most = memory.get("maxmemory_policy", _KEEPS_ALL), memory.get("maxmemory", 0)
    if most and policy != _KEEPS_ALL:
        _log.warning(
            "redis_may_evict",
            redis=connection.url_shown,
            policy=policy,
            maxmemory=most,
            help=f"set maxmemory-policy {_KEEPS_ALL}: routes and counts of slots are no cache",
        )


class Evictions:
    """`happened`: Redis has thrown keys away since all that is known here stood there. What is missing then has not
    been removed. Where INFO is forbidden, this is not known, and False."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: int | None = None
        self._before = 0
        self.happened = False

    async def begin(self) -> None:
        """The table will be read: what is thrown away from now on may not be missed in it yet."""
        self._before = await self._count()
        if self._known is None:
            self._known = self._before

    async def look(self) -> bool:
        """Ask Redis; `happened`."""
        self.happened = 0 < await self._count() != self._known
        return self.happened

    def settled(self) -> None:
        """Nothing was missing in the table that was read."""
        self._known = self._before

    async def _count(self) -> int:
        try:
            return int((await self._connection.client.info("stats")).get("evicted_keys", 0))
        except ResponseError:
            return 0

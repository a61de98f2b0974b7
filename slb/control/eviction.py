"""Whether Redis may evict what slb keeps there, logged once at the start, and whether it has."""

import structlog
from redis.exceptions import ResponseError

from slb.control import keys
from slb.control.connection import Connection
from slb.control.history import Snapshot, holds

_UNKNOWN = "whether Redis is recent enough, evicts keys or has been replaced by another server"
_KEEPS_ALL = "noeviction"

_GONE = frozenset({"del", "expired", "rename_from"})
_LESS = frozenset({"srem", "spop", "hdel"})
"""Events of keys that were removed, and of those that lost members or fields. Eviction causes neither."""
_EVICTED = "evicted"

_MOST_REMOVALS = 5000

_log = structlog.get_logger()


async def warn_of_eviction(connection: Connection) -> None:
    """Log where a full Redis removes keys: routes with `allkeys-...`, counts of slots with `volatile-...`; and
    where Redis forbids INFO, so that this is not known."""
    try:
        of_each = [await each.info("memory") for each in await connection.servers.clients()]
    except ResponseError as error:
        _log.warning(
            "info_forbidden",
            redis=connection.url_shown,
            error=str(error),
            help=f"allow INFO: {_UNKNOWN} is not known",
        )
        return
    found = ((each.get("maxmemory_policy", _KEEPS_ALL), each.get("maxmemory", 0)) for each in of_each)
    policy, most = next((each for each in found if each[1] and each[0] != _KEEPS_ALL), (_KEEPS_ALL, 0))
    if most:
        _log.warning(
            "redis_may_evict",
            redis=connection.url_shown,
            policy=policy,
            maxmemory=most,
            help=f"set maxmemory-policy {_KEEPS_ALL}: routes and counts of slots are no cache",
        )


class Evictions:
    """`happened`: Redis has evicted keys, perhaps of other programs, since it last had the whole table. Events
    report slb's own keys; the count in INFO, which may be forbidden, has the others and those whose event was lost.
    It is 0 again when a server starts."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: int | None = None
        self._before = 0
        self._events = 0
        self._events_before = 0
        self._removals: dict[str, str] = {}
        self._removals_before: dict[str, str] = {}
        self.happened = False

    def notified(self, key: str, event: str) -> None:
        if event == _EVICTED:
            self._events += 1
        elif event in _GONE or event in _LESS:
            if len(self._removals) >= _MOST_REMOVALS:
                self._removals.clear()
            self._removals[key] = event
        else:
            for removals in (self._removals, self._removals_before):
                if removals.get(key) in _GONE:
                    del removals[key]  # it is there again

    def was_removed(self, entry: str, found: Snapshot) -> bool:
        """Whether a command took an entry away that is not in `found`, not an eviction."""
        key = keys.key_of(entry)
        event = self._removals.get(key) or self._removals_before.get(key)
        return event in _GONE or (event in _LESS and holds(key, found))

    async def begin(self) -> bool:
        """The table will be read: what is evicted from now on may not be missing in it yet. Returns `happened`."""
        self._removals_before |= self._removals
        self._removals = {}
        self._events_before = self._events
        self._before = await self._count()
        if self._known is None:
            self._known = self._before
        return self._judged(self._before)

    async def look(self) -> bool:
        """Ask Redis; `happened`."""
        if not self._judged(await self._count()):
            self._removals.clear()  # they came before whatever is evicted next
        return self.happened

    def settled(self) -> None:
        """Nothing was missing in the table that was read."""
        self._known = self._before
        self._events -= self._events_before
        self._events_before = 0
        self._removals_before = {}

    def _judged(self, count: int) -> bool:
        self.happened = self._events > 0 or 0 < count != self._known
        return self.happened

    async def _count(self) -> int:
        try:
            of_each = [await each.info("stats") for each in await self._connection.servers.clients()]
            return sum(int(each.get("evicted_keys", 0)) for each in of_each)
        except ResponseError:
            return 0

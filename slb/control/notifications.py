"""Keyspace notifications: switched on, subscribed to, and doubted."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn
from uuid import uuid4

import structlog
from redis.exceptions import RedisError, ResponseError

from slb.control import keys
from slb.control.connection import Connection
from slb.control.endpoint import Endpoint
from slb.control.subscription import OnMessage, Subscription

FLAGS = "Kgshxe"
"""Keyspace channels; generic, set, hash, expiry and eviction events."""

_SETTING = "notify-keyspace-events"
_IN_ALL = frozenset("gshxe")
"""Flags that `A` stands for."""

_CANARY_LIFE = 5000

_log = structlog.get_logger()


class KeyEvents(Subscription):
    """A subscription to what happens to our keys. In a cluster, of those at the node of `endpoint`; `canary` is
    one."""

    def __init__(
        self, connection: Connection, ping: float, endpoint: Endpoint | None = None, canary: str = ""
    ) -> None:
        patterns = keys.channel_patterns(connection.db)
        super().__init__(connection, patterns=patterns, ping=ping, endpoint=endpoint)
        self._prefix = keys.channel_prefix(connection.db)
        self._canary_key = canary or keys.CANARY + uuid4().hex
        self._canary_seen = asyncio.Event()

    async def follow(self, on_event: OnMessage, on_pong: Callable[[], None]) -> NoReturn:
        """As `listen`, with `on_event(key, event)`."""
        await self.listen(lambda channel, event: self._event(channel, event, on_event), on_pong)

    def _event(self, channel: str, event: str, on_event: OnMessage) -> None:
        key = channel.removeprefix(self._prefix)
        if key == self._canary_key:
            self._canary_seen.set()
        elif not key.startswith(keys.CANARY):
            on_event(key, event)

    async def arrive(self, wait: float) -> bool:
        """Whether notifications come, by a key written for it, if Redis takes it. `follow` must be running."""
        self._canary_seen.clear()
        try:
            await self._connection.client.set(self._canary_key, "1", px=_CANARY_LIFE)
            async with asyncio.timeout(wait):
                await self._canary_seen.wait()
        except TimeoutError:
            return False
        except ResponseError as error:
            _log.debug("canary_refused", error=str(error))
            return False
        return True


async def switch_on(connection: Connection) -> bool:
    """Add the flags that are missing; other programs may need others. False where Redis forbids it. Replicas of a
    cluster get them too, as far as they answer: once promoted they tell what happens from the start."""
    for replica in await connection.servers.replicas():
        with suppress(RedisError, OSError):
            await _switch_on(replica)
    return all([await _switch_on(each) for each in await connection.servers.clients()])


async def _switch_on(client: Any) -> bool:
    try:
        found: dict[str, Any] = await client.config_get(_SETTING)
        present = str(found.get(_SETTING, ""))
        wanted = missing_flags(present)
        if wanted:
            await client.config_set(_SETTING, present + wanted)
            _log.info("keyspace_notifications_on", before=present, added=wanted)
    except ResponseError as error:
        _log.debug("config_forbidden", error=str(error))
        return False
    return True


def missing_flags(present: str) -> str:
    """Those of FLAGS that `present` lacks; `A` stands for all kinds of event."""
    have = set(present) | (_IN_ALL if "A" in present else set())
    return "".join(flag for flag in FLAGS if flag not in have)

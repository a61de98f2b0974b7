"""Keyspace notifications: switched on, subscribed to, listened to, and doubted."""

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any
from uuid import uuid4

import structlog
from redis.asyncio.client import PubSub
from redis.exceptions import ResponseError

from slb.control import keys
from slb.control.cancelled import raise_if_cancelled
from slb.control.connection import Connection, refusal_in
from slb.control.slices import Slices

FLAGS = "Kgshx"
"""Keyspace channels; generic, set, hash and expiry events."""

_SETTING = "notify-keyspace-events"
_IN_ALL = frozenset("gshx")
"""Flags that `A` stands for."""

_CANARY_LIFE = 5000

_log = structlog.get_logger()


class Subscription:
    """One subscription connection. Entering it subscribes and awaits the acknowledgement; any error ends it."""

    def __init__(
        self, connection: Connection, ping_interval: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connection = connection
        self._ping_interval = ping_interval
        self._clock = clock
        self._prefix = keys.channel_prefix(connection.db)
        self._pubsub: PubSub = connection.client.pubsub()
        self._canary_key = keys.CANARY + uuid4().hex
        self._canary_seen = asyncio.Event()

    async def __aenter__(self) -> "Subscription":
        patterns = keys.channel_patterns(self._connection.db)
        try:
            async with asyncio.timeout(self._connection.command_deadline):
                await self._pubsub.psubscribe(*patterns)
                acknowledged = 0
                while acknowledged < len(patterns):
                    message = await self._pubsub.get_message(timeout=self._connection.command_deadline)
                    acknowledged += message is not None and message["type"] == "psubscribe"
        except BaseException:
            await self._pubsub.aclose()  # type: ignore[no-untyped-call]
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pubsub.aclose()  # type: ignore[no-untyped-call]

    async def listen(self, on_key: Callable[[str], None], on_pong: Callable[[], None]) -> None:
        """Call `on_key(key)` for each event and `on_pong()` for each PING answered, until the connection fails.
        A half-open connection shows no error by itself: the PING's deadline is what finds it. A Redis whose last
        save has failed refuses PING; that is an answer too."""
        slices = Slices()
        pong_due: float | None = None
        next_ping = self._clock() + self._ping_interval
        while True:
            raise_if_cancelled()
            until = next_ping if pong_due is None else pong_due
            message = await self._next(max(0.001, until - self._clock()))
            if message is None:
                if self._clock() < until:
                    continue
                if pong_due is not None:
                    raise TimeoutError("the subscription does not answer PING")
                await self._pubsub.ping()
                pong_due = self._clock() + self._connection.command_deadline
            elif message["type"] == "pong":
                pong_due, next_ping = None, self._clock() + self._ping_interval
                on_pong()
            elif message["type"] == "pmessage":
                self._event(message["channel"], on_key)
            await slices.rest()

    async def _next(self, timeout: float) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] | None = await self._pubsub.get_message(timeout=timeout)
        except ResponseError as error:
            if refusal_in(error):
                raise
            return {"type": "pong"}
        return found

    def _event(self, channel: str, on_key: Callable[[str], None]) -> None:
        key = channel.removeprefix(self._prefix)
        if key == self._canary_key:
            self._canary_seen.set()
        elif not key.startswith(keys.CANARY):
            on_key(key)

    async def arrive(self, wait: float) -> bool:
        """Whether notifications come, found out by a key written for it; no, where Redis lets nobody write it.
        `listen` must be running."""
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
    """Add the flags that are missing; False where Redis does not let us see or set them.

    A restart forgets them, and other programs may need flags of their own: only add.
    """
    client = connection.client
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

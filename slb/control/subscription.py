"""Subscriptions: entered, listened to, doubted, and made anew where they break."""

import asyncio
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NoReturn

import structlog
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError, ResponseError

from slb.control.cancelled import raise_if_cancelled
from slb.control.connection import Connection, refusal_in
from slb.control.slices import Slices

PING = 5.0
"""Seconds of silence before a subscription is asked whether it is there."""

OnMessage = Callable[[str, str], None]
"""Called with the channel and what was said there; anybody may say anything."""

_log = structlog.get_logger()


class Subscription:
    """One connection of its own. Entering it subscribes and awaits what acknowledges that; any error ends it.
    `patterns` are channels with wildcards: an ACL has to name them to the letter."""

    def __init__(
        self,
        connection: Connection,
        channels: Sequence[str] = (),
        patterns: Sequence[str] = (),
        ping: float = PING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._channels = channels
        self._patterns = patterns
        self._ping = ping
        self._clock = clock
        self._pubsub: PubSub = connection.client.pubsub()

    async def __aenter__(self) -> "Subscription":
        try:
            async with asyncio.timeout(self._connection.command_deadline):
                await self._subscribe()
        except BaseException:
            await self._pubsub.aclose()  # type: ignore[no-untyped-call]
            raise
        return self

    async def _subscribe(self) -> None:
        if self._channels:
            await self._pubsub.subscribe(*self._channels)
        if self._patterns:
            await self._pubsub.psubscribe(*self._patterns)
        acknowledged = 0
        while acknowledged < len(self._channels) + len(self._patterns):
            message = await self._pubsub.get_message(timeout=self._connection.command_deadline)
            acknowledged += message is not None and message["type"] in ("subscribe", "psubscribe")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pubsub.aclose()  # type: ignore[no-untyped-call]

    async def listen(self, on_message: OnMessage, on_pong: Callable[[], None] = lambda: None) -> NoReturn:
        """Pass on what comes, and tell of each PING that is answered, until the connection fails: then it raises.
        A half-open connection shows no error by itself: the PING's deadline is what finds it. A Redis whose last
        save has failed refuses PING; that is an answer too."""
        slices = Slices()
        pong_due: float | None = None
        next_ping = self._clock() + self._ping
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
                pong_due, next_ping = None, self._clock() + self._ping
                on_pong()
            elif message["type"] in ("message", "pmessage"):
                on_message(message["channel"], message["data"])
            await slices.rest()

    async def _next(self, timeout: float) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] | None = await self._pubsub.get_message(timeout=timeout)
        except ResponseError as error:
            if refusal_in(error):
                raise
            return {"type": "pong"}
        return found


async def hear(connection: Connection, channel: str, on_message: OnMessage, retry: float) -> NoReturn:
    """Listen to a channel until cancelled. What is said there are hints: who misses one learns the same later, so
    Redis being away, or not letting us subscribe, is nothing but tried again, `retry` seconds later."""
    while True:
        try:
            async with Subscription(connection, [channel]) as subscription:
                await subscription.listen(on_message)
        except (RedisError, OSError, TimeoutError) as error:
            _log.debug("subscription_broke", channel=channel, error=str(error))
        raise_if_cancelled()
        await asyncio.sleep(retry)

"""Hears of health checks that changed their mind, as soon as whoever ran them tells; and of upstreams that refuse
connections, or serve again, which it tells too."""

import asyncio
import time
from collections.abc import Callable

import structlog
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from slb.control import keys
from slb.control.cancelled import raise_if_cancelled
from slb.control.connection import Connection

_PING = 5.0
_RETRY = 1.0
_LONGEST = 4096
"""Characters: a check's path has 2048 at most."""

_log = structlog.get_logger()

Heard = Callable[[str, str, int], None]
"""Called with a check's key, its state, and its results in a row against that; or with a member, `REFUSED` or
`SERVED`, and 0."""

REFUSED, SERVED = "refused", "served"
"""What is told of members. No check is ever in such a state."""


class HealthNews:
    """A hint, no more: who misses one learns the same when the check is due again. So Redis being away, or not
    letting us subscribe, is nothing but tried again."""

    def __init__(
        self,
        connection: Connection,
        clock: Callable[[], float] = time.monotonic,
        ping: float = _PING,
        retry: float = _RETRY,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._ping = ping
        self._retry = retry

    async def run(self, heard: Heard) -> None:
        """Listen until cancelled."""
        while True:
            if self._connection.up:
                try:
                    await self._listen(heard)
                except (RedisError, OSError, TimeoutError) as error:
                    _log.debug("health_news_broke", error=str(error))
            raise_if_cancelled()
            await asyncio.sleep(self._retry)

    async def tell(self, member: str, news: str) -> None:
        """Let all instances hear it. Where Redis is away each finds out for itself."""
        try:
            async with asyncio.timeout(self._connection.command_deadline):
                await self._connection.client.publish(keys.HEALTH_CHANNEL, f"{member} {news} 0")
        except (RedisError, OSError, TimeoutError) as error:
            _log.debug("health_not_told", upstream=member, error=str(error))

    async def _listen(self, heard: Heard) -> None:
        pubsub: PubSub = self._connection.client.pubsub()
        try:
            async with asyncio.timeout(self._connection.command_deadline):
                await pubsub.psubscribe(keys.HEALTH_CHANNEL)
            await self._follow(pubsub, heard)
        finally:
            await pubsub.aclose()  # type: ignore[no-untyped-call]

    async def _follow(self, pubsub: PubSub, heard: Heard) -> None:
        """A half-open connection shows no error by itself: silence after a PING is what ends it."""
        pinged, until = False, self._clock() + self._ping
        while True:
            raise_if_cancelled()
            message = await pubsub.get_message(timeout=max(0.001, until - self._clock()))
            if message is not None:
                pinged, until = False, self._clock() + self._ping
                if message["type"] == "pmessage":
                    _pass_on(message["data"], heard)
            elif self._clock() >= until:
                if pinged:
                    raise TimeoutError("the subscription does not answer PING")
                await pubsub.ping()
                pinged, until = True, self._clock() + self._connection.command_deadline


def _pass_on(text: str, heard: Heard) -> None:
    """`key state run`, or `member news 0`; anybody may publish anything, and other forms are passed over."""
    if len(text) > _LONGEST:
        return
    key, _, rest = text.rpartition(" ")
    key, _, state = key.rpartition(" ")
    if rest.isascii() and rest.isdigit() and len(rest) < 10:
        heard(key, state, int(rest))

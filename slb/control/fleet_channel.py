"""How instances show each other what they see: those with a viewer ask, all others answer for as long as they are
asked. Nothing is published while nobody asks, and each process listens to the asks alone.

All of it are hints: what is missed comes again with the next one. Any program that may publish may publish
anything, so what comes is read with `slb/fleet/frame.py`, and here only measured.
"""

import asyncio
from collections.abc import Callable
from typing import NoReturn

import structlog
from redis.exceptions import RedisError

from slb.control import keys
from slb.control.connection import Connection
from slb.control.resp import readable
from slb.control.subscription import follow_channel

_RETRY = 1.0
LONGEST_ASK = 1024
"""Characters of an ask: a request's id has 128 at most."""
LONGEST = 1 << 18
"""Characters of a frame or an answer. What is longer is not read."""

_log = structlog.get_logger("slb.fleet")

OnText = Callable[[str], None]


class FleetChannel:
    """`me` is this process: what only concerns it comes by a channel of its own."""

    def __init__(self, connection: Connection, me: str, retry: float = _RETRY) -> None:
        self._connection = connection
        self._own = keys.FLEET_TO_CHANNEL + me
        self._retry = retry

    async def follow_asks(self, on_ask: OnText) -> NoReturn:
        def read(_: str, text: str) -> None:
            if len(text) <= LONGEST_ASK:
                on_ask(text)

        await follow_channel(self._connection, keys.FLEET_ASK_CHANNEL, read, self._retry)

    async def follow_frames(
        self,
        on_frame: OnText,
        on_answer: OnText,
        on_begin: Callable[[], None],
        on_break: Callable[[Exception], None],
    ) -> NoReturn:
        """Until cancelled: what all publish, and what is published for this process alone."""

        def read(channel: str, text: str) -> None:
            if len(text) <= LONGEST:
                (on_answer if channel == self._own else on_frame)(text)

        channels = (keys.FLEET_FRAMES_CHANNEL, self._own)
        await follow_channel(self._connection, channels, read, self._retry, on_begin, on_break)

    async def ask(self, ask: bytes) -> str:
        """Why it could not be published; empty where it was."""
        return await self._publish(keys.FLEET_ASK_CHANNEL, ask)

    async def show(self, frame: bytes) -> None:
        await self._publish(keys.FLEET_FRAMES_CHANNEL, frame)

    async def answer(self, asker: str, answer: bytes) -> None:
        await self._publish(keys.FLEET_TO_CHANNEL + asker, answer)

    async def _publish(self, channel: str, what: bytes) -> str:
        """Best effort. While Redis is known to be away it is not tried: a viewer asks again."""
        if not self._connection.up:
            return "Redis does not answer"
        try:
            async with asyncio.timeout(self._connection.command_deadline):
                with readable():
                    await self._connection.client.publish(channel, what)
        except (RedisError, OSError, TimeoutError) as error:
            _log.debug("fleet_not_told", channel=channel, error=str(error))
            return str(error) or "Redis does not answer in time"
        return ""

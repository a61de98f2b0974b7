"""Subscriptions: entered, listened to, doubted, and made anew where they break."""

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NoReturn, Self

import structlog
from redis.exceptions import InvalidResponse, RedisError

from slb.backoff import Backoff
from slb.control.connection import Connection, refusal_in
from slb.control.endpoint import Endpoint
from slb.control.resp import pack
from slb.control.retry import FIRST_PAUSE
from slb.lifecycle import set_within

PING = 5.0
"""Seconds of silence before a subscription is asked whether it is there."""

OnMessage = Callable[[str, str], None]
"""Called with the channel and the message; any program may publish anything."""

_log = structlog.get_logger()


class Subscription:
    """One connection of its own. Entering it subscribes and awaits what acknowledges that; any error ends it.
    `patterns` are channels with wildcards: an ACL has to name them to the letter. `endpoint`: of the node that is
    to be heard, in a cluster; what is published is heard at each."""

    def __init__(
        self,
        connection: Connection,
        channels: Sequence[str] = (),
        patterns: Sequence[str] = (),
        ping: float = PING,
        endpoint: Endpoint | None = None,
    ) -> None:
        self._connection = connection
        self._endpoint = endpoint or connection.servers.endpoint("".join([*channels, *patterns][:1]))
        self._wanted = (("SUBSCRIBE", channels), ("PSUBSCRIBE", patterns))
        self._unacknowledged = len(channels) + len(patterns)
        self._acknowledged = asyncio.Event()
        self._ping = ping
        self._pong = asyncio.Event()
        self._ended = asyncio.Event()
        self._error: Exception | None = None
        self._early: list[tuple[str, str]] = []
        self._on_message: OnMessage = lambda channel, text: self._early.append((channel, text))

    async def __aenter__(self) -> Self:
        self._wire = self._connection.wire_to(self._endpoint, self._came)
        self._wire.send(b"".join(pack(command, *names) for command, names in self._wanted if names))
        try:
            async with asyncio.timeout(self._connection.command_deadline):
                await self._acknowledged.wait()
            self._raise_error()
        except BaseException:
            self._wire.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wire.close()

    async def listen(self, on_message: OnMessage, on_pong: Callable[[], None] = lambda: None) -> NoReturn:
        """Pass on each message in the event loop's turn that reads it, and call `on_pong` for each PING that is
        answered, until the connection or `on_message` fails: then it raises. Only the PING finds a half-open
        connection."""
        early, self._early = self._early, []
        for message in early:
            on_message(*message)
        self._on_message = on_message
        while True:
            await set_within(self._ended, self._ping)
            self._raise_error()
            self._pong.clear()
            self._wire.send(pack("PING"))
            for _ in range(2):  # a time in which this process stood still ends one of them at most
                await set_within(self._pong, self._connection.command_deadline / 2)
            if not self._pong.is_set():
                raise TimeoutError("the subscription does not answer PING")
            self._raise_error()
            on_pong()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _came(self, reply: Any) -> None:
        match reply:
            case RedisError():
                self._failed(reply)
            case ["message", str(channel), str(text)] | ["pmessage", _, str(channel), str(text)]:
                self._pass_on(channel, text)
            case ["pong", *_]:
                self._pong.set()
            case ["subscribe" | "psubscribe", *_]:
                self._unacknowledged -= 1
                if not self._unacknowledged:
                    self._acknowledged.set()
            case _:
                self._end(InvalidResponse("no message of a subscription"))
                self._wire.close()

    def _failed(self, error: RedisError) -> None:
        """A Redis whose last save has failed refuses PING; that is an answer too."""
        is_ping = not self._unacknowledged and self._wire.lost is None
        if is_ping and not refusal_in(error):
            self._pong.set()
        else:
            self._end(error)

    def _pass_on(self, channel: str, text: str) -> None:
        try:
            self._on_message(channel, text)
        except Exception as error:  # noqa: BLE001 -- `listen` raises it
            self._end(error)
            self._wire.close()

    def _end(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        for event in (self._acknowledged, self._pong, self._ended):
            event.set()


async def follow_channel(
    connection: Connection,
    channel: str | Sequence[str],
    on_message: OnMessage,
    retry: float,
    on_begin: Callable[[], None] = lambda: None,
    on_break: Callable[[Exception], None] = lambda error: None,
) -> NoReturn:
    """Pass on the messages of a channel, or of several, until cancelled. They are hints: where one is lost, all it
    reports is found later. What fails is tried again: at once after a calm time, then after up to `retry` seconds.
    `on_begin` is called each time from which on messages come: some before it may have been missed; `on_break` each
    time that they end."""
    backoff, loop = Backoff(), asyncio.get_running_loop()
    channels = [channel] if isinstance(channel, str) else channel
    while True:
        try:
            async with Subscription(connection, channels) as subscription:
                on_begin()
                await subscription.listen(on_message)
        except (RedisError, OSError, TimeoutError) as error:
            _log.debug("subscription_broke", channel=channel, error=str(error))
            on_break(error)
        await asyncio.sleep(backoff.pause(loop.time(), min(FIRST_PAUSE, retry), retry))

"""One connection to Redis: commands out, replies in order. redis-py does the same at several times the price; this
one is for what is called thousands of times a second, or has to be heard at once."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, cast

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, MovedError, ReadOnlyError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeout

from slb.control.endpoint import Endpoint, again, caused
from slb.control.redis_url import Address
from slb.control.resp import MORE_NEEDED, Reader
from slb.control.slices import SLICE

MOST_UNSENT = 64 << 20
"""Bytes that may wait for a server that does not read; then the connection ends."""

OnReply = Callable[[Any], None]
"""Called with a reply, in the event loop's turn that read it. An error that Redis replied, or the end of the
connection, comes as a RedisError."""


class Wire(asyncio.Protocol):
    """Begins to connect when made; commands may be sent at once. The login goes before the first of them in one
    write, so that a far Redis is asked once; where a database has to be selected, or the server's role to be
    known, they wait until it is.

    The first failure ends it: `lost` has the cause, and another one has to be made. It has no deadline but that
    of connecting. `on_push` is called with what comes while no command awaits a reply, and once with the end. A
    server that refuses to write as a replica ends it too: the next one is made to where the master is then.
    `address`: what it is connected to, where that had to be found."""

    def __init__(self, endpoint: Endpoint, on_push: OnReply | None = None) -> None:
        self.lost: RedisError | None = None
        self.address: Address | None = None
        self._endpoint = endpoint
        self._on_push = on_push
        self._loop = asyncio.get_running_loop()
        self._reader = Reader()
        self._transport: asyncio.Transport | None = None
        self._unsent = endpoint.login()
        self._expected: deque[OnReply] = deque([self._logged_in] * len(self._unsent))
        self._held = endpoint.is_awaited
        self._logins = len(self._unsent)
        self._later: list[bytes] = []
        self._connecting = self._loop.create_task(endpoint.connect(self), name="redis-connect")
        self._connecting.add_done_callback(self._connected)

    @property
    def is_current(self) -> bool:
        """Whether it leads to where it would be made again; also while it is being made."""
        return self._endpoint.is_current(self.address)

    # -- out

    def send(self, commands: bytes, *on_reply: OnReply) -> None:
        """Write packed commands; one of `on_reply` is called for the reply to each, at once where the
        connection is lost."""
        if self.lost is not None:
            _end(on_reply, self.lost)
            return
        self._expected.extend(on_reply)
        if self._held:
            self._later.append(commands)
        elif self._transport is None:
            self._unsent.append(commands)
        else:
            self._transport.write(commands)
        if self._waiting() > MOST_UNSENT:
            self._lose(RedisConnectionError(f"{self._endpoint.shown} does not read what it is sent"))

    def _waiting(self) -> int:
        if self._transport is not None and not self._held:
            return self._transport.get_write_buffer_size()
        return sum(map(len, self._unsent)) + sum(map(len, self._later))

    def close(self) -> None:
        """End it, and what is under way with it; nothing that still waits is sent."""
        self._lose(RedisConnectionError("the connection was given up"))

    # -- as the event loop has it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop registers with no ABC
        if self.lost is not None:
            self._transport.abort()
            return
        self._transport.write(b"".join(self._unsent))
        self._unsent.clear()

    def _connected(self, task: asyncio.Task[Address | None]) -> None:
        if task.cancelled():
            self.close()
        elif (error := task.exception()) is not None:
            failure = error if isinstance(error, RedisError) else caused(RedisConnectionError(str(error)), error)
            self._lose(failure)
        else:
            self.address = task.result()
            if self._endpoint.login_within is not None:
                self._loop.call_later(self._endpoint.login_within, self._check_login)

    def _check_login(self) -> None:
        if self._logins:
            self._lose(RedisTimeout("Timeout logging in to server"))

    def _logged_in(self, reply: Any) -> None:
        if (fault := self._endpoint.fault_in(reply)) is not None:
            self._lose(fault)
            return
        self._logins -= 1
        if self._held and not self._logins and self._transport is not None:
            self._held = False
            self._transport.write(b"".join(self._later))
            self._later.clear()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        self._pass_on()

    def connection_lost(self, error: Exception | None) -> None:
        if error is None:
            self._lose(RedisConnectionError("Connection closed by server."))
        else:
            text = f"Error while reading from {self._endpoint.shown} : {error.args}"
            self._lose(caused(RedisConnectionError(text), error))

    # -- in

    def _pass_on(self) -> None:
        """Pass on whole replies for one slice of time; the rest in the event loop's next turn, and nothing is
        read until then."""
        until = time.perf_counter() + SLICE
        while self.lost is None:
            try:
                reply = self._reader.gets()
            except InvalidResponse as error:
                self._lose(error)
                return
            if reply is MORE_NEEDED:
                return
            self._take(reply)
            if time.perf_counter() >= until and self.lost is None and self._transport is not None:
                self._transport.pause_reading()
                self._loop.call_soon(self._go_on)
                return

    def _go_on(self) -> None:
        if self.lost is None and self._transport is not None:
            if not self._transport.is_closing():
                self._transport.resume_reading()
            self._pass_on()

    def _take(self, reply: Any) -> None:
        if self._expected:
            self._expected.popleft()(reply)
        elif self._on_push is not None:
            self._on_push(reply)
        elif isinstance(reply, RedisError):
            self._lose(reply)
        else:
            self._lose(InvalidResponse("a reply to no command"))
        if isinstance(reply, ResponseError):
            self._refused(reply)

    def _refused(self, reply: ResponseError) -> None:
        if isinstance(reply, MovedError):
            self._endpoint.moved()
        elif isinstance(reply, ReadOnlyError):
            self._endpoint.refused_to_write()
            self._lose(caused(RedisConnectionError("the server has become a replica"), reply))

    def _lose(self, error: RedisError) -> None:
        if self.lost is not None:
            return
        self.lost = error
        if self._logins or self._transport is None:
            self._endpoint.failed()
        self._connecting.cancel()
        if self._transport is not None:
            self._transport.abort()
        expected, self._expected = self._expected, deque()
        _end(expected, error)
        if self._on_push is not None:
            self._on_push(again(error))


def _end(expected: Iterable[OnReply], error: RedisError) -> None:
    for on_reply in expected:
        on_reply(again(error))

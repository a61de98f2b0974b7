"""Turns of connections whose bytes wait for aiohttp's parser. The 256 KiB that one read may bring can be 43,000
chunks of one byte, and 50 ms of work for the parser. So aiohttp gets a slice at a time, and in each turn of the
event loop only one connection gets one."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from aiohttp import web

SLICE = 1024  # bytes that aiohttp is given at once: 170 chunks at worst, some 0.2 ms

LINGER = 1.0  # seconds a refused body is still read, so that its sender sees the answer


class Turns:
    """Connections that wait for their turn, in the order they came. One with more to do afterwards waits again."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` in a later turn of the event loop, and nothing else of ours in that turn."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        self._waiting.append(go_on)

    def _next(self) -> None:
        if len(self._waiting) > 1:
            asyncio.get_running_loop().call_soon(self._next)
        go_on = self._waiting.popleft()
        go_on()


class InTurns(web.RequestHandler):
    """A connection of aiohttp's that takes turns with all others of `turns`."""

    __slots__ = ("_answered", "_gone", "_rest", "_turns", "_waits")

    def __init__(self, turns: Turns, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._turns = turns
        self._rest = bytearray()
        """What aiohttp gets in later turns. Reading is paused meanwhile. A client's end is seen behind it."""
        self._waits = False  # for its turn
        self._gone: asyncio.Future[None] | None = None
        self._answered = False  # for the last time: whatever comes now is read only so that the answer is seen

    def _feed(self, data: bytes) -> None:
        raise NotImplementedError

    def connection_lost(self, exc: BaseException | None) -> None:
        self._rest.clear()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)
        super().connection_lost(exc)

    def _feed_in_turns(self, data: bytes) -> None:
        if not data:  # aiohttp goes on with what it has; that came before the rest
            self._feed(data)
            return
        self._rest += data
        self._pause_transport_reading()
        self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        """Not while aiohttp's own buffers are full: it calls `_resume_transport_reading` afterwards."""
        if not (self._waits or self._reading_paused or self._buffer_paused):
            self._waits = True
            self._turns.wait(self._take_turn)

    def _take_turn(self) -> None:
        self._waits = False
        if self._answered or self._close or self._force_close:
            self._rest.clear()
        elif self._rest and not (self._reading_paused or self._buffer_paused):
            data = bytes(self._rest[:SLICE])
            del self._rest[:SLICE]
            self._feed(data)
        if not (self._reading_paused or self._buffer_paused):
            self._resume_transport_reading()

    def _resume_transport_reading(self) -> None:
        """aiohttp calls this to read on: what has been read already comes first."""
        if self._rest:
            self._wait_for_turn()
        else:
            super()._resume_transport_reading()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """What follows the last answer of a connection is thrown away as it comes, rather than parsed."""
        reply, reset = await super().finish_response(request, resp, start_time)
        if not reply.keep_alive:
            self._answered = True
            if self._rest or not request.content.is_eof():
                await self._linger()
        return reply, reset

    async def _linger(self) -> None:
        """Send the end of the stream, and read on: closing with unread bytes may lose the answer."""
        self._rest.clear()
        self._lingering_time = 0.0  # aiohttp's: it waits for the end of a body that is not parsed
        if self.transport is None or self.transport.is_closing():
            return
        self.resume_reading()
        self._resume_reading_for_buffer()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._gone = self._loop.create_future()
        await asyncio.wait([self._gone], timeout=LINGER)

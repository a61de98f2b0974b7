"""The TCP listener (RFC 7766): queries one after another on a connection, answered in their order."""

import asyncio
import socket
from collections.abc import Callable, Collection
from typing import cast

from slb.dns.responder import Responder
from slb.places import Places

IDLE = 10.0
"""Seconds within which a whole query has to come, and its answer to be taken."""
_AT_ONCE = 32
"""Queries of one connection that are answered in one turn of the loop."""
_LENGTH = 2
_LOOK = 0.02
"""Seconds between two looks at whether connections have ended."""
_PER_PEER = 4
"""A fourth of all connections may come from one address."""


class TcpListener:
    """Answers on connections to the `bound` sockets, `limit` of them at most."""

    def __init__(self, responder: Responder, limit: int) -> None:
        self._responder = responder
        self._places: Places[asyncio.Transport] = Places()
        self.set_limit(limit)
        self._servers: dict[socket.socket, asyncio.Server] = {}

    def set_limit(self, limit: int) -> None:
        self._places.set_limits(limit, max(1, limit // _PER_PEER), 0)

    @property
    def connections(self) -> int:
        return len(self._places.taken)

    async def start(self, bound: list[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        for each in bound:
            self._servers[each] = await loop.create_server(
                lambda: _Connection(self._responder, self._places), sock=each
            )

    def let_go(self, shared: Collection[socket.socket]) -> None:
        """Take no more connections where another process does."""
        for bound in [each for each in self._servers if each in shared]:
            self._servers.pop(bound).close()

    async def leave(self, seconds: float) -> None:
        """Take no more connections, and wait until those there are have ended, for so long at most."""
        self.let_go(list(self._servers))
        until = asyncio.get_running_loop().time() + seconds
        await asyncio.sleep(_LOOK)  # for those that were accepted just now
        while self._places.taken and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(_LOOK)

    def stop(self) -> None:
        """Take no more connections, and end those there are."""
        for server in self._servers.values():
            server.close()
        for transport in list(self._places.taken):
            transport.abort()


class _Connection(asyncio.Protocol):
    def __init__(self, responder: Responder, places: Places[asyncio.Transport]) -> None:
        self._answer: Callable[[bytes, str], bytes | None] = responder.over_tcp
        self._places = places
        self._peer = ""
        self._waiting = bytearray()
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._next: asyncio.Handle | None = None
        self._is_full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._peer = (transport.get_extra_info("peername") or ("",))[0]
        if not self._places.take(self._transport, self._peer):
            self._transport.abort()
            return
        self._expect()

    def data_received(self, data: bytes) -> None:
        self._waiting += data
        self._answer_some()

    def eof_received(self) -> bool:
        return bool(self._next) or self._is_full  # what has come is answered first

    def pause_writing(self) -> None:
        """The client does not read: nothing more is read of it either."""
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._answer_some()

    def connection_lost(self, error: Exception | None) -> None:
        self._places.leave(self._transport)
        for each in (self._timer, self._next):
            if each is not None:
                each.cancel()

    def _answer_some(self) -> None:
        self._next = None
        waiting, at = self._waiting, 0
        for _ in range(_AT_ONCE):
            end = at + _LENGTH + int.from_bytes(waiting[at : at + _LENGTH], "big")
            if self._is_full or len(waiting) < at + _LENGTH or len(waiting) < end:
                break
            answer = self._answer(bytes(waiting[at + _LENGTH : end]), self._peer)
            at = end
            if answer is None:
                self._transport.abort()
                return
            self._transport.write(len(answer).to_bytes(_LENGTH, "big") + answer)
            self._expect()
        else:
            self._next = asyncio.get_running_loop().call_soon(self._answer_some)
        del waiting[:at]
        self._read_on(self._next is None and not self._is_full)

    def _read_on(self, is_wanted: bool) -> None:
        if self._transport.is_closing():
            return
        if is_wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _expect(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(IDLE, self._transport.abort)

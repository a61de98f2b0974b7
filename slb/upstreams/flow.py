"""Reading from a connection: in turns with all others.

The event loop reads up to 32 times 256 KiB from one connection before the next, and that may be many requests, or
chunks of one byte. So each connection has a budget for one turn of the loop, in bytes, or in time where bytes may
cost much; then its reading is paused until the next turn.
"""

import asyncio
from typing import cast

from slb.upstreams.deadlines import Timed

FULL_READ = 128 * 1024
"""Bytes of one read that end a turn."""

TURN_OVER = 1
"""A reason why reading is paused; several can hold at once."""


class Flow(Timed):
    """A connection that is read while `_paused` has no reason in it. `go_on` does what was left for the next turn,
    and may end that too. Code that gives the transport away sets `_paused` to 0 before."""

    __slots__ = ("_paused", "transport")

    def __init__(self) -> None:
        Timed.__init__(self)
        self._paused = 0
        self.transport: asyncio.Transport

    def go_on(self) -> None:
        raise NotImplementedError

    def _pause(self, why: int) -> None:
        if not self._paused and not self.transport.is_closing():
            self.transport.pause_reading()
        self._paused |= why

    def _resume(self, why: int) -> None:
        if self._paused:
            self._paused &= ~why
            self._read_on()

    def _end_turn(self) -> None:
        """Pause until the next turn of the loop."""
        if not self._paused & TURN_OVER:
            self._pause(TURN_OVER)
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        if self._paused & TURN_OVER:
            self._paused &= ~TURN_OVER
            self.go_on()
            self._read_on()

    def _read_on(self) -> None:
        if not self._paused and not self.transport.is_closing():
            self.transport.resume_reading()


def appended(held: bytes | bytearray, data: bytes) -> bytes:
    """`held` with `data` behind it, grown in place from the second call on, so that bytes which come one by one are
    not copied each time. Replace `held` by the result, and convert it to `bytes` before it is kept elsewhere."""
    grown = held if isinstance(held, bytearray) else bytearray(held)
    grown += data
    return cast("bytes", grown)

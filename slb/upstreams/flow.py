"""Reading from a connection: in turns with all others, and not faster than what is read goes on.

The event loop reads up to 32 times 256 KiB from one connection before it looks at the next, and all of it may be
requests that are answered at once, or chunks of one byte. So each connection has a budget for one turn of the loop,
in bytes, and in time where bytes may cost much; then its reading is paused, and it goes on in the next turn.
"""

import asyncio

from slb.upstreams.deadlines import Timed

FULL_READ = 128 * 1024
"""Bytes of one read that are a turn's worth."""

TURN_OVER = 1
"""Why reading is paused; several reasons can hold at once. Subclasses have further ones."""


class Flow(Timed):
    """A connection, read from while there is no reason in `_paused` not to. `go_on` does what was left for the next
    turn, and may end that too. Code that gives the transport away sets `_paused` to 0 before."""

    __slots__ = ("_paused", "transport")

    def __init__(self) -> None:
        Timed.__init__(self)
        self._paused = 0
        self.transport: asyncio.Transport

    def go_on(self) -> None:
        """Go on with what has been read."""
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
        """Give all others their turn before this one goes on."""
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

"""Clients that leave while their connections are not read.

A connection whose reading is paused does not report its end. So the kernel is asked a few times a second. Linux has
the state in TCP_INFO; elsewhere such a client is noticed when reading goes on, or at its deadline. The same holds
where the client closed in order with bytes still to send: its FIN stands behind them.
"""

import asyncio
import socket
import struct
import sys

from slb.upstreams.deadlines import Timed, Wheel

_PERIOD = 0.2
RESET = frozenset({7})
"""tcp_info.tcpi_state: CLOSE, which a reset leads to."""
GONE = RESET | {8}
"""CLOSE_WAIT too: the client sends no more."""

_ACKNOWLEDGED = slice(120, 128)
"""tcp_info.tcpi_bytes_acked; kernels before 4.1 have less."""


class DisconnectWatcher(Timed):
    """Aborts watched transports whose connection is in one of `states`."""

    def __init__(self, wheel: Wheel, states: frozenset[int] = GONE) -> None:
        Timed.__init__(self)
        self._wheel = wheel
        self._states = states
        self._watched: set[asyncio.Transport] = set()

    def watch(self, transport: asyncio.Transport) -> None:
        if not self._watched:
            self._wheel.arm(self, self._wheel.now() + _PERIOD)
        self._watched.add(transport)

    def forget(self, transport: asyncio.Transport) -> None:
        self._watched.discard(transport)
        if not self._watched:
            self._wheel.forget(self)

    def expired(self) -> None:
        for transport in [each for each in self._watched if has_left(each, self._states)]:
            self.forget(transport)
            transport.abort()
        if self._watched:
            self._wheel.arm(self, self._wheel.now() + _PERIOD)


def has_left(transport: asyncio.Transport, states: frozenset[int]) -> bool:
    """Whether the kernel has the TCP connection in one of `states`. False where it cannot tell."""
    if sys.platform != "linux" or transport.is_closing():
        return False
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in states


def acknowledged(transport: asyncio.Transport) -> int:
    """Bytes the other side has confirmed so far; 0 where the kernel cannot tell. While the other side reads slowly,
    megabytes may wait in the kernel."""
    connection = transport.get_extra_info("socket")
    if sys.platform != "linux" or connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return 0
    info: bytes = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED.stop)
    return int.from_bytes(info[_ACKNOWLEDGED], sys.byteorder)


def reset_at_end(transport: asyncio.Transport) -> None:
    """Let `close` reset the connection: to HTTP/1.0 the end of the connection may be the end of the body."""
    linger = struct.pack("ii", 1, 0)  # on, for 0 seconds: close(2) then resets
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

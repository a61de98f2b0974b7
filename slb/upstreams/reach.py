"""Whether the network to an upstream still carries: its kernel confirms what it is sent, however long its program
takes.

A cut without a word (a pulled cable, a node that is gone, a firewall that forgets) looks like an upstream that
thinks: a request may wait for `first_byte_timeout`, and hold its slot. The kernels know better. If nothing is
confirmed for UNCONFIRMED seconds, the connection ends; while nothing is sent, probes ask for a confirmation.

TCP_USER_TIMEOUT does that, but it also ends a connection whose other side reads nothing for so long, though it
confirms. A body for which the other side has no room, and what goes through a tunnel, may have to wait for that. So
meanwhile the option is off, and a `Lookout` asks the kernel.
"""

import asyncio
import contextlib
import errno
import socket
import struct
import sys
from collections.abc import Callable
from typing import Final

from slb.upstreams.deadlines import Timed, Wheel

UNCONFIRMED: Final = 5.0
"""Seconds. Three probes are lost by then, the first of which is sent after 2 s."""
SILENT: Final = f" has confirmed nothing for {UNCONFIRMED:g} s"
"""What is said of an upstream, behind its name."""
_PROBE_AFTER, _PROBE_EVERY, _PROBES = 2, 1, 3
"""Two times in seconds, and how many probes are lost in the end."""
_THIN_LINEAR_TIMEOUTS: Final = 16
"""TCP_THIN_LINEAR_TIMEOUTS of Linux: what is lost is sent again at an even pace, so that slb sees at once that a
network has healed. It holds for connections with few packets on their way."""
_RTO_MAX_MS: Final = 44
"""TCP_RTO_MAX_MS of Linux 6.15 and above: the longest pause in milliseconds between two probes of one that reads
nothing. Older kernels double it up to 2 min, so that a cut meanwhile shows as late."""
_LOOK_EVERY: Final = 1.0
_INFO: Final = struct.Struct("=BBBB52xI")
"""struct tcp_info of Linux: state, congestion state, retransmissions and probes without an answer, and milliseconds
since the last confirmation."""
_WINDOW: Final = struct.Struct("=228xI")
"""Of the same struct, from Linux 5.4 on: bytes that the other side has room for."""
_CUT: Final = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN})


def expect_confirmations(connection: socket.socket) -> None:
    """Let the kernel end `connection` if nothing is confirmed for UNCONFIRMED seconds."""
    if sys.platform != "linux":
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, _PROBE_AFTER),
        (socket.TCP_KEEPINTVL, _PROBE_EVERY),
        (socket.TCP_KEEPCNT, _PROBES),
        (_THIN_LINEAR_TIMEOUTS, 1),
        (_RTO_MAX_MS, 1000),
    ):
        with contextlib.suppress(OSError):  # a kernel that does not know it
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
    _end_after(connection, UNCONFIRMED)


def room_at(connection: socket.socket, most: int) -> int:
    """Bytes that the other side of a new `connection` has room for if it reads nothing, `most` at most, and where
    that is not known."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, struct.error):  # it has ended, or the kernel is older
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _WINDOW.size)
            return int(min(most, *_WINDOW.unpack(info)))
    return most


def _end_after(connection: socket.socket, seconds: float) -> None:
    """Let the kernel end `connection` if what is sent stays unread or unconfirmed for so long; 0: never."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, ValueError):  # it has ended
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(seconds * 1000))


def is_cut(error: Exception | None) -> bool:
    """Whether a connection ended with `error` because the network did not carry."""
    return isinstance(error, OSError) and error.errno in _CUT


class Lookout(Timed):
    """Looks after a connection on which a long body is sent, or that is a tunnel. `on_cut` is called once if
    nothing was confirmed for UNCONFIRMED seconds. What is not read is confirmed all the same."""

    __slots__ = ("_on_cut", "_socket", "_wheel")

    def __init__(self, transport: asyncio.BaseTransport, wheel: Wheel, on_cut: Callable[[], None]) -> None:
        super().__init__()
        self._socket: socket.socket = transport.get_extra_info("socket")
        self._wheel = wheel
        self._on_cut = on_cut
        _end_after(self._socket, 0)
        wheel.arm(self, wheel.now() + _LOOK_EVERY)

    def end(self) -> None:
        """All was taken: the kernel looks after the connection again."""
        self._wheel.forget(self)
        _end_after(self._socket, UNCONFIRMED)

    def expired(self) -> None:
        if self._is_cut():
            self._on_cut()
        else:
            self._wheel.arm(self, self._wheel.now() + _LOOK_EVERY)

    def _is_cut(self) -> bool:
        """Two in succession: the answer to one may be on its way."""
        if sys.platform != "linux":
            return False
        try:
            info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
        except (OSError, ValueError):  # it has ended: whoever carries it is told
            return False
        _, _, retransmissions, probes, silence = _INFO.unpack(info)
        return bool(max(retransmissions, probes) >= 2 and silence >= UNCONFIRMED * 1000)

"""Replies that come while the request's body is still on its way, from an upstream that then closes.

Its kernel resets the connection, since it has not read all of the body. The next write here fails, and the event
loop closes the socket with the reply unread. The kernel keeps what has come as long as a descriptor is open: so
while a body is on its way there is a second one, which is read at the end.
"""

import asyncio
import contextlib
import fcntl
import os
import socket
import sys
import termios
from collections.abc import Callable, Iterable, Iterator

_PIECE = 64 * 1024
_MOST = 8 << 20
"""Bytes: more than a kernel holds for one connection by default. An upstream may go on sending."""


def duplicate_socket(transport: asyncio.Transport) -> socket.socket | None:
    """Another descriptor of the connection's socket, to be closed by the caller. None where no descriptors are
    left."""
    own = transport.get_extra_info("socket")
    try:
        return socket.socket(own.family, own.type, own.proto, fileno=os.dup(own.fileno()))
    except OSError:
        return None


def unacknowledged(own: socket.socket) -> int:
    """Bytes that the kernel holds until the other side's has confirmed them, also when the connection has ended.
    What it has read is confirmed by its reply at the latest. 0 if that cannot be known."""
    with contextlib.suppress(OSError):
        return int.from_bytes(fcntl.ioctl(own.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    return 0


def unread_in(duplicate: socket.socket) -> Iterator[bytes]:
    """What has come and was not read, piece by piece."""
    with contextlib.suppress(OSError):  # nothing more there, or the reset itself
        for _ in range(_MOST // _PIECE):
            if not (data := duplicate.recv(_PIECE, socket.MSG_DONTWAIT)):
                return
            yield data


class LastWords(asyncio.BufferedProtocol):
    """Wraps the protocol of TLS, which drops its keys when its connection ends, and feeds it `unread` (encrypted)
    before."""

    def __init__(self, tls: asyncio.BufferedProtocol, unread: Callable[[], Iterable[bytes]]) -> None:
        self._tls = tls
        self._unread = unread
        self.get_buffer = tls.get_buffer  # type: ignore[method-assign]
        self.buffer_updated = tls.buffer_updated  # type: ignore[method-assign]
        self.eof_received = tls.eof_received  # type: ignore[method-assign]
        self.pause_writing = tls.pause_writing  # type: ignore[method-assign]
        self.resume_writing = tls.resume_writing  # type: ignore[method-assign]

    def connection_lost(self, error: Exception | None) -> None:
        for data in self._unread():
            memoryview(self._tls.get_buffer(len(data)))[: len(data)] = data
            self._tls.buffer_updated(len(data))
        self._tls.connection_lost(error)

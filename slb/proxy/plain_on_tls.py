"""Plain HTTP on a listener for TLS: recognized by its first byte, and answered."""

import asyncio
import socket
from uuid import uuid4

from slb.errors import BAD_REQUEST
from slb.proxy.refusal import answer

_DETAIL = "this port takes HTTPS only: the request came without TLS (use an https:// URL)"
_READ_AT_MOST = 64 * 1024
"""Bytes of the request that are read and dropped: unread bytes would reset the connection, and the answer with
it."""
_LINGER = 1.0
"""Seconds the client may take to read the answer and close."""


async def speaks_plainly(accepted: socket.socket, until: float) -> bool:
    """Whether the first byte is a letter, as a method's is and no TLS record's; it is left unread. Waits until
    `until` (loop's clock). Raises OSError. Cancelled, it closes the socket."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout_at(until):
            while (first := _peeked(accepted)) is None:
                await _readable(loop, accepted)
    except asyncio.CancelledError:
        accepted.close()
        raise
    return first.isalpha()


def _peeked(accepted: socket.socket) -> bytes | None:
    try:
        return accepted.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return None


async def _readable(loop: asyncio.AbstractEventLoop, accepted: socket.socket) -> None:
    ready = asyncio.Event()
    loop.add_reader(accepted, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(accepted)


async def refuse_plain(accepted: socket.socket) -> None:
    """Answer 400 and close. It holds 64 KiB at most, for a second."""
    loop = asyncio.get_running_loop()
    reply = answer(BAD_REQUEST, _DETAIL, uuid4().hex.encode(), b"Connection: close\r\n", with_body=True)
    try:
        async with asyncio.timeout(_LINGER):
            await loop.sock_sendall(accepted, reply)
            accepted.shutdown(socket.SHUT_WR)
            left = _READ_AT_MOST
            while left > 0 and (data := await loop.sock_recv(accepted, left)):
                left -= len(data)
    except OSError:  # the client has left, or does not read
        return
    finally:
        accepted.close()

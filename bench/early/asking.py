"""A client that uploads and reads what it is told meanwhile, as careful clients do."""

import contextlib
import socket
import threading
from http.client import HTTPException, HTTPResponse

PATIENCE_SECONDS = 20.0
BODY = bytes(4 << 20)
"""More than the kernels between take before anybody reads."""


def status_of_upload(port: int) -> int:
    """The status of the reply to an upload, whole; 0 where none came, or not all of it."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
        sending = threading.Thread(target=_send, args=(connection,))
        sending.start()
        try:
            return _read(connection)
        finally:
            with contextlib.suppress(OSError):  # it may have ended
                connection.shutdown(socket.SHUT_RDWR)
            sending.join()


def _send(connection: socket.socket) -> None:
    head = b"POST /upload HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n" % len(BODY)
    with contextlib.suppress(OSError):  # that is what a refused upload comes to
        connection.sendall(head + BODY)


def _read(connection: socket.socket) -> int:
    reply = HTTPResponse(connection)
    try:
        reply.begin()
        return reply.status if reply.read() == b"too much" or reply.status != 413 else 0
    except (OSError, HTTPException):
        return 0
    finally:
        reply.close()

"""An upstream that does not read what it is sent."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable

TOO_MUCH = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 8\r\n\r\ntoo much"


class Refuser:
    """An upstream that answers to the head, and closes on what it has not read: its kernel resets the connection.
    In a thread of its own, so that it does so at any moment of slb's."""

    def __init__(self, reply: bytes, tls: ssl.SSLContext | None) -> None:
        self._reply = reply
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.member = f"{'https://' if tls else ''}127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError):
                self._refuse(connection)
            connection.close()

    def _refuse(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else TLS's own messages hold it back
        if self._tls is not None:
            connection = self._tls.wrap_socket(connection, server_side=True)
        with connection:
            head = b""
            while b"\r\n\r\n" not in head and (data := connection.recv(65536)):
                head += data
            connection.sendall(self._reply)

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


MakeRefuser = Callable[..., Refuser]

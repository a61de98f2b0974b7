"""Reads the head, answers, closes: the rest of the body is never read. `python raw.py PORT`."""

import socket
import sys
import threading

REPLY = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 8\r\nConnection: close\r\n\r\ntoo much"
PATIENCE = 10.0


def refuse(connection: socket.socket) -> None:
    """One connection."""
    head = b""
    with connection:
        connection.settimeout(PATIENCE)
        try:
            while b"\r\n\r\n" not in head and (data := connection.recv(65536)):
                head += data
            connection.sendall(REPLY)
        except OSError:
            return  # the client gave up


def main() -> None:
    """Serve until killed."""
    with socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=128) as listener:
        while True:
            threading.Thread(target=refuse, args=(listener.accept()[0],), daemon=True).start()


if __name__ == "__main__":
    main()

"""Slow clients, in a process of their own so that they hold nothing up but what they ask:
`python -m bench.figures.slow_clients REDIS_URL FOLDER PORT COUNT` (the first two are not used)."""

import asyncio
import socket
import sys
from contextlib import suppress

import uvloop

DRIP_SECONDS = 0.5
SMALL_WINDOW = 4096
SLOWLORIS = b"GET /small HTTP/1.1\r\nHost: bench\r\nX-Padding: "
SLOW_BODY = b"POST /slow HTTP/1.1\r\nHost: bench\r\nContent-Length: 1000000\r\n\r\n"
SLOW_READ = b"GET /large HTTP/1.1\r\nHost: bench\r\n\r\n"


async def drip(port: int, start: bytes) -> None:
    """Begin, then a byte now and then, for as long as it is borne; then begin again."""
    while True:
        with suppress(ConnectionError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(start)
                while not writer.is_closing():
                    await asyncio.sleep(DRIP_SECONDS)
                    writer.write(b"a")
            finally:
                writer.transport.abort()


async def sip(port: int) -> None:
    """Ask for much through a small window, and read a little now and then."""
    window = socket.socket()
    window.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_WINDOW)
    window.setblocking(False)
    await asyncio.get_running_loop().sock_connect(window, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=window, limit=1024)
    try:
        writer.write(SLOW_READ)
        while await reader.read(1024):
            await asyncio.sleep(DRIP_SECONDS)
    finally:
        writer.transport.abort()


async def slow_clients(port: int, count: int) -> None:
    """A third of each kind, until the process is ended."""
    kinds = (lambda: drip(port, SLOWLORIS), lambda: drip(port, SLOW_BODY), lambda: sip(port))
    await asyncio.gather(*(kinds[number % len(kinds)]() for number in range(count)))


if __name__ == "__main__":
    uvloop.run(slow_clients(int(sys.argv[3]), int(sys.argv[4])))

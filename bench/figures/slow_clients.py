"""Clients that do harm, in a process of their own so that they hold up only what they are connected to:
`python -m bench.figures.slow_clients KIND AMOUNT PORT API_PORT`. AMOUNT is how many slow clients, or the bytes per
second that one attacker may send, which takes the replies as they come. Once they are at work there is a file
`BEGUN` in the working directory; they go on until the process is ended."""

import asyncio
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import uvloop

from bench.local import allow_descriptors
from bench.procstat import MIB
from bench.traffic import get

DRIP_SECONDS = 0.5
SMALL_WINDOW = 4096
PIECE_SECONDS = 0.01  # between two writes of an attacker that sends all the time
BYTES_A_CONNECT = 240  # what a client sends to connect and to close, four packets of an empty TCP segment
HELD, IDLE, DESCRIPTORS = 2000, 600, 4096
AGAIN_SECONDS, BEGINNING_SECONDS = 0.5, 1.0
BEGUN = "begun"

SLOW_HEAD = b"GET /small HTTP/1.1\r\nHost: bench\r\nX-Padding: "
SLOW_BODY = b"POST /slow HTTP/1.1\r\nHost: bench\r\nContent-Length: 1000000\r\n\r\n"
UPLOAD = b"POST /sink HTTP/1.1\r\nHost: bench\r\nTransfer-Encoding: chunked\r\n\r\n"
REGISTRATION = b"POST /register HTTP/1.1\r\nHost: bench\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"1;a=b\r\nx\r\n"
BLANKS = " " * 60_000
HEADS = (
    get("/small", f"X-A:{BLANKS}\x01\r\n"),
    get("/small", f"X-Priority: a{BLANKS}b\r\n"),
    get("/small", f"Cookie: {'a=b;' * 15_000}\r\n"),
    get(f"/small{'/..;/.' * 2_500}"),
)

Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Work = Coroutine[Any, Any, Any]


class Pace:
    """So many bytes a second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._begun, self._sent = time.monotonic(), 0

    async def send(self, count: int) -> None:
        """Wait until so many more may go. What could not be sent meanwhile is not made up for."""
        self._sent += count
        ahead = self._sent / self._rate - (time.monotonic() - self._begun)
        if ahead < 0:
            self._begun, self._sent = time.monotonic(), 0
        await asyncio.sleep(max(0.0, ahead))


async def again_and_again(port: int, use: Callable[[Wire], Work], pause: float) -> None:
    """One connection after another, each for as long as `use` and the other side keep it."""
    while True:
        with suppress(OSError):
            wire = await asyncio.open_connection("127.0.0.1", port, limit=MIB)
            try:
                await use(wire)
            finally:
                wire[1].transport.abort()
        await asyncio.sleep(pause)


async def discard(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await reader.read(MIB):
            pass


async def drip(port: int, start: bytes) -> None:
    """Begin, then a byte now and then."""

    async def use(wire: Wire) -> None:
        wire[1].write(start)
        while not wire[1].is_closing():
            await asyncio.sleep(DRIP_SECONDS)
            wire[1].write(b"a")

    await again_and_again(port, use, PIECE_SECONDS)


async def sip(port: int) -> None:
    """Request much through a small window, and read a little now and then."""
    window = socket.socket()
    window.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_WINDOW)
    window.setblocking(False)
    await asyncio.get_running_loop().sock_connect(window, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=window, limit=1024)
    try:
        writer.write(get("/large"))
        while await reader.read(1024):
            await asyncio.sleep(DRIP_SECONDS)
    finally:
        writer.transport.abort()


async def slow(count: int, port: int) -> None:
    """A third of each kind."""
    kinds = (lambda: drip(port, SLOW_HEAD), lambda: drip(port, SLOW_BODY), lambda: sip(port))
    await asyncio.gather(*(kinds[number % len(kinds)]() for number in range(count)))


async def flood(rate: float, port: int, first: bytes, repeated: bytes) -> None:
    """One connection that sends `repeated` all the time, and throws away what comes back."""
    piece = repeated * max(1, round(rate * PIECE_SECONDS / len(repeated)))
    pace = Pace(rate)

    async def use(wire: Wire) -> None:
        reader, writer = wire
        thrown_away = asyncio.create_task(discard(reader))
        try:
            writer.write(first)
            while not (thrown_away.done() or writer.is_closing()):
                writer.write(piece)
                await writer.drain()
                await pace.send(len(piece))
        finally:
            thrown_away.cancel()

    await again_and_again(port, use, AGAIN_SECONDS)


async def connects(rate: float, port: int, held: int) -> None:
    """Connect, and close, the oldest of `held` connections each time."""
    pace, loop, made = Pace(rate), asyncio.get_running_loop(), deque[socket.socket]()
    while True:
        each = socket.socket()
        each.setblocking(False)
        with suppress(OSError):
            await loop.sock_connect(each, ("127.0.0.1", port))
        made.append(each)
        while len(made) > held:
            made.popleft().close()
        await pace.send(BYTES_A_CONNECT)


async def heads(rate: float, port: int) -> None:
    """Heads that are long to read, one at a time: each waits for its reply, on a connection of its own."""
    pace, turns = Pace(rate), cycle(HEADS)

    async def use(wire: Wire) -> None:
        head = next(turns)
        wire[1].write(head)
        await wire[0].read(MIB)
        await pace.send(len(head))

    await again_and_again(port, use, PIECE_SECONDS)


async def idle(port: int) -> None:
    """Connections without a request, made again when they are ended."""
    held = (again_and_again(port, lambda wire: discard(wire[0]), AGAIN_SECONDS) for _ in range(IDLE))
    await asyncio.gather(*held)


KINDS: dict[str, Callable[[float, int, int], Work]] = {
    "slow": lambda count, port, _: slow(int(count), port),
    "pipelined": lambda rate, port, _: flood(rate, port, b"", get("/none")),
    "chunks": lambda rate, port, _: flood(rate, port, UPLOAD, CHUNK),
    "registration": lambda rate, port, _: flood(rate, port, REGISTRATION, CHUNK),
    "api": lambda rate, _, api_port: flood(rate, api_port, REGISTRATION, CHUNK),
    "connects": lambda rate, port, _: connects(rate, port, 0),
    "held": lambda rate, port, _: connects(rate, port, HELD),
    "heads": lambda rate, port, _: heads(rate, port),
    "idle": lambda _rate, _port, api_port: idle(api_port),
}
"""By the amount, the data listener's port and the API's."""


async def work(begun: Callable[[], None], kind: str, amount: float, port: int, api_port: int) -> None:
    """Until the process is ended."""
    at_work = asyncio.create_task(KINDS[kind](amount, port, api_port))
    await asyncio.sleep(BEGINNING_SECONDS)
    begun()
    await at_work


if __name__ == "__main__":
    allow_descriptors(DESCRIPTORS)
    uvloop.run(work(Path(BEGUN).touch, sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))

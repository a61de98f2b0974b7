"""One client that does its worst, in a process of its own:
`python -m bench.figures.attackers REDIS_URL FOLDER KIND BYTES_PER_SECOND PORT API_PORT` (Redis is not used).

It sends no more than a client's bandwidth lets it, so that what is measured is what slb makes of it, and takes the
answers as they come. Once it is at work there is a file `BEGUN` in FOLDER, and it goes on until it is ended.
"""

import asyncio
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvloop

from bench.figures.local import MIB, allow_descriptors

PIECE_SECONDS = 0.01
"""Between two writes of one that sends all the time."""
BYTES_A_CONNECT = 240
"""What a client sends to connect and to close, four packets of an empty TCP segment."""
HELD = 2000
IDLE = 600
DESCRIPTORS = 4096
AGAIN_SECONDS = 0.5
BEGUN = "begun"
BEGINNING_SECONDS = 1.0

NOT_FOUND = b"GET /none HTTP/1.1\r\nHost: bench\r\n\r\n"
UPLOAD = b"POST /sink HTTP/1.1\r\nHost: bench\r\nTransfer-Encoding: chunked\r\n\r\n"
REGISTRATION = b"POST /register HTTP/1.1\r\nHost: bench\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"1;a=b\r\nx\r\n"
BLANKS = b" " * 60_000
HEADS = (
    b"GET /small HTTP/1.1\r\nHost: bench\r\nX-A:" + BLANKS + b"\x01\r\n\r\n",
    b"GET /small HTTP/1.1\r\nHost: bench\r\nX-Priority: a" + BLANKS + b"b\r\n\r\n",
    b"GET /small HTTP/1.1\r\nHost: bench\r\nCookie: " + b"a=b;" * 15_000 + b"\r\n\r\n",
    b"GET /small" + b"/..;/." * 2_500 + b" HTTP/1.1\r\nHost: bench\r\n\r\n",
)


class Pace:
    """Lets so many bytes a second through."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._begun = time.monotonic()
        self._sent = 0

    async def send(self, count: int) -> None:
        """Wait until so many more may go. What could not be sent meanwhile is not made up for."""
        self._sent += count
        ahead = self._sent / self._rate - (time.monotonic() - self._begun)
        if ahead < 0:
            self._begun, self._sent = time.monotonic(), 0
        await asyncio.sleep(max(0.0, ahead))


async def flood(port: int, rate: float, first: bytes, repeated: bytes) -> None:
    """One connection that sends `repeated` all the time, and throws away what comes back."""
    piece = repeated * max(1, round(rate * PIECE_SECONDS / len(repeated)))
    pace = Pace(rate)
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MIB)
            thrown_away = asyncio.create_task(discard(reader))
            try:
                writer.write(first)
                while not (thrown_away.done() or writer.is_closing()):
                    writer.write(piece)
                    await writer.drain()
                    await pace.send(len(piece))
            finally:
                thrown_away.cancel()
                writer.transport.abort()
        await asyncio.sleep(AGAIN_SECONDS)


async def discard(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await reader.read(MIB):
            pass


async def connects(port: int, rate: float, held: int) -> None:
    """Connect, and close, the oldest of `held` connections each time."""
    pace = Pace(rate)
    loop = asyncio.get_running_loop()
    made: deque[socket.socket] = deque()
    while True:
        each = socket.socket()
        each.setblocking(False)
        with suppress(OSError):
            await loop.sock_connect(each, ("127.0.0.1", port))
        made.append(each)
        while len(made) > held:
            made.popleft().close()
        await pace.send(BYTES_A_CONNECT)


async def heads(port: int, rate: float) -> None:
    """Heads that are long to read, one at a time: each waits for its answer, on a connection of its own."""
    pace = Pace(rate)
    while True:
        for head in HEADS:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MIB)
                try:
                    writer.write(head)
                    await reader.read(MIB)
                finally:
                    writer.transport.abort()
            await pace.send(len(head))


async def idle(port: int) -> None:
    """Connections that say nothing, made again when they are ended."""

    async def one() -> None:
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    await discard(reader)
                finally:
                    writer.transport.abort()
            await asyncio.sleep(AGAIN_SECONDS)

    await asyncio.gather(*(one() for _ in range(IDLE)))


Attack = Callable[[float, int, int], Coroutine[Any, Any, None]]
"""By bytes a second, the data listener's port and the API's."""

KINDS: dict[str, Attack] = {
    "pipelined": lambda rate, port, _: flood(port, rate, b"", NOT_FOUND),
    "chunks": lambda rate, port, _: flood(port, rate, UPLOAD, CHUNK),
    "registration": lambda rate, port, _: flood(port, rate, REGISTRATION, CHUNK),
    "api": lambda rate, _, api_port: flood(api_port, rate, REGISTRATION, CHUNK),
    "connects": lambda rate, port, _: connects(port, rate, 0),
    "held": lambda rate, port, _: connects(port, rate, HELD),
    "heads": lambda rate, port, _: heads(port, rate),
    "idle": lambda _rate, _port, api_port: idle(api_port),
}


async def attack(folder: Path, kind: str, rate: float, port: int, api_port: int) -> None:
    """Until the process is ended."""
    at_work = asyncio.create_task(KINDS[kind](rate, port, api_port))
    await asyncio.sleep(BEGINNING_SECONDS)
    (folder / BEGUN).touch()
    await at_work


if __name__ == "__main__":
    allow_descriptors(DESCRIPTORS)
    uvloop.run(attack(Path(sys.argv[2]), sys.argv[3], float(sys.argv[4]), int(sys.argv[5]), int(sys.argv[6])))

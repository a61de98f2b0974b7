"""An upstream that the bench plays itself, for connections that are slow, idle or streaming."""

import asyncio
import resource
import time

from bench.processes import BenchError
from bench.procstat import MIB

PIECE = bytes(MIB)
BACKLOG = 4096
EVENT = b"6\r\ntoken \r\n"
EVENTS_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Upstream:
    """`/small` answers at once, `/large` as fast as it can with 1 GiB or less, `/slow` reads its body at
    `bytes_per_second`, `/sink` reads all that comes and never answers, `/events` sends one event. `event_sent`:
    when the last one was written."""

    def __init__(self, bytes_per_second: float, large: int) -> None:
        self._pause, self._large = MIB / bytes_per_second, large
        self.event_sent = 0.0

    async def start(self) -> str:
        """Listen; returns the member."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=MIB, backlog=BACKLOG)
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                length = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
                await self._answer(head.split(" ", 2)[1], length, reader, writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            return  # the other side has what it wanted, or the measurement is over
        finally:
            writer.close()

    async def _answer(
        self, path: str, length: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if path == "/events":
            self.event_sent = time.perf_counter()
            writer.write(EVENTS_HEAD + EVENT)
            writer.write(b"0\r\n\r\n")
        elif path == "/sink":
            while await reader.read(MIB):
                pass
        elif path == "/large":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % self._large)
            await write_all(writer, self._large)
        else:
            await read_slowly(reader, length, self._pause)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


async def write_all(writer: asyncio.StreamWriter, size: int) -> None:
    """So many bytes, in pieces of 1 MiB, as fast as the other side takes them."""
    for _ in range(size // MIB):
        writer.write(PIECE)
        await writer.drain()


async def read_slowly(reader: asyncio.StreamReader, length: int, pause: float) -> None:
    """Read `length` bytes, resting `pause` seconds after each MiB."""
    while length > 0:
        length -= len(await reader.readexactly(min(MIB, length)))
        await asyncio.sleep(pause)


def allow_descriptors(count: int) -> None:
    """Raise the limit for this process and those it will start. Raises BenchError where that is not allowed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise BenchError(f"needs {count} descriptors, and the hard limit is {hard}: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count if hard == resource.RLIM_INFINITY else hard, hard))

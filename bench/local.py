"""Peers that the bench plays itself: an event loop in a thread, and an upstream on it."""

import asyncio
import resource
import threading
import time
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

import uvloop

from bench.errors import BenchError

MIB = 1 << 20
PIECE = bytes(MIB)
BACKLOG = 4096
EVENT = b"6\r\ntoken \r\n"
EVENTS_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
Result = TypeVar("Result")


class Loop:
    """An event loop in a thread of its own, for as long as the `with` block runs."""

    def __enter__(self) -> Self:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="peers")
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.run(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, task: Coroutine[Any, Any, Result]) -> Result:
        """Run `task` there and wait for it."""
        return asyncio.run_coroutine_threadsafe(task, self._loop).result()

    async def _cancel_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class Upstream:
    """`/small` answers at once, `/large` as fast as it can with 1 GiB or less, `/slow` reads its body at
    `bytes_per_second`, `/sink` reads all that comes and never answers, `/events` sends one event. `event_sent`:
    when the last one was written."""

    def __init__(self, bytes_per_second: float, large: int) -> None:
        self._pause = MIB / bytes_per_second
        self._large = large
        self.event_sent = 0.0

    async def start(self) -> str:
        """Listen; returns the member."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=MIB, backlog=BACKLOG)
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                path = head.split(" ", 2)[1]
                length = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
                await self._answer(path, length, reader, writer)
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
            for _ in range(self._large // MIB):
                writer.write(PIECE)
                await writer.drain()
        else:
            await read_slowly(reader, length, self._pause)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


async def read_slowly(reader: asyncio.StreamReader, length: int, pause: float) -> None:
    """Read `length` bytes, resting `pause` seconds after each MiB."""
    while length > 0:
        piece = await reader.readexactly(min(MIB, length))
        length -= len(piece)
        await asyncio.sleep(pause)


def allow_descriptors(count: int) -> None:
    """Raise the limit for this process and those it will start. Raises BenchError where that is not allowed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise BenchError(f"needs {count} descriptors, and the hard limit is {hard}: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count if hard == resource.RLIM_INFINITY else hard, hard))

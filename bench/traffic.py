"""Clients with kept-alive connections, and requests at a steady rate that do not wait for replies."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, cast

import httptools
import uvloop

from bench.table import percentile

GIVE_UP_SECONDS = 5.0
NO_REPLY = 0
NOT_CONNECTED = -1
"""No connection could be made, so nothing was sent."""

UPSTREAM = b"x-upstream"


def get(path: str, more: str = "") -> bytes:
    """A GET as every client of the bench sends it; `more` are further lines of the head."""
    return f"GET {path} HTTP/1.1\r\nHost: bench\r\n{more}\r\n".encode()


class _Wire(asyncio.Protocol):
    """One connection, with at most one request on it; among `idle` while it has none."""

    def __init__(self, idle: list["_Wire"]) -> None:
        self._idle = idle
        self._parser = httptools.HttpResponseParser(self)
        self._replied: asyncio.Future[tuple[int, str]] | None = None
        self._upstream = ""

    async def fetch(self, request: bytes) -> tuple[int, str]:
        self._replied = asyncio.get_running_loop().create_future()
        self._upstream = ""
        self.transport.write(request)
        try:
            return await self._replied
        except asyncio.CancelledError:
            self.transport.abort()  # its reply may still come
            raise

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's has its methods, not its type

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == UPSTREAM:
            self._upstream = value.decode("latin-1")

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 and self._replied is not None:
            if self._parser.should_keep_alive():
                self._idle.append(self)
            else:
                self.transport.close()
            self._end(status)

    def connection_lost(self, error: Exception | None) -> None:
        if self in self._idle:
            self._idle.remove(self)
        self._end(NO_REPLY)

    def _end(self, status: int) -> None:
        if self._replied is not None and not self._replied.done():
            self._replied.set_result((status, self._upstream))
        self._replied = None


class KeptAlive:
    """Connections to one port, as many as are needed at once. A request that fails is not sent again: it counts.
    `patience`: seconds until one without a reply has failed."""

    def __init__(self, port: int, path: str, patience: float = GIVE_UP_SECONDS) -> None:
        self._port = port
        self._patience = patience
        self._request = get(path)
        self._idle: list[_Wire] = []

    async def ask(self) -> int:
        """The status, once the whole reply is there; NO_REPLY where none came in time, or NOT_CONNECTED."""
        return (await self.fetch(self._request))[0]

    async def fetch(self, request: bytes) -> tuple[int, str]:
        """The same for a request without a body, and the reply's `X-Upstream`: empty where there is none."""
        try:
            async with asyncio.timeout(self._patience):
                wire = self._idle.pop() if self._idle else await self._connected()
                return await wire.fetch(request)
        except TimeoutError:
            return NO_REPLY, ""
        except OSError:
            return NOT_CONNECTED, ""

    def close(self) -> None:
        for wire in self._idle:
            wire.transport.close()

    async def _connected(self) -> _Wire:
        loop = asyncio.get_running_loop()
        _, wire = await loop.create_connection(lambda: _Wire(self._idle), "127.0.0.1", self._port)
        return wire


@dataclass(frozen=True, slots=True)
class Answer:
    """One request: when it was due, when it ended (`time.monotonic`), and with which status; none is 0 or below."""

    due: float
    ended: float
    status: int


@dataclass(frozen=True)
class Tally:
    """What a stretch of time saw. Latencies count from when a request was due, so that a stall shows in full."""

    requests: int
    by_status: dict[int, int]
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, answers: Iterable[Answer]) -> Self:
        seen = list(answers)
        latencies = [(answer.ended - answer.due) * 1e3 for answer in seen]
        by_status = dict(Counter(answer.status for answer in seen))
        return cls(len(seen), by_status, percentile(latencies, 0.99), percentile(latencies, 1.0))

    def failed(self, good: int) -> int:
        """Requests whose status is another."""
        return self.requests - self.by_status.get(good, 0)


class Traffic:
    """`rate` requests a second in turn over `ports`, in a thread, for as long as the `with` block runs. With
    `tries_others`, a request that cannot connect to its port goes to the next one: what a client does with a name
    that has several addresses."""

    def __init__(self, ports: Sequence[int], path: str, rate: float, tries_others: bool = False) -> None:
        self._ports = ports
        self._path = path
        self._pause = 1 / rate
        self._tries = len(ports) if tries_others else 1
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._flow()), name="traffic")
        self.answers: list[Answer] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    async def _flow(self) -> None:
        targets = [KeptAlive(port, self._path) for port in self._ports]
        begun, turn = time.monotonic(), 0
        async with asyncio.TaskGroup() as group:
            while not self._stopping.is_set():
                due = begun + turn * self._pause
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                first = turn % len(targets)
                group.create_task(self._one([*targets[first:], *targets[:first]], due))
                turn += 1
        for target in targets:
            target.close()

    async def _one(self, targets: Sequence[KeptAlive], due: float) -> None:
        status = NOT_CONNECTED
        for target in targets[: self._tries]:
            status = await target.ask()
            if status != NOT_CONNECTED:
                break
        self.answers.append(Answer(due, time.monotonic(), status))

"""Clients with kept-alive connections: requests at a steady rate that do not wait for replies, and a number of
clients that do; and an event loop in a thread, for what the bench plays itself."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from random import Random
from typing import Any, NamedTuple, Self, TypeVar, cast

import httptools
import uvloop

from bench.table import Figure, percentile

GIVE_UP_SECONDS = 5.0
PATIENCE_SECONDS = 120.0  # of those that wait for replies: longer than a request may wait in a queue and be served
FAILED_PAUSE_SECONDS = 0.1  # of a client that got no 200: it does not come back at once
NO_REPLY = 0
NOT_CONNECTED = -1  # no connection could be made, so nothing was sent
Result = TypeVar("Result")


def get(path: str, more: str = "") -> bytes:
    """A GET as every client of the bench sends it; `more` are further lines of the head."""
    return f"GET {path} HTTP/1.1\r\nHost: bench\r\n{more}\r\n".encode()


class Loop:
    """An event loop in a thread of its own, for as long as the `with` block runs."""

    def __enter__(self) -> Self:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
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


class _Wire(asyncio.Protocol):
    """One connection, with at most one request on it; among `idle` while it has none."""

    def __init__(self, idle: list["_Wire"]) -> None:
        self._idle = idle
        self._parser = httptools.HttpResponseParser(self)
        self._replied: asyncio.Future[int] | None = None

    async def fetch(self, request: bytes) -> int:
        self._replied = asyncio.get_running_loop().create_future()
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
            self._replied.set_result(status)
        self._replied = None


class KeptAlive:
    """Connections to one port, as many as are needed at once. A request that fails is not sent again: it counts.
    `path`: or the whole of a request; `patience`: seconds until one without a reply has failed."""

    def __init__(self, port: int, path: str | bytes, patience: float = GIVE_UP_SECONDS) -> None:
        self._port, self._patience = port, patience
        self._request = get(path) if isinstance(path, str) else path
        self._idle: list[_Wire] = []

    async def ask(self) -> int:
        """The status, once the whole reply is there; NO_REPLY where none came in time, or NOT_CONNECTED."""
        return await self.fetch(self._request)

    async def fetch(self, request: bytes) -> int:
        """The same for another request without a body."""
        try:
            async with asyncio.timeout(self._patience):
                wire = self._idle.pop() if self._idle else await self._connected()
                return await wire.fetch(request)
        except TimeoutError:
            return NO_REPLY
        except OSError:
            return NOT_CONNECTED

    def close(self) -> None:
        for wire in self._idle:
            wire.transport.close()

    async def _connected(self) -> _Wire:
        loop = asyncio.get_running_loop()
        _, wire = await loop.create_connection(lambda: _Wire(self._idle), "127.0.0.1", self._port)
        return wire


class Answer(NamedTuple):
    """One request: when it was due, when it ended (`time.monotonic`), and with which status; none is 0 or below."""

    due: float
    ended: float
    status: int


class Tally(NamedTuple):
    """What a stretch of time saw. Latencies count from when a request was due, so that a stall shows in full;
    requests have failed whose status is not 200."""

    requests: int
    failed: int
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> Self:
        latencies = [(answer.ended - answer.due) * 1e3 for answer in answers]
        failed = sum(answer.status != 200 for answer in answers)
        return cls(len(answers), failed, percentile(latencies, 0.99), percentile(latencies, 1.0))

    def figures(self) -> list[Figure]:
        return [
            Figure("requests", self.requests),
            Figure("failed", self.failed, at_most=0),
            Figure("latency, p99", self.p99_ms, "ms"),
            Figure("latency, max", self.max_ms, "ms"),
        ]


class Traffic:
    """`rate` requests a second in turn over `ports`, in a thread, for as long as the `with` block runs. With
    `tries_others`, a request that cannot connect to its port goes to the next one: what a client does with a name
    that has several addresses. With `is_new` each has a connection of its own."""

    def __init__(
        self, ports: Sequence[int], path: str, rate: float, tries_others: bool = False, is_new: bool = False
    ) -> None:
        self._ports, self._pause = ports, 1 / rate
        self._request = get(path, "Connection: close\r\n" if is_new else "")
        self._tries = len(ports) if tries_others else 1
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._flow()))
        self.answers: list[Answer] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        self._thread.join()

    async def _flow(self) -> None:
        doors = [KeptAlive(port, self._request) for port in self._ports]
        begun, turn = time.monotonic(), 0
        async with asyncio.TaskGroup() as group:
            while not self._stopping.is_set():
                due = begun + turn * self._pause
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                first = turn % len(doors)
                group.create_task(self.one([*doors[first:], *doors[:first]], due))
                turn += 1
        for door in doors:
            door.close()

    async def one(self, doors: Sequence[KeptAlive], due: float) -> None:
        """One request, through the first of `doors`."""
        status = NOT_CONNECTED
        for door in doors[: self._tries]:
            status = await door.ask()
            if status != NOT_CONNECTED:
                break
        self.answers.append(Answer(due, time.monotonic(), status))


class Clients:
    """`count` clients, each with one request after another, through an instance chosen at random among those that
    are open; the request's query is the instance's number. `failed`: by status, what instances that lived all the
    while did not answer with 200; `lost`: requests that were with an instance when that was killed."""

    def __init__(self, ports: Sequence[int], path: str, count: int, rng: Random) -> None:
        self._instances = [KeptAlive(port, f"{path}?{at}", PATIENCE_SECONDS) for at, port in enumerate(ports)]
        self._kills = Counter[KeptAlive]()
        self._open = list(self._instances)
        self._count, self._rng = count, rng
        self._stopping = False
        self.in_flight = self.answered = self.lost = 0
        self.failed = Counter[int]()

    async def start(self) -> None:
        self._tasks = [asyncio.create_task(self._client()) for _ in range(self._count)]

    async def stop(self) -> None:
        """Ask no more, and wait for what has been asked."""
        self._stopping = True
        await asyncio.gather(*self._tasks)
        for instance in self._instances:
            instance.close()

    async def shut(self, number: int) -> None:
        """This instance is about to be killed."""
        self._open.remove(self._instances[number])
        self._kills[self._instances[number]] += 1

    async def open(self, number: int) -> None:
        """There is another in its place."""
        self._open.append(self._instances[number])

    async def _client(self) -> None:
        while not self._stopping:
            instance = self._rng.choice(self._open)
            kills = self._kills[instance]
            self.in_flight += 1
            status = await instance.ask()
            self.in_flight -= 1
            if status == 200:
                self.answered += 1
                continue
            if self._kills[instance] != kills:
                self.lost += 1
            else:
                self.failed[status] += 1
            await asyncio.sleep(FAILED_PAUSE_SECONDS)

"""Requests at a steady rate that wait for nobody, and when each was answered with what."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import uvloop

from bench.figures.figure import percentile

GIVE_UP_SECONDS = 5.0
NO_REPLY = 0
NOT_CONNECTED = -1
"""No connection could be made, so nothing was sent."""

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


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
        return cls(
            len(seen),
            dict(Counter(answer.status for answer in seen)),
            percentile(latencies, 0.99),
            percentile(latencies, 1.0),
        )

    def failed(self, *good: int) -> int:
        """Those whose status is none of `good`."""
        return self.requests - sum(self.by_status.get(status, 0) for status in good)


class KeptAlive:
    """Connections to one port, as many as are needed at once. A request that fails is not sent again: it counts.
    `patience`: seconds until one without an answer has failed."""

    def __init__(self, port: int, path: str, patience: float = GIVE_UP_SECONDS) -> None:
        self._port = port
        self._patience = patience
        self._request = get(path)
        self._idle: list[Stream] = []

    async def ask(self) -> int:
        """The status, once the whole reply is there; NO_REPLY where none came in time, or NOT_CONNECTED."""
        return (await self.fetch(self._request))[0]

    async def fetch(self, request: bytes) -> tuple[int, bytes]:
        """The same for a request without a body, and the head of the reply: empty where there is none."""
        with suppress(OSError, EOFError, TimeoutError):
            async with asyncio.timeout(self._patience):
                try:
                    stream = await self._connection()
                except OSError:
                    return NOT_CONNECTED, b""
                return await self._asked(stream, request)
        return NO_REPLY, b""

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()

    async def _asked(self, stream: Stream, request: bytes) -> tuple[int, bytes]:
        reader, writer = stream
        whole = False
        try:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            status, length, stays = parse_head(head)
            await reader.readexactly(length)
            whole = stays
            return status, head
        finally:
            if whole:
                self._idle.append(stream)
            else:
                writer.close()

    async def _connection(self) -> Stream:
        while self._idle:
            stream = self._idle.pop()
            if not stream[0].at_eof():
                return stream
            stream[1].close()
        return await asyncio.open_connection("127.0.0.1", self._port)


def get(path: str) -> bytes:
    """A GET as every client of the bench sends it."""
    return f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()


def parse_head(head: bytes) -> tuple[int, int, bool]:
    """Status, length of the body, and whether the connection stays open. Every reply of the bench has a length."""
    first, *lines = head.decode("latin-1").lower().split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines if line)
    return int(first.split()[1]), int(fields["content-length"]), fields.get("connection") != "close"


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
        self._thread = threading.Thread(target=self._run, name="traffic")
        self.answers: list[Answer] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._flow())

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

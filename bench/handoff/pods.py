"""Pods that note how long they are idle: `python -m bench.handoff.pods PLAN`, the path of a JSON file.

A request names the instance it came through in its query. On the port of the control, a GET takes what was noted
since the one before.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import orjson
import uvloop

from bench.handoff.gaps import Book, Schedule
from bench.request_protocol import RequestProtocol
from bench.timers import Timers

REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass(frozen=True)
class Plan:
    """Ports of the pods and of the control; how long a service is (seconds), and whether all end in step."""

    control: int
    ports: Sequence[int]
    service: float
    in_step: bool
    seed: int


class PodProtocol(RequestProtocol):
    """One connection of an instance's to a pod; one request at a time on it."""

    def __init__(self, pod: str, book: Book, schedule: Schedule, timers: Timers) -> None:
        super().__init__()
        self._pod = pod
        self._book = book
        self._schedule = schedule
        self._timers = timers
        self._instance: str | None = None

    def on_message_complete(self) -> None:
        now = time.monotonic()
        self._instance = self.path.partition(b"?")[2].decode()
        self._book.began(self._pod, self._instance, now)
        self._timers.at(self._schedule.end_of(now), self._answer)

    def _answer(self) -> None:
        if self._instance is not None:
            self._ended()
            self.transport.write(REPLY)

    def connection_lost(self, error: Exception | None) -> None:
        if self._instance is not None:
            self._ended()

    def _ended(self) -> None:
        assert self._instance is not None
        self._book.ended(self._pod, self._instance, time.monotonic())
        self._instance = None


class ControlProtocol(RequestProtocol):
    """Tells what the book has, and begins it anew."""

    def __init__(self, book: Book) -> None:
        super().__init__()
        self._book = book

    def on_message_complete(self) -> None:
        gaps, crowded = self._book.take()
        body = orjson.dumps([[list(gap) for gap in gaps], crowded])
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


async def serve(plan: Plan) -> None:
    """Listen on the loopback, one pod a port, until the process is told to stop."""
    loop = asyncio.get_running_loop()
    timers, book = Timers(loop), Book()
    schedule = Schedule(plan.service, plan.in_step, Random(plan.seed))
    for port in plan.ports:
        await loop.create_server(
            lambda pod=str(port): PodProtocol(pod, book, schedule, timers),  # type: ignore[misc]
            "127.0.0.1",
            port,
        )
    await loop.create_server(lambda: ControlProtocol(book), "127.0.0.1", plan.control)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(Plan(**orjson.loads(Path(sys.argv[1]).read_bytes()))))

"""Upstreams that the bench plays, in a process of their own: `python -m bench.pods KIND OPTIONS PORT...`, OPTIONS
being JSON."""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol, cast

import httptools
import orjson
import uvloop

from bench.http import wait_until_served
from bench.peers import Site, find_program
from bench.processes import Processes
from bench.procstat import MIB
from bench.timers import Timers

READY_SECONDS = 15.0
BACKLOG = 2048  # connections that wait to be accepted while a pod stands still; what most servers ask for
SERVICE_TIME, JOB_ID = b"x-service-time", b"x-job-id"
NOTED = "/noted"  # on which a noting pod answers with what the book has, as JSON
BODY = b'{"id":"cmpl-7f3a9c","object":"text_completion","choices":[{"index":0,"text":"hello"}]}'
RECEIVED = b'{"received":true}'

Answer = Callable[[bytes], None]
"""Sends a reply, or a piece of one; nothing (`b""`) ends the connection, whatever is missing of the reply."""

At = Callable[[float, Callable[[], None]], None]  # calls back at a time of `time.monotonic`
Gone = Callable[[], object]
"""What a pod's `take` returns: what to call where the connection is gone before the request has been answered."""


def reply(name: str, body: bytes = BODY, content_type: str = "application/json") -> bytes:
    head = (
        f"HTTP/1.1 200 OK\r\nServer: bench\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        f"X-Upstream: {name}\r\nCache-Control: no-store\r\nVary: Accept\r\n\r\n"
    )
    return head.encode() + body


class Takes(Protocol):
    """A pod."""

    def take(self, path: bytes, seconds: float, answer: Answer) -> Gone | None:
        """A request has come, which says that it takes so many `seconds`."""


class Plain:
    """Answers each request at once; every reply is made beforehand."""

    def __init__(self, name: str) -> None:
        download = reply(name, b"x" * MIB, "application/octet-stream")
        self._replies = {b"/upload": reply(name, RECEIVED), b"/download": download}
        self._else = reply(name)

    def take(self, path: bytes, seconds: float, answer: Answer) -> None:
        answer(self._replies.get(path, self._else))


class Slot:
    """One slot, and a queue in front of it. A request that has begun is served to its end, as a GPU's batch is. It
    names itself how long it takes (`X-Service-Time`, seconds), so that every balancer brings the same work."""

    def __init__(self, name: str, at: At, clock: Callable[[], float] = time.monotonic) -> None:
        self._at, self._clock = at, clock
        self._free_at = 0.0
        self._reply = reply(name)

    def take(self, path: bytes, seconds: float, answer: Answer) -> None:
        """Serve after all that came before. Late timers do not add up: ends follow from arrivals and services."""
        self._free_at = max(self._clock(), self._free_at) + seconds
        self._at(self._free_at, lambda: answer(self._reply))


@dataclass
class Book:
    """Filled by the pods of one process. `gaps`: seconds between the end of one request at a pod and the beginning
    of the next, and whether both came through one instance; `crowded`: how often a request came to a pod that was
    not free. `present`, `most`: by pod, how many requests it has now, and the most it ever had at once."""

    gaps: list[tuple[float, bool]] = field(default_factory=list)
    crowded: int = 0
    present: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    _freed: dict[str, tuple[float, str]] = field(default_factory=dict)

    def begin(self, pod: str, instance: str, now: float) -> None:
        """A request has come."""
        freed = self._freed.pop(pod, None)
        if self.present[pod]:
            self.crowded += 1
        elif freed is not None:
            self.gaps.append((now - freed[0], freed[1] == instance))
        self.present[pod] += 1
        self.most[pod] = max(self.most[pod], self.present[pod])

    def end(self, pod: str, instance: str, now: float) -> None:
        """A request has been served, or its connection is gone."""
        self.present[pod] -= 1
        if not self.present[pod]:
            self._freed[pod] = now, instance

    def take(self) -> dict[str, object]:
        """As JSON takes it; gaps and crowded are those since the last take."""
        taken = {"gaps": self.gaps, "crowded": self.crowded, "present": +self.present, "most": self.most}
        self.gaps, self.crowded = [], 0
        return taken


@dataclass(frozen=True)
class Schedule:
    """When requests end. In step all pods end at one moment, every `service` seconds; else a request takes that,
    and up to `spread` of it more or less."""

    rng: Random
    service: float
    spread: float = 0.25
    in_step: bool = False

    def end_of(self, now: float) -> float:
        """Of a request that begins now; in step it takes at least half a service, so that latecomers are in."""
        if not self.in_step:
            return now + self.service * self.rng.uniform(1 - self.spread, 1 + self.spread)
        return (int((now + self.service / 2) / self.service) + 1) * self.service


class Noting:
    """Notes its requests in a book that all pods of the process share. A request names in its query the instance it
    came through, and ends when `schedule` says. As many at once as there are."""

    def __init__(self, name: str, at: At, book: Book, schedule: Schedule) -> None:
        self._name, self._at, self._book, self._schedule = name, at, book, schedule
        self._reply = reply(name, b"{}")

    def take(self, path: bytes, seconds: float, answer: Answer) -> Gone | None:
        if path == NOTED.encode():
            answer(reply(self._name, orjson.dumps(self._book.take())))
            return None
        instance, open_requests = path.partition(b"?")[2].decode(), [answer]
        self._book.begin(self._name, instance, time.monotonic())

        def end() -> bool:
            """Once: it is answered, or its connection is gone. Whether it had not ended yet."""
            if not open_requests:
                return False
            open_requests.clear()
            self._book.end(self._name, instance, time.monotonic())
            return True

        def served() -> None:
            if end():  # before the reply: the slot may be given to the next request as soon as that is read
                answer(self._reply)

        self._at(self._schedule.end_of(time.monotonic()), served)
        return end


class Gpu:
    """Runs jobs, as many at once as come, each for `service` seconds. Notes which run began when; the result of a
    job is the number of its run. A request that names no job is no run."""

    def __init__(self, name: str, at: At, service: float = 0.0) -> None:
        self._name, self._at, self._service = name, at, service
        self._count, self._runs = 0, list[tuple[str, float]]()

    def take(self, path: bytes, seconds: float, answer: Answer) -> None:
        job = path.partition(b"?")[2].decode()
        if not job:
            runs, self._runs = self._runs, []
            answer(reply(self._name, orjson.dumps(runs)))
            return
        self._count += 1
        self._runs.append((job, time.monotonic()))
        whole = reply(self._name, b'{"status":"success","result":%d}' % self._count)
        if self._service:
            self._at(time.monotonic() + self._service, lambda: answer(whole))
        else:
            answer(whole)


Pod = Plain | Slot | Noting | Gpu


def made(kind: str, names: Sequence[str], at: At, options: dict[str, Any]) -> list[Pod]:
    """Pods of one kind: plain, slot, gpu, or noting, whose schedule is in `options`."""
    if kind == "noting":
        book, schedule = Book(), Schedule(Random(options.pop("seed")), **options)
        return [Noting(name, at, book, schedule) for name in names]
    if kind == "gpu":
        return [Gpu(name, at, **options) for name in names]
    return [Plain(name) if kind == "plain" else Slot(name, at) for name in names]


class Served(asyncio.Protocol):
    """A connection to a pod, on which one request comes after another."""

    def __init__(self, pod: Takes) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._pod = pod
        self._path, self._seconds = b"/", 0.0
        self._gone: Gone | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has its methods, not its type

    def connection_lost(self, error: Exception | None) -> None:
        if self._gone is not None:
            self._gone()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path = url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == SERVICE_TIME:
            self._seconds = float(value)
        elif name.lower() == JOB_ID:
            self._path += b"?" + value

    def on_message_complete(self) -> None:
        self._gone = self._pod.take(self._path, self._seconds, self._answer)
        self._seconds = 0.0

    def cut(self) -> None:
        """As the end of its process would."""
        self._transport.abort()

    def _answer(self, whole: bytes) -> None:
        if self._transport.is_closing():
            return
        if whole:
            self._transport.write(whole)
        else:
            self._transport.close()


async def serve(kind: str, options: dict[str, Any], ports: Sequence[str]) -> None:
    """Listen on the loopback, one pod a port, which is its name, until the process is stopped."""
    loop = asyncio.get_running_loop()
    for pod, port in zip(made(kind, ports, Timers(loop).at, options), ports, strict=True):
        await loop.create_server(lambda pod=pod: Served(pod), "127.0.0.1", int(port), backlog=BACKLOG)  # type: ignore[misc]
    await asyncio.Event().wait()


def start_pods(
    processes: Processes, home: Path, kind: str, ports: Sequence[int], core: int | None = None, **options: object
) -> None:
    """One process with these pods, which answer on return; `home` is its own folder."""
    words = (kind, orjson.dumps(options).decode(), *ports)
    running = processes.start_module(home, "bench.pods", *words, core=core)
    wait_until_served(ports, NOTED if kind == "noting" else "/", running, READY_SECONDS)


def start_upstreams(processes: Processes, home: Path, core: int | None, ports: Sequence[int]) -> None:
    """nginx where it is installed, else plain pods: all in one process, on the load's core so that they never take
    from a proxy's. They answer on return; `home` is their own folder."""
    program = find_program("nginx")
    if program is None:
        start_pods(processes, home, "plain", ports, core)
        return
    (home / "download.bin").write_bytes(b"x" * MIB)
    config = str(Site(home, 0, 0, tuple(ports)).write("upstreams.conf"))
    argv = [program, "-p", str(home), "-e", "stderr", "-c", config]
    wait_until_served(ports, "/", processes.start(argv, core, home, {}), READY_SECONDS)


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], orjson.loads(sys.argv[2]), sys.argv[3:]))

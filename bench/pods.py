"""Upstreams that the bench plays, in a process of their own: `python -m bench.pods KIND CAPACITY PORT...`."""

import asyncio
import getpass
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import uvloop

from bench.http import ask
from bench.lab.model import LruCache
from bench.peers import CONFIGS, Site, find_program
from bench.processes import Processes, Running, wait_until
from bench.procstat import MIB
from bench.request_protocol import RequestProtocol
from bench.timers import Timers

HIT_SECONDS = 0.001
MISS_SECONDS = 0.1
"""As long as a database takes."""

HIT, MISS = "hit", "miss"
READY_SECONDS = 15.0
BACKLOG = 2048
"""Connections that wait to be accepted while a pod stands still; what most servers ask for."""

SERVICE_TIME = b"x-service-time"
BODY = b'{"id":"cmpl-7f3a9c","object":"text_completion","choices":[{"index":0,"text":"hello"}]}'
RECEIVED = b'{"received":true}'

Answer = Callable[[bytes], None]
At = Callable[[float, Callable[[], None]], None]
"""Calls back at a time of `time.monotonic`."""


class Pod(Protocol):
    """One upstream."""

    def take(self, path: bytes, seconds: float, answer: Answer) -> None:
        """Answer a request whose head says that it takes so long."""


def reply(name: str, body: bytes = BODY, content_type: str = "application/json") -> bytes:
    head = (
        f"HTTP/1.1 200 OK\r\nServer: bench\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        f"X-Upstream: {name}\r\nCache-Control: no-store\r\nVary: Accept\r\n\r\n"
    )
    return head.encode() + body


class Plain:
    """Answers each request at once; every reply is made beforehand."""

    def __init__(self, name: str, capacity: int, at: At) -> None:
        self._replies = {
            b"/upload": reply(name, RECEIVED),
            b"/download": reply(name, b"x" * MIB, "application/octet-stream"),
        }
        self._else = reply(name)

    def take(self, path: bytes, seconds: float, answer: Answer) -> None:
        answer(self._replies.get(path, self._else))


class Slot:
    """One slot, and a queue in front of it. A request that has begun is served to its end, as a GPU's batch is. It
    says itself how long it takes (`X-Service-Time`, seconds), so that every balancer brings the same work."""

    def __init__(self, name: str, capacity: int, at: At, clock: Callable[[], float] = time.monotonic) -> None:
        self._at = at
        self._clock = clock
        self._free_at = 0.0
        self._reply = reply(name)

    def take(self, path: bytes, seconds: float, answer: Answer) -> None:
        """Serve after all that came before. Late timers do not add up: ends follow from arrivals and services."""
        self._free_at = max(self._clock(), self._free_at) + seconds
        self._at(self._free_at, lambda: answer(self._reply))


class Caching:
    """Keeps the `capacity` paths that were requested last. `X-Upstream` is its name, and whether the path was in
    the cache. As many requests at once as there are."""

    def __init__(self, name: str, capacity: int, at: At, clock: Callable[[], float] = time.monotonic) -> None:
        self._cache = LruCache(capacity)
        self._at = at
        self._clock = clock
        self._hit, self._miss = (reply(f"{name} {found}", b"ok") for found in (HIT, MISS))

    def take(self, path: bytes, seconds: float, answer: Answer) -> None:
        if self._cache.get(path):
            self._at(self._clock() + HIT_SECONDS, lambda: answer(self._hit))
        else:
            self._at(self._clock() + MISS_SECONDS, lambda: self._read(path, answer))

    def _read(self, path: bytes, answer: Answer) -> None:
        self._cache.put(path)
        answer(self._miss)


KINDS: dict[str, Callable[[str, int, At], Pod]] = {"plain": Plain, "slot": Slot, "caching": Caching}


class Served(RequestProtocol):
    """A connection to a pod."""

    def __init__(self, pod: Pod) -> None:
        super().__init__()
        self._pod = pod
        self._seconds = 0.0

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == SERVICE_TIME:
            self._seconds = float(value)

    def on_message_complete(self) -> None:
        self._pod.take(self.path, self._seconds, self._answer)
        self._seconds = 0.0

    def _answer(self, whole: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(whole)


async def serve(kind: str, capacity: int, ports: Sequence[int]) -> None:
    """Listen on the loopback, one pod a port, which is its name, until the process is stopped."""
    loop = asyncio.get_running_loop()
    timers = Timers(loop)
    for port in ports:
        pod = KINDS[kind](str(port), capacity, timers.at)
        await loop.create_server(lambda pod=pod: Served(pod), "127.0.0.1", port, backlog=BACKLOG)  # type: ignore[misc]
    await asyncio.Event().wait()


def start_pods(
    processes: Processes, home: Path, kind: str, ports: Sequence[int], capacity: int = 1, core: int | None = None
) -> Running:
    """One process with these pods, which answer on return; `home` is its own folder."""
    running = processes.start_module(home, "bench.pods", kind, capacity, *ports, core=core)
    wait_until(
        lambda: all(ask(port, "/")[0] == 200 for port in ports), running, READY_SECONDS, "starting upstreams"
    )
    return running


def start_upstreams(processes: Processes, home: Path, core: int | None, ports: Sequence[int]) -> None:
    """nginx where it is installed, else plain pods: all in one process, on the load's core so that they never take
    from a proxy's. They answer on return; `home` is their own folder."""
    program = find_program("nginx")
    if program is None:
        start_pods(processes, home, "plain", ports, core=core)
        return
    (home / "download.bin").write_bytes(b"x" * MIB)
    config = home / "upstreams.conf"
    config.write_text(Site(home, 0, 0, tuple(ports), getpass.getuser()).fill((CONFIGS / config.name).read_text()))
    argv = [program, "-p", str(home), "-e", "stderr", "-c", str(config)]
    running = processes.start(argv, core, home, {})
    wait_until(
        lambda: all(ask(port, "/")[0] == 200 for port in ports), running, READY_SECONDS, "starting the upstreams"
    )


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2]), [int(word) for word in sys.argv[3:]]))

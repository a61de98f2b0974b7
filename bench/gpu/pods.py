"""Stand-in pods, each of which serves one request at a time: `python -m bench.gpu.pods PORT...`.

A request says itself how long it takes (`X-Service-Time`, seconds), so that every balancer brings the same work.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Protocol

import uvloop

from bench.gpu.timers import Timers
from bench.request_protocol import RequestProtocol

SERVICE_TIME = b"x-service-time"
BODY = b'{"object":"text_completion","choices":[{"index":0,"text":"hello"}]}'


class Alarm(Protocol):
    """What a pod needs of timers."""

    def at(self, when: float, callback: Callable[[], None]) -> None: ...


class Pod:
    """One slot, and a queue in front of it. What a request began is served to its end, as a GPU's batch is."""

    def __init__(self, name: str, timers: Alarm, clock: Callable[[], float]) -> None:
        self._timers = timers
        self._clock = clock
        self._free_at = 0.0
        self.reply = (
            f"HTTP/1.1 200 OK\r\nServer: pod\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}\r\n"
            f"X-Upstream: {name}\r\n\r\n"
        ).encode() + BODY

    def take(self, seconds: float, answer: Callable[[], None]) -> None:
        """Serve after all that came before. Late timers do not add up: ends follow from arrivals and services."""
        self._free_at = max(self._clock(), self._free_at) + seconds
        self._timers.at(self._free_at, answer)


class PodProtocol(RequestProtocol):
    """One connection of a proxy's to a pod; one request at a time on it."""

    def __init__(self, pod: Pod) -> None:
        super().__init__()
        self._pod = pod
        self._seconds = 0.0

    def on_message_begin(self) -> None:
        self._seconds = 0.0

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == SERVICE_TIME:
            self._seconds = float(value)

    def on_message_complete(self) -> None:
        self._pod.take(self._seconds, self._answer)

    def _answer(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(self._pod.reply)


async def serve(ports: list[int]) -> None:
    """Listen on the loopback, one pod a port, until the process is told to stop."""
    loop = asyncio.get_running_loop()
    timers = Timers(loop)
    for number, port in enumerate(ports):
        pod = Pod(str(number), timers, time.monotonic)
        await loop.create_server(lambda pod=pod: PodProtocol(pod), "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve([int(word) for word in sys.argv[1:]]))

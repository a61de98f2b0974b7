"""The open-loop load: `python -m bench.gpu.load PLAN RESULT`, both JSON files.

A request is sent when it is due, whether or not earlier ones were answered, and its latency counts from then.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Self, cast

import httptools
import orjson
import uvloop

from bench.gpu.timers import Timers
from bench.gpu.work import Work

NO_REPLY = 0
PATH = "/v1/completions"
START_SECONDS = 0.5
"""Until the first request may be due: the process has settled by then."""


@dataclass(frozen=True)
class Plan:
    """What to send where. `give_up` is how long after the last arrival answers are waited for, in seconds."""

    ports: Sequence[int]
    arrivals: Sequence[float]
    services: Sequence[float]
    proxies: Sequence[int]
    give_up: float

    @classmethod
    def of(cls, work: Work, ports: Sequence[int], give_up: float) -> Self:
        return cls(ports, work.arrivals, work.services, work.proxies, give_up)


@dataclass
class Result:
    """By request, in the plan's order: its status (NO_REPLY without one), the seconds from when it was due until
    its reply was whole, and how late it was sent."""

    statuses: list[int] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    sent_late: list[float] = field(default_factory=list)

    @classmethod
    def empty(cls, count: int) -> Self:
        return cls([NO_REPLY] * count, [0.0] * count, [0.0] * count)


class Connection(asyncio.Protocol):
    """A kept-alive connection to a proxy, with at most one request on it."""

    def __init__(self, proxy: "Proxy") -> None:
        self._proxy = proxy
        self._parser = httptools.HttpResponseParser(self)
        self._number: int | None = None

    def ask(self, number: int, request: bytes) -> None:
        self._number = number
        self._transport.write(request)

    def abort(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._proxy.connected.add(self)
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has its methods, not its type

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self._number is None:
            return
        number, self._number = self._number, None
        if self._parser.should_keep_alive():
            self._proxy.idle.append(self)
        else:
            self._transport.close()
        self._proxy.sender.ended(number, status)

    def connection_lost(self, error: Exception | None) -> None:
        self._proxy.connected.discard(self)
        if self in self._proxy.idle:
            self._proxy.idle.remove(self)
        if self._number is not None:
            self._proxy.sender.ended(self._number, NO_REPLY)


class Proxy:
    """One port, and its idle connections; the one used last is used first."""

    def __init__(self, port: int, sender: "Sender") -> None:
        self._port = port
        self.sender = sender
        self.idle: list[Connection] = []
        self.connected: set[Connection] = set()
        self._connecting: set[asyncio.Task[None]] = set()

    def ask(self, number: int, request: bytes) -> None:
        if self.idle:
            self.idle.pop().ask(number, request)
            return
        task = asyncio.create_task(self._connect(number, request))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def close(self) -> None:
        """Leave without a goodbye; all sockets are closed on return."""
        for task in self._connecting:
            task.cancel()
        for connection in self.connected:
            connection.abort()
        while self.connected or self._connecting:
            await asyncio.sleep(0)

    async def _connect(self, number: int, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(lambda: Connection(self), "127.0.0.1", self._port)
        except OSError:
            self.sender.ended(number, NO_REPLY)
        else:
            connection.ask(number, request)


class Sender:
    """Sends a plan's requests when they are due, and notes how each ended."""

    def __init__(self, plan: Plan, timers: Timers) -> None:
        self._plan = plan
        self._timers = timers
        self._proxies = [Proxy(port, self) for port in plan.ports]
        self._left = len(plan.arrivals)
        self._done = asyncio.Event()
        self.result = Result.empty(self._left)

    async def run(self) -> Result:
        """Until all have ended, or the last one's time is up."""
        self._begun = time.monotonic() + START_SECONDS
        for number, arrival in enumerate(self._plan.arrivals):
            self._timers.at(self._begun + arrival, partial(self._send, number))
        try:
            async with asyncio.timeout(START_SECONDS + self._plan.arrivals[-1] + self._plan.give_up):
                await self._done.wait()
        except TimeoutError:
            pass  # what has not ended counts as NO_REPLY
        for proxy in self._proxies:
            await proxy.close()
        return self.result

    def ended(self, number: int, status: int) -> None:
        self.result.statuses[number] = status
        self.result.latencies[number] = self._since_due(number)
        self._left -= 1
        if not self._left:
            self._done.set()

    def _send(self, number: int) -> None:
        self.result.sent_late[number] = self._since_due(number)
        request = (
            f"GET {PATH} HTTP/1.1\r\nHost: bench\r\nUser-Agent: bench\r\nAccept: */*\r\n"
            f"X-Service-Time: {self._plan.services[number]:.6f}\r\n\r\n"
        )
        self._proxies[self._plan.proxies[number]].ask(number, request.encode())

    def _since_due(self, number: int) -> float:
        return time.monotonic() - self._begun - self._plan.arrivals[number]


async def send(plan: Plan) -> Result:
    """Carry out a plan."""
    timers = Timers(asyncio.get_running_loop())
    try:
        return await Sender(plan, timers).run()
    finally:
        timers.close()


def main(plan: Path, result: Path) -> None:
    outcome = uvloop.run(send(Plan(**orjson.loads(plan.read_bytes()))))
    result.write_bytes(orjson.dumps(asdict(outcome)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

"""Upstreams that know how many requests they truly have at once, and clients that keep so many in flight."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random

from bench.pods import reply
from bench.request_protocol import RequestProtocol
from bench.traffic import KeptAlive

REPLY = reply("present", b"ok")
PATIENCE_SECONDS = 60.0
"""Of a client: longer than any request may wait in a queue and be served."""

PAUSE_SECONDS = 0.1
"""Of a client that got no 200: it does not come back at once."""


class PresentUpstream:
    """Each request takes a time between the two of `seconds`, however many there are. `present`: how many there are
    now, `most`: how many there ever were at once. One whose connection is gone is no longer there."""

    def __init__(self, rng: Random, seconds: tuple[float, float]) -> None:
        self._rng = rng
        self._seconds = seconds
        self.member = ""
        self.present = 0
        self.most = 0
        self.connections: set[asyncio.Transport] = set()

    async def start(self) -> None:
        """Listen, on a port of its own; `member` is known then."""
        self._server = await asyncio.get_running_loop().create_server(lambda: _Served(self), "127.0.0.1", 0)
        self.member = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Listen no more, and cut off all connections."""
        self._server.close()
        for connection in list(self.connections):
            connection.abort()
        await self._server.wait_closed()

    def came(self) -> float:
        """A request is there; how long it takes."""
        self.present += 1
        self.most = max(self.most, self.present)
        return self._rng.uniform(*self._seconds)

    def went(self) -> None:
        """One has ended, whatever the way."""
        self.present -= 1


class _Served(RequestProtocol):
    """Counted at its upstream while it has a request."""

    def __init__(self, upstream: PresentUpstream) -> None:
        super().__init__()
        self._upstream = upstream
        self._running: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._upstream.connections.add(self.transport)

    def on_message_complete(self) -> None:
        seconds = self._upstream.came()
        self._running = asyncio.get_running_loop().call_later(seconds, self._answer)

    def _answer(self) -> None:
        self._running = None
        self._upstream.went()  # before it can be known that the slot is free
        self.transport.write(REPLY)

    def connection_lost(self, error: Exception | None) -> None:
        self._upstream.connections.remove(self.transport)
        if self._running is not None:
            self._running.cancel()
            self._running = None
            self._upstream.went()


class Clients:
    """`count` clients, each with one request after another through an instance chosen at random among those that
    are there. `failed`: by status, what instances that lived all the while did not answer with 200; `lost`: what
    was with an instance when that was killed."""

    def __init__(self, ports: Sequence[int], path: str, count: int, rng: Random) -> None:
        self._instances = [KeptAlive(port, path, PATIENCE_SECONDS) for port in ports]
        self._kills = Counter[KeptAlive]()
        self._open = list(self._instances)
        self._count = count
        self._rng = rng
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self.in_flight = 0
        self.answered = 0
        self.lost = 0
        self.failed: Counter[int] = Counter()

    async def start(self) -> None:
        """From now on they ask."""
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
            await asyncio.sleep(PAUSE_SECONDS)

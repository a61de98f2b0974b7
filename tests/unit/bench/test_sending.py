"""Upstreams that the bench plays, and requests that are sent to them when they are due."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from bench.pods import Served, Slot
from bench.ports import free_ports
from bench.sending import Plan, Result, send
from bench.timers import Timers
from bench.traffic import NO_REPLY, NOT_CONNECTED, get
from tests.support.waiting import eventually, patience


class Clock:
    """A clock that is set, and timers that fire at once and note when they were to."""

    def __init__(self) -> None:
        self.now = 100.0
        self.due: list[float] = []

    def at(self, when: float, callback: Callable[[], None]) -> None:
        self.due.append(when)
        callback()

    def __call__(self) -> float:
        return self.now


def test_a_pod_with_one_slot_serves_one_request_at_a_time_in_the_order_they_came() -> None:
    clock, replies = Clock(), list[bytes]()
    pod = Slot("a", clock.at, clock)
    for seconds in (3, 1):
        pod.take(b"/", seconds, replies.append)
    clock.now = 110
    pod.take(b"/", 2, replies.append)
    assert (clock.due, len(replies)) == ([103, 104, 112], 3)


class WatchedPod(Served):
    """Is among the connections until it is lost."""

    def __init__(self, pod: Slot, connections: set[asyncio.Protocol]) -> None:
        super().__init__(pod)
        self._connections = connections
        connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)


@asynccontextmanager
async def pods(count: int) -> AsyncIterator[list[int]]:
    """Pods with one slot, on ports of their own, in this loop."""
    loop = asyncio.get_running_loop()
    timers = Timers(loop)
    servers, connections = [], set[asyncio.Protocol]()
    for number in range(count):
        pod = Slot(str(number), timers.at)
        servers.append(await loop.create_server(lambda pod=pod: WatchedPod(pod, connections), "127.0.0.1", 0))  # type: ignore[misc]
    try:
        yield [server.sockets[0].getsockname()[1] for server in servers]
    finally:
        for server in servers:
            server.close()
        await eventually(lambda: not connections)
        timers.close()


async def sent(ports: list[int], arrivals: list[float], to: list[int], seconds: float, give_up: float) -> Result:
    requests = [get("/", f"X-Service-Time: {seconds}\r\n").decode()] * len(to)
    return await send(Plan(time.monotonic(), ports, arrivals, requests, to, give_up))


async def test_a_request_waits_for_no_reply_and_its_latency_counts_from_when_it_was_due() -> None:
    async with pods(1) as ports:
        result = await sent(ports, [0.0, 0.001, 0.002], [0, 0, 0], 0.03, patience(10))
    assert result.statuses == [200, 200, 200]
    # In the pod they are served one after another, however late each was sent.
    shares = zip(result.latencies, (0.03, 0.059, 0.088), strict=True)
    assert all(latency >= share for latency, share in shares)


async def test_each_request_goes_to_the_port_it_was_given() -> None:
    async with pods(2) as ports:
        (closed,) = free_ports(1)
        result = await sent([*ports, closed], [0, 0, 0], [0, 2, 1], 0, patience(10))
    assert result.statuses == [200, NOT_CONNECTED, 200]


async def test_a_request_that_is_never_answered_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        result = await sent([silent.getsockname()[1]], [0.0], [0], 0, 0.05)
    assert result.statuses == [NO_REPLY]

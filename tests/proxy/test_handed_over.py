"""Connections that were handed over to the applications: they count as long as they are open."""

import asyncio
from collections import Counter
from typing import Any, cast

import pytest

from tests.proxy.harness import MakeProxy, Origin, Proxy, Wire
from tests.support.memory import part_of
from tests.support.waiting import eventually, settled, soon

HALF = b"POST /register HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n{"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nmine"


class Patient(asyncio.Protocol):
    """An application that waits for the rest of a body, and answers when the test allows it."""

    def __init__(self) -> None:
        self.lost = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def answer(self) -> None:
        self.transport.write(ANSWER)
        self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost += 1


class Applications:
    """All connections that were handed over."""

    def __init__(self) -> None:
        self.made: list[Patient] = []

    def __call__(self) -> Patient:
        self.made.append(Patient())
        return self.made[-1]


async def waiting_for_bodies(proxy: Proxy, count: int) -> tuple[Applications, list[Wire]]:
    """So many half-sent requests that the applications have."""
    applications = proxy.applications = Applications()
    wires = [await proxy.connect() for _ in range(count)]
    for wire in wires:
        await wire.send(HALF)
    await eventually(lambda: len(applications.made) == count)
    return applications, wires


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_peer"])
async def test_they_count_until_they_have_ended_and_once(proxies: MakeProxy, origin: Origin, limit: str) -> None:
    proxy = await proxies(**cast("Any", {limit: 3}))
    proxy.route("/", origin)
    applications, wires = await waiting_for_bodies(proxy, 3)
    assert proxy.metrics.clients.connections() == 3
    assert (await (await proxy.connect()).reply()).reason == "overloaded"
    wires[0].reset()
    applications.made[1].answer()
    assert (await wires[1].reply()).body == b"mine"
    await eventually(lambda: proxy.metrics.clients.connections() == 1)
    assert [(await proxy.get("/")).status for _ in range(3)] == [200] * 3
    wires[2].close()
    await eventually(lambda: [each.lost for each in applications.made] == [1, 1, 1])
    places = proxy.server.clients.places
    await eventually(lambda: not places.taken)
    assert not part_of(places, Counter), "peers"


async def test_a_drain_waits_for_their_answers(proxies: MakeProxy) -> None:
    proxy = await proxies()
    applications, wires = await waiting_for_bodies(proxy, 1)
    drain = asyncio.create_task(proxy.server.drain(1000))
    await settled(lambda: proxy.metrics.clients.connections())
    assert not drain.done()
    applications.made[0].answer()
    assert (await wires[0].reply()).body == b"mine"
    assert await soon(drain) == 0


async def test_a_drain_that_has_no_more_time_cuts_them_off(proxies: MakeProxy) -> None:
    proxy = await proxies()
    applications, wires = await waiting_for_bodies(proxy, 1)
    await proxy.server.drain(0.05)
    assert await wires[0].ended()
    await eventually(lambda: applications.made[0].lost == 1)

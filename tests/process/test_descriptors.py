"""What strangers can make a process hold open, and which connections still get through."""

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from yarl import URL

from tests.process.commands import Commands, Serving
from tests.process.serving import events, with_upstream
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits other processes")


async def with_few_descriptors(
    slb: Commands, valkey: Valkey, count: int, *arguments: str, **settings: str
) -> Serving:
    """An instance with an upstream at /p, that may have no more than `count` files open from now on."""
    serving = await slb.until_ready(await slb.serve(*arguments, redis=valkey.url, env=settings))
    await with_upstream(slb, serving)
    resource.prlimit(serving.process.pid, resource.RLIMIT_NOFILE, (count, count))
    return serving


@asynccontextmanager
async def idle_connections(to: str, count: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """So many that send nothing."""
    address = URL(to)
    made = [await asyncio.open_connection(address.host, address.port) for _ in range(count)]
    try:
        yield [reader for reader, _ in made]
    finally:
        for _, writer in made:
            writer.transport.abort()


async def metric(slb: Commands, serving: Serving, name: str) -> float:
    """The sample of this name and labels; 0 where there is none."""
    _, text = await slb.get(f"{serving.api}/metrics")
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name + " "))


@pytest.mark.parametrize("arguments", [(), ("--workers", "2")], ids=["one process", "workers"])
async def test_idle_connections_to_the_api_take_nothing_from_traffic_and_are_logged(
    slb: Commands, valkey: Valkey, arguments: tuple[str, ...]
) -> None:
    serving = await with_few_descriptors(
        slb, valkey, 400, *arguments, SLB_API_MAX_CONNECTIONS="100", SLB_API_MAX_CONNECTIONS_PER_PEER="0"
    )
    async with idle_connections(serving.api, 620) as readers:
        assert (await slb.get(f"{serving.url}/p"))[0] == 200
        # Held until so many were refused: a connection that ends before it was accepted takes the place of one that
        # ended with it. (More than 100 may come in: what asked before this gives its place back.)
        answers = [asyncio.ensure_future(reader.read()) for reader in readers]
        await eventually(lambda: sum(answer.done() for answer in answers) >= 500)
    assert events(serving, "api_connections_refused") != []
    await slb.until_status(f"{serving.api}/healthz", 200)
    assert await metric(slb, serving, 'slb_api_requests_total{code="503",reason="overloaded"}') >= 500
    assert events(serving, "accept_failed") == []


async def test_a_listener_without_descriptors_logs_that_and_serves_again(slb: Commands, valkey: Valkey) -> None:
    serving = await with_few_descriptors(slb, valkey, 100)
    async with idle_connections(serving.url, 200):
        await eventually(lambda: events(serving, "accept_failed") != [])
    await slb.until_status(f"{serving.url}/p", 200)
    assert events(serving, "accept_failed")[0]["listener"] == "data"
    await slb.until_status(f"{serving.api}/healthz", 200)
    assert await metric(slb, serving, 'slb_accept_failures_total{listener="data"}') >= 1


async def test_half_sent_registrations_count_among_the_connections_for_traffic(
    slb: Commands, valkey: Valkey
) -> None:
    settings = {"SLB_MAX_CONNECTIONS": "10", "SLB_MAX_CONNECTIONS_PER_PEER": "5"}
    serving = await slb.until_ready(await slb.serve(redis=valkey.url, env=settings))
    address = URL(serving.url)
    made = []
    for _ in range(30):
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"POST /register HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{")
        made.append((reader, writer))
    refused = [reader for reader, _ in made[5:]]
    assert [b"overloaded" in await reader.read() for reader in refused] == [True] * 25
    _, text = await slb.get(f"{serving.api}/metrics")
    assert "slb_client_connections 5.0" in text
    for _, writer in made:
        writer.close()

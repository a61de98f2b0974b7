"""Proxies and origins for one test, on the event loop slb runs on."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from random import Random
from typing import Any

import pytest
import pytest_asyncio
import uvloop

from slb.addresses import AddressRules
from slb.control import keys
from slb.control.health_news import HealthNews
from slb.control.health_store import HealthStore
from slb.health.service import HealthService
from tests.proxy.harness import PATIENCE, Handler, MakeProxy, Origin, Proxy, answer_ok
from tests.proxy.refuser import TOO_MUCH, MakeRefuser, Refuser
from tests.proxy.slots_rig import Fleet
from tests.support.valkey import Valkey
from tests.support.waiting import eventually


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest_asyncio.fixture
async def origins() -> AsyncIterator[Callable[..., Awaitable[Origin]]]:
    """Makes origins: `await origins(handler)`, `await origins(tls=context)`; on a `listener` that there is."""
    made: list[Origin] = []

    async def make(
        handle: Handler = answer_ok, tls: ssl.SSLContext | None = None, listener: socket.socket | None = None
    ) -> Origin:
        made.append(await Origin(handle, tls).start(listener=listener))
        return made[-1]

    yield make
    for origin in made:
        await origin.stop()


@pytest_asyncio.fixture
async def proxies() -> AsyncIterator[Callable[..., Awaitable[Proxy]]]:
    """Makes proxies: `await proxies(max_body=10)`; each must be at rest in the end."""
    made: list[Proxy] = []

    async def make(**settings: Any) -> Proxy:
        made.append(await Proxy(**settings).start())
        return made[-1]

    yield make
    for proxy in made:
        await proxy.stop()
        await proxy.at_rest()


@pytest_asyncio.fixture
async def origin(origins: Callable[..., Awaitable[Origin]]) -> Origin:
    """An origin that answers ok."""
    return await origins()


@pytest_asyncio.fixture
async def proxy(proxies: Callable[..., Awaitable[Proxy]], origin: Origin) -> Proxy:
    """A proxy whose `/` leads to `origin`."""
    made = await proxies()
    made.route("/", origin)
    return made


@pytest.fixture
def refusers() -> Iterator[MakeRefuser]:
    """Makes refusers: `refusers()`, `refusers(reply, tls)`."""
    made: list[Refuser] = []

    def make(reply: bytes = TOO_MUCH, tls: ssl.SSLContext | None = None) -> Refuser:
        made.append(Refuser(reply, tls))
        return made[-1]

    yield make
    for each in made:
        each.stop()


@pytest_asyncio.fixture
async def fleet(valkey: Valkey, proxies: MakeProxy) -> AsyncIterator[Fleet]:
    """`await fleet(2, origin, policy=...)`: so many proxies whose `/p` leads there."""

    async def make(count: int, *origins: Origin, patience: float = PATIENCE, **settings: str) -> list[Proxy]:
        made = [await proxies(redis=valkey.url, name=f"i{number}", patience=patience) for number in range(count)]
        for proxy in made:
            proxy.route("/p", *origins, **settings)
        return made

    yield make


@pytest_asyncio.fixture
async def judging(fleet: Fleet, valkey: Valkey) -> AsyncIterator[Fleet]:
    """Fleets whose instances judge upstreams together."""
    tasks: list[asyncio.Task[None]] = []

    async def make(count: int, *origins: Origin, **settings: str) -> list[Proxy]:
        made: list[Proxy] = await fleet(count, *origins, **settings)
        for number, proxy in enumerate(made):
            proxy.connection.mark_up()  # there is no watcher here that would
            health = HealthService(
                proxy.mirror,
                proxy.metrics.health,
                HealthStore(proxy.connection),
                HealthNews(proxy.connection, retry=0.02),
                AddressRules((), lambda: ()),
                Random(number),
                gap=0.005,
                note=proxy.metrics.changes.note,
                instances=lambda: count,
                connect=proxy.server.pools.look,
            )
            proxy.server.context.witness = health.passive
            tasks.append(asyncio.create_task(health.run()))
        await eventually(lambda: valkey.listeners(keys.HEALTH_CHANNEL) == count, what="all listen")
        return made

    yield make
    for task in tasks:
        task.cancel()
        await asyncio.wait([task])

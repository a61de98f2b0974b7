"""Real `slb` processes, all of them gone when the test is."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from pytest_aiohttp import AiohttpServer

from tests.process.commands import Commands
from tests.process.dispatchers import Dispatchers, MakeGpu
from tests.process.streams import echo_and_stream
from tests.support.fork_server import ForkServer
from tests.support.gpus import Gpu
from tests.support.valkey import Valkey


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Of all tests of this pytest process."""
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture
async def slb(tmp_path: Path, fork_server: ForkServer) -> AsyncIterator[Commands]:
    """Starts and runs `slb` commands."""
    commands = Commands(tmp_path, fork_server)
    yield commands
    await commands.close()


@pytest.fixture
async def origin(aiohttp_server: AiohttpServer) -> str:
    """HOST:PORT of an upstream with a stream and a WebSocket."""
    server = await aiohttp_server(echo_and_stream(), shutdown_timeout=0.1)
    return f"{server.host}:{server.port}"


@pytest.fixture
async def gpu() -> AsyncIterator[MakeGpu]:
    """Starts GPU servers: `await gpu(holds=True)`."""
    async with AsyncExitStack() as stack:

        async def make(**manner: bool) -> Gpu:
            made = Gpu(**manner)
            await made.server.start_server()
            stack.push_async_callback(made.server.close)
            stack.callback(made.go.set)
            return made

        yield make


@pytest.fixture
def jobs(valkey: Valkey, slb: Commands) -> Dispatchers:
    """On a Redis that has what it acknowledged on its disk, and that ends after the instances: one that stops
    without Redis waits for it until drain_timeout, to tell it of a job that has just ended."""
    valkey.admin.config_set("appendfsync", "always")
    return Dispatchers(slb, valkey)

"""Real `slb` processes, all of them gone when the test is."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.process.commands import Commands
from tests.process.streams import echo_and_stream
from tests.support.fork_server import ForkServer


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
async def origin() -> AsyncIterator[str]:
    """HOST:PORT of an upstream with a stream and a WebSocket."""
    runner = web.AppRunner(echo_and_stream(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    yield f"{host}:{port}"
    await runner.cleanup()

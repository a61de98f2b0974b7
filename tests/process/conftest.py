"""Real `slb` processes, all of them gone when the test is."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pytest_aiohttp import AiohttpServer

from tests.process.commands import Commands
from tests.process.streams import echo_and_stream


@pytest.fixture
async def slb(tmp_path: Path) -> AsyncIterator[Commands]:
    """Starts and runs `slb` commands."""
    commands = Commands(tmp_path)
    yield commands
    await commands.close()


@pytest.fixture
async def origin(aiohttp_server: AiohttpServer) -> str:
    """HOST:PORT of an upstream with a stream and a WebSocket."""
    server = await aiohttp_server(echo_and_stream(), shutdown_timeout=0.1)
    return f"{server.host}:{server.port}"

"""Pools and upstreams of one test, on the event loop slb runs on."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest_asyncio

from tests.proxy.conftest import origin, origins, pytest_asyncio_loop_factories, refusers
from tests.upstreams.rig import Caller

__all__ = ["callers", "origin", "origins", "pytest_asyncio_loop_factories", "refusers"]


@pytest_asyncio.fixture
async def callers() -> AsyncIterator[Callable[..., Awaitable[Caller]]]:
    """Makes callers: `await callers(max_head=100)`; each must have given all back in the end."""
    made: list[Caller] = []

    async def make(**settings: Any) -> Caller:
        made.append(Caller(**settings))
        return made[-1]

    yield make
    for caller in made:
        await caller.stop()


@pytest_asyncio.fixture
async def caller(callers: Callable[..., Awaitable[Caller]]) -> Caller:
    """One with the settings that slb has by default."""
    return await callers()

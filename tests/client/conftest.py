"""Upstreams of one test."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest_asyncio

from tests.client.rig import Handler, Upstream, answer_ok

Upstreams = Callable[..., Awaitable[Upstream]]


@pytest_asyncio.fixture
async def upstreams() -> AsyncIterator[Upstreams]:
    """Makes upstreams: `await upstreams(handler)`."""
    made: list[Upstream] = []

    async def make(handle: Handler = answer_ok) -> Upstream:
        made.append(await Upstream(handle).start())
        return made[-1]

    yield make
    for upstream in made:
        await upstream.stop()

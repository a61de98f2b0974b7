"""Fixtures of the tests on a real Valkey."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from slb.control.quota import QuotaTiming
from slb.quotas import Rules
from tests.redis.quota_instances import QUICK, Instance, Starter
from tests.support.valkey import Valkey


@pytest.fixture
async def start(valkey: Valkey) -> AsyncIterator[Starter]:
    """Makes instances of the quota router that run."""
    async with AsyncExitStack() as stack:

        async def make(
            rules: Rules | None = None, is_open: bool = False, timing: QuotaTiming = QUICK, parts: int = 2
        ) -> Instance:
            instance = Instance(valkey, rules or Rules(), is_open, timing, parts)
            stack.push_async_callback(instance.connection.aclose)
            task = asyncio.create_task(instance.quota.run())

            async def end() -> None:
                task.cancel()
                await asyncio.wait([task])

            stack.push_async_callback(end)
            return instance

        yield make

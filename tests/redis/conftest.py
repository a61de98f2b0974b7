"""Fixtures of the tests on a real Valkey."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial

import pytest
from redis import Redis

from slb.control import ledger
from slb.control.ask_lane import AskTiming
from slb.control.connection import Connection
from slb.observe.metrics import Metrics
from slb.quotas import Rules
from tests.redis.jobs_rig import QUICK as QUICK_LANE
from tests.redis.jobs_rig import Begin, Here
from tests.redis.quota_instances import QUICK, Instance, Starter
from tests.redis.quota_scheduler import Scheduler
from tests.support.valkey import Valkey

Maker = Callable[..., Scheduler]


@pytest.fixture
async def start(valkey: Valkey) -> AsyncIterator[Starter]:
    """Makes instances of the quota router that run."""
    async with AsyncExitStack() as stack:

        async def make(
            rules: Rules | None = None, is_open: bool = False, timing: AskTiming = QUICK, parts: int = 2
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


@pytest.fixture
def often_reaping(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger reaps every tenth of a second."""
    monkeypatch.setattr(ledger, "_REAP_PERIOD", 0.1)


@pytest.fixture(scope="session")
def simulation() -> Iterator[Redis]:
    """A Redis for decisions in simulated time, one test after another: it writes nothing to the disk."""
    server = Valkey(appendonly="no")
    yield server.admin
    server.close()


@pytest.fixture
def make(simulation: Redis) -> Maker:
    """Makes a scheduler, with nothing left of the one before: `Scheduler` without its Redis."""
    return partial(Scheduler, simulation)


@pytest.fixture
async def begin(valkey: Valkey) -> AsyncIterator[Begin]:
    """Makes instances: `begin("a")`; their lanes run until the test's end, or until `here.task` is cancelled."""
    async with AsyncExitStack() as stack:

        def make(
            holder: str = "a",
            lease: float = 10.0,
            timing: AskTiming = QUICK_LANE,
            url: str = "",
            needs_replica: bool = False,
        ) -> Here:
            connection = Connection(url or valkey.url, Metrics())
            stack.push_async_callback(connection.aclose)
            here = Here(connection, holder, lease, timing, needs_replica)
            task = asyncio.create_task(here.lane.run())
            here.task = task

            async def end() -> None:
                task.cancel()
                await asyncio.wait([task])

            stack.push_async_callback(end)
            return here

        yield make

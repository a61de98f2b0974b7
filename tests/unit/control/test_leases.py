"""When registrations are taken out whose lease has ended, in virtual time; how leases end stands in tests/redis."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from slb.config import Settings
from slb.control.leases import Leases
from slb.control.scripts import change_source
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror
from tests.support.virtual_time import in_virtual_time

ENTRY = "slb_a 10.1.1.1:1"
BOUND = 2.0
"""Seconds, as docs/operations.md has it."""


class RedisOfOneLease:
    """A connection and its client: the lease of `ENTRY` ends at `end`; nothing is answered before `answers_from`.
    `taken`: when the registration was taken out."""

    def __init__(self, end: float, answers_from: float) -> None:
        self.client = self
        self.servers = SimpleNamespace(cluster=None)
        self.taken: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._end, self._answers_from = end, answers_from

    def register_script(self, source: str) -> Callable[..., Awaitable[list[Any]]]:
        return self._change if source == change_source() else self._due

    async def _due(self, keys: Sequence[str], args: Sequence[object]) -> list[Any]:
        now = asyncio.get_running_loop().time()
        if now < self._answers_from:
            raise RedisConnectionError("refused")
        return ["0", ENTRY] if now >= self._end and not self.taken.done() else ["0"]

    async def _change(self, keys: Sequence[str], args: Sequence[object]) -> list[Any]:
        self.taken.set_result(asyncio.get_running_loop().time())
        return [7, *([1] * (len(keys) - 2))]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("outage", [0.0, 60.0])
def test_a_registration_is_out_within_two_seconds_of_the_end_of_its_lease_or_of_an_outage(
    outage: float, seed: int
) -> None:
    async def live() -> float:
        end = 30.0 * Random(seed).random()
        redis = RedisOfOneLease(end, outage)
        running = asyncio.create_task(
            Leases(cast("Any", redis), Mirror(Settings().route_settings, Random(1)), Metrics()).run()
        )
        taken = await redis.taken
        running.cancel()
        await asyncio.wait([running])
        return taken - max(end, outage)

    assert 0.0 <= in_virtual_time(live) <= BOUND

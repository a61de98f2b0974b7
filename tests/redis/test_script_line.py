"""Calls of one script on a real Valkey."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from slb.control.connection import Connection
from slb.control.script_line import ScriptLine
from slb.observe.metrics import Metrics
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

APPEND = "return redis.call('RPUSH', KEYS[1], ARGV[1])"


@pytest.fixture
async def line(valkey: Valkey) -> AsyncIterator[ScriptLine]:
    """Appends to a list."""
    connection = Connection(valkey.url, Metrics())
    line = connection.script_line(APPEND, "")
    yield line
    line.drop()
    await connection.aclose()


async def test_calls_run_once_and_in_order_where_redis_forgets_the_script_over_and_over(
    valkey: Valkey, line: ScriptLine
) -> None:
    for number in range(20):
        assert await line.call(["list"], [number]) == number + 1
        valkey.admin.script_flush()
    assert valkey.admin.lrange("list", 0, -1) == [str(number) for number in range(20)]


async def test_a_cut_connection_ends_a_call_and_the_next_is_made_on_another(
    valkey: Valkey, line: ScriptLine
) -> None:
    await line.call(["list"], [0])
    valkey.admin.client_pause(60_000, all=False)
    under_way = asyncio.create_task(line.call(["list"], [1]))
    await eventually(lambda: valkey.admin.info("clients")["blocked_clients"] > 0, what="under way")
    valkey.admin.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(RedisConnectionError):
        await under_way
    valkey.admin.client_unpause()
    assert await line.call(["list"], [2]) == 2


async def test_what_is_dropped_fails(valkey: Valkey, line: ScriptLine) -> None:
    await line.call(["list"], [0])
    valkey.freeze()
    under_way = asyncio.create_task(line.call(["list"], [1]))
    await asyncio.sleep(0)
    line.drop()
    with pytest.raises(RedisError):
        await under_way
    valkey.thaw()
    assert await line.call(["list"], [2])

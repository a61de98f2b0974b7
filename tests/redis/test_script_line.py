"""Calls of one script on a real Valkey, several under way at a time."""

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
    line = connection.script_line(APPEND)
    yield line
    line.drop()
    await connection.aclose()


def calls(line: ScriptLine, first: int, count: int) -> list[asyncio.Task[int]]:
    """So many, numbered from `first`, sent in the loop's next turn."""
    return [asyncio.create_task(line.call(["list"], [number])) for number in range(first, first + count)]


async def test_calls_run_once_and_in_order_where_redis_forgets_the_script_over_and_over(
    valkey: Valkey, line: ScriptLine
) -> None:
    for first in range(0, 100, 10):
        assert await asyncio.gather(*calls(line, first, 10)) == list(range(first + 1, first + 11))
        valkey.admin.script_flush()
    assert valkey.admin.lrange("list", 0, -1) == [str(number) for number in range(100)]


async def test_calls_that_were_given_up_leave_the_others_their_replies(valkey: Valkey, line: ScriptLine) -> None:
    await asyncio.gather(*calls(line, 0, 1))
    under_way = calls(line, 1, 9)
    await asyncio.sleep(0)
    for task in under_way[::2]:
        task.cancel()
    await asyncio.wait(under_way)
    assert [task.result() for task in under_way[1::2]] == [3, 5, 7, 9]
    assert valkey.admin.llen("list") == 10


async def test_a_cut_connection_ends_all_calls_and_the_next_is_made_on_another(
    valkey: Valkey, line: ScriptLine
) -> None:
    await asyncio.gather(*calls(line, 0, 1))
    valkey.admin.client_pause(60_000, all=False)
    under_way = calls(line, 1, 5)
    await eventually(lambda: valkey.admin.info("clients")["blocked_clients"] > 0, what="under way")
    valkey.admin.client_kill_filter(_type="normal", skipme=True)
    for error in await asyncio.gather(*under_way, return_exceptions=True):
        assert type(error) is RedisConnectionError
    valkey.admin.client_unpause()
    assert await asyncio.gather(*calls(line, 6, 1)) == [2]


async def test_what_is_dropped_fails(valkey: Valkey, line: ScriptLine) -> None:
    await asyncio.gather(*calls(line, 0, 1))
    valkey.freeze()
    under_way = calls(line, 1, 2)
    await asyncio.sleep(0)
    line.drop()
    for error in await asyncio.gather(*under_way, return_exceptions=True):
        assert isinstance(error, RedisError)
    valkey.thaw()
    assert await asyncio.gather(*calls(line, 3, 1))

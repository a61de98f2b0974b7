"""What is written back never undoes what has changed since: of each entry the newer stays."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from slb.control import keys
from slb.control.changes import Change, WriteBack
from slb.control.connection import Connection
from slb.control.history import State
from slb.observe.metrics import Metrics
from tests.redis.old_data_rig import members
from tests.support.valkey import Valkey

PATH = "/a"
SETTINGS = keys.settings_key(PATH)
RETRIES = keys.field_entry(SETTINGS, "retries")
MEMBER = "10.1.1.1:1"
MEMBERSHIP = keys.membership(PATH, MEMBER)

AGES = pytest.mark.parametrize(("age", "is_written"), [(1, False), (0, True), (-1, True)])
"""How much lower the number of what is written back is than that of what stands in Redis; whether it is written."""


@pytest_asyncio.fixture
async def connection(valkey: Valkey) -> AsyncIterator[Connection]:
    made = Connection(valkey.url, Metrics())
    yield made
    await made.aclose()


async def change(connection: Connection, operation: str, key: str, *given: str) -> int:
    """Make a change as a registration does: its number."""
    numbers: list[int] = []
    await Change(connection, lambda rows, done, number: numbers.append(number))([(operation, key, given)])
    return numbers[0]


def of_settings(number: int, value: Mapping[str, str], field: str = "") -> State:
    return State(number, True, PATH, "", value, field)


def number_of(valkey: Valkey, entry: str) -> int:
    score: Any = valkey.admin.zscore(keys.CHANGES, entry)
    return int(score)


@AGES
async def test_a_setting_is_written_back_unless_a_newer_one_stands_there(
    valkey: Valkey, connection: Connection, age: int, is_written: bool
) -> None:
    number = await change(connection, "set", SETTINGS, "retries", "2")
    older = of_settings(number - age, {"retries": "1"}, "retries")
    assert await WriteBack(connection)([(RETRIES, older)]) == 0
    assert valkey.admin.hgetall(SETTINGS) == {"retries": "1" if is_written else "2"}
    assert number_of(valkey, RETRIES) == (number - age if is_written else number)


@AGES
async def test_a_setting_leaves_again_unless_it_was_set_since(
    valkey: Valkey, connection: Connection, age: int, is_written: bool
) -> None:
    number = await change(connection, "set", SETTINGS, "retries", "2")
    await WriteBack(connection)([(RETRIES, of_settings(number - age, {}, "retries"))])
    assert valkey.admin.hgetall(SETTINGS) == ({} if is_written else {"retries": "2"})


@AGES
async def test_all_settings_of_a_route_are_written_back_but_for_those_that_are_newer(
    valkey: Valkey, connection: Connection, age: int, is_written: bool
) -> None:
    await change(connection, "set", SETTINGS, "policy", "random")
    number = await change(connection, "set", SETTINGS, "retries", "2")
    whole = of_settings(number - age, {"policy": "p2c", "retries": "1"})
    await WriteBack(connection)([(SETTINGS, whole)])
    assert valkey.admin.hgetall(SETTINGS) == {"policy": "p2c", "retries": "1" if is_written else "2"}


@AGES
async def test_settings_that_were_replaced_since_are_newer_than_each_field_of_before(
    valkey: Valkey, connection: Connection, age: int, is_written: bool
) -> None:
    number = await change(connection, "replace", SETTINGS, "policy", "p2c")
    await WriteBack(connection)([(RETRIES, of_settings(number - age, {"retries": "1"}, "retries"))])
    assert valkey.admin.hgetall(SETTINGS) == {"policy": "p2c"} | ({"retries": "1"} if is_written else {})


@AGES
@pytest.mark.parametrize("operation", ["join", "leave"])
async def test_a_member_comes_or_goes_unless_it_has_since(
    valkey: Valkey, connection: Connection, operation: str, age: int, is_written: bool
) -> None:
    """What stands in Redis is the opposite of what is written back."""
    joins = operation == "join"
    number = await change(connection, "leave" if joins else "join", keys.route_key(PATH), MEMBER)
    await WriteBack(connection)([(MEMBERSHIP, State(number - age, True, PATH, MEMBER, joins))])
    assert members(valkey, keys.route_key(PATH)) == ({MEMBER} if joins is is_written else set())


@AGES
async def test_what_has_left_the_log_of_redis_is_as_old_as_its_floor(
    valkey: Valkey, connection: Connection, age: int, is_written: bool
) -> None:
    valkey.admin.zadd(keys.CHANGES, {"floor": 1000})
    await WriteBack(connection)([(RETRIES, of_settings(1000 - age, {"retries": "1"}, "retries"))])
    assert valkey.admin.hgetall(SETTINGS) == ({"retries": "1"} if is_written else {})

"""What another program does to the quota router's keys: they make way, and decisions go on."""

import math
from contextlib import suppress
from typing import Any

import pytest

from slb.control import keys
from slb.errors import ScriptFailed
from slb.quotas import Admitted, Wait
from tests.redis.quota_instances import AMPLE, Starter
from tests.support.valkey import Valkey
from tests.support.waiting import until_found


def key(name: str) -> str:
    return keys.quota_keys()[0].removesuffix("models") + name


@pytest.mark.parametrize("value", ["", "x", "nan", "inf", "-inf", "1e40", "-1"])
async def test_numbers_that_another_program_has_damaged_are_none(
    start: Starter, valkey: Valkey, value: str
) -> None:
    one = await start()
    await one.quota.put("a", AMPLE)
    count = len(str(valkey.admin.hget(key("state"), "a")).split())
    for damaged in range(count):
        await one.quota.put("a", AMPLE)
        row = ["5"] * count
        row[damaged] = value
        valkey.admin.hset(key("state"), "a", " ".join(row))
        assert all(abs(each.tokens) < 2**53 for each in await one.quota.models())
    for field in ("now", "spare", "number", "shift"):
        valkey.admin.hset(key("clock"), field, value)
        assert await one.quota.put("a", AMPLE) is not None
    valkey.admin.hdel(key("state"), "a")
    await one.quota.models()


@pytest.mark.parametrize(
    ("place", "due"), [("no place", 1e15), ("7 5 0  k", math.inf), ("7 5 0  k", 1e40), (f"7 {'9' * 40} 0  k", 1e15)]
)
async def test_a_place_that_another_program_has_written_is_not_told(
    start: Starter, valkey: Valkey, place: str, due: float
) -> None:
    one = await start()
    await one.quota.put("a", {**AMPLE, "max_concurrent_requests": 1})
    assert isinstance(await one.ask(10), Admitted)
    assert isinstance(await one.ask(10, "order-17"), Wait)
    valkey.admin.zadd(key("promises:a"), {place: due})
    assert [(each.estimate, each.key) for each in await one.quota.callers("a", 5)] == [(10, "order-17")]


@pytest.mark.parametrize("name", ["models", "limits", "state", "clock", "leases", "abandoned"])
@pytest.mark.parametrize("value", ["a text", ["a list"]])
async def test_a_key_of_another_type_makes_way(start: Starter, valkey: Valkey, name: str, value: Any) -> None:
    await _is_decided_again(start, valkey, name, value)


@pytest.mark.parametrize("name", ["running:a", "promises:a", "minute:a", "far:a"])
async def test_a_key_of_a_model_of_another_type_makes_way(start: Starter, valkey: Valkey, name: str) -> None:
    await _is_decided_again(start, valkey, name, "a text")


async def _is_decided_again(start: Starter, valkey: Valkey, name: str, value: Any) -> None:
    one = await start()
    await one.quota.put("a", AMPLE)
    assert isinstance(await one.ask(10), Admitted)
    valkey.admin.delete(key(name))
    valkey.admin.set(key(name), value) if isinstance(value, str) else valkey.admin.rpush(key(name), *value)

    async def decides() -> bool:
        with suppress(ScriptFailed):
            await one.quota.put("a", AMPLE)
            return isinstance(await one.ask(10), Admitted)
        return False

    await until_found(decides, what=f"decided with {name}")


async def test_a_model_without_limits_is_not_set_and_keeps_no_other_from_being_decided(
    start: Starter, valkey: Valkey
) -> None:
    one = await start()
    await one.quota.put("a", AMPLE)
    await one.quota.put("b", AMPLE)
    valkey.admin.hdel(key("limits"), "a")
    with pytest.raises(ScriptFailed):
        await one.ask(10)
    assert [each.model for each in await one.quota.models()] == ["b"]
    assert isinstance(await one.ask(10), Admitted)

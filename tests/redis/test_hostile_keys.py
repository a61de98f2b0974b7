"""Who may write to Redis can make a key as large as it likes: no instance is held up or filled by it, what is not
read is logged, and the rest of the table goes on."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from slb.control import keys
from slb.control.health_news import _pass_on
from slb.control.health_store import Ask, HealthStore
from slb.control.instances import InstanceInfo, Instances
from slb.control.scripts import MOST_MEMBERS
from slb.model import HealthCheck
from tests.support.acl import acl_rules
from tests.support.following import Follower, timing
from tests.support.held import held
from tests.support.memory import kept_of
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

_MIB = 1 << 20
_MANY = 100_000
_MOST_CALLS = 60_000
"""Between two turns of the loop: a slice has a millisecond, in which one call is not made that often."""
_MOST_READ = 8 * _MIB
"""Bytes that a few syncs of a small table may read."""


def members(count: int) -> list[str]:
    return [f"10.{each >> 16}.{each >> 8 & 255}.{each & 255}:80" for each in range(count)]


def unknown_fields(count: int) -> dict[Any, Any]:
    return {f"unknown{each}": "1" for each in range(count)}


def add_many(valkey: Valkey, key: str, found: list[str]) -> None:
    for start in range(0, len(found), 20_000):
        valkey.admin.sadd(key, *found[start : start + 20_000])


def read_by(valkey: Valkey) -> int:
    """Bytes that Redis has sent to all its clients."""
    return int(valkey.admin.info("stats")["total_net_output_bytes"])


async def goes_on(follower: Follower, valkey: Valkey) -> None:
    """Several full syncs come to their end, and what changes elsewhere is followed."""
    syncs = follower.metrics.redis.full_syncs
    await eventually(lambda: follower.metrics.redis.full_syncs > syncs + 2, 30)
    valkey.admin.sadd("slb_other", "1.1.1.1:1")
    await follower.shows("/other", ["1.1.1.1:1"])


def logged(logs: Any) -> list[tuple[str, str]]:
    return [(line["kind"], line["key"][1:40]) for line in logs if line["event"] == "redis_entry_skipped"]


async def test_of_a_hash_of_settings_that_is_too_large_the_settings_are_read(valkey: Valkey) -> None:
    valkey.admin.sadd("slb_p1", "1.1.1.1:1")
    with capture_logs() as logs:
        async with Follower(valkey.url, watch=timing(resync=0.1)) as follower:
            await follower.shows("/p1", ["1.1.1.1:1"])
            valkey.admin.hset("slb:route:/p1", mapping={**unknown_fields(_MANY), "retries": "3"})
            before = read_by(valkey)
            async with held() as most:
                await eventually(lambda: follower.mirror.table.routes["/p1"].settings.retries == 3)
                await goes_on(follower, valkey)
            assert most() < _MOST_CALLS
            assert read_by(valkey) - before < _MOST_READ
            assert follower.metrics.redis.skipped == {"large": 1}
            valkey.admin.delete("slb:route:/p1")
            await eventually(lambda: not any(follower.metrics.redis.skipped.values()))
    assert logged(logs) == [("large", "slb:route:/p1'")]


@pytest.mark.parametrize("field", ["max_inflight", "foo"])
async def test_a_setting_of_many_megabytes_is_not_read_and_the_others_hold(valkey: Valkey, field: str) -> None:
    valkey.admin.hset("slb:route:/p1", mapping={"max_inflight": "7", "retries": "2"})
    async with Follower(valkey.url, watch=timing(resync=0.1)) as follower:
        await follower.shows("/p1", [])
        before = read_by(valkey)
        valkey.admin.hset("slb:route:/p1", mapping={field: "9" * 20 * _MIB, "retries": "3"})
        await eventually(lambda: follower.mirror.table.routes["/p1"].settings.retries == 3)
        await goes_on(follower, valkey)
        assert follower.mirror.table.routes["/p1"].settings.max_inflight == 7
        assert read_by(valkey) - before < _MOST_READ
        assert follower.metrics.redis.skipped == {"large": 1}
        assert bool(follower.mirror.faults) is (field == "max_inflight")


async def test_a_route_whose_set_is_too_large_keeps_the_members_it_had(valkey: Valkey) -> None:
    valkey.admin.sadd("slb_p1", "1.1.1.1:1")
    with capture_logs() as logs:
        async with Follower(valkey.url, watch=timing(resync=0.1)) as follower:
            await follower.shows("/p1", ["1.1.1.1:1"])
            before = read_by(valkey)
            async with held() as most:
                await asyncio.to_thread(add_many, valkey, "slb_p1", members(_MANY))
                await eventually(lambda: follower.metrics.redis.skipped == {"large": 1})
                await goes_on(follower, valkey)
            assert most() < _MOST_CALLS
            assert read_by(valkey) - before < _MOST_READ
            assert follower.members("/p1") == ["1.1.1.1:1"]
            valkey.admin.delete("slb_p1")
            valkey.admin.sadd("slb_p1", "2.2.2.2:2")
            await follower.shows("/p1", ["2.2.2.2:2"])
    assert logged(logs) == [("large", "slb_p1'")]


async def test_a_route_that_was_never_seen_with_fewer_members_has_none_and_is_a_route(valkey: Valkey) -> None:
    add_many(valkey, "slb_p1", members(MOST_MEMBERS + 1))
    async with Follower(valkey.url) as follower:
        await follower.synced()
        assert follower.members("/p1") == []
        assert follower.metrics.redis.skipped == {"large": 1}


@pytest.mark.parametrize("notified", [True, False])
async def test_a_route_of_ten_thousand_members_comes_and_goes_in_slices(valkey: Valkey, notified: bool) -> None:
    async with Follower(valkey.url, watch=timing(resync=60.0 if notified else 0.3)) as follower:
        await follower.synced()
        if not notified:
            valkey.admin.config_set("notify-keyspace-events", "")
        async with held() as most:
            for path in ("a", "b", "c"):
                await asyncio.to_thread(valkey.admin.sadd, f"slb_{path}", *members(10_000))
            for path in ("/a", "/b", "/c"):
                await eventually(lambda path=path: len(follower.members(path) or ()) == 10_000, 30)  # type: ignore[misc]
            assert follower.members("/a") == sorted(members(10_000))
            valkey.admin.delete("slb_a", "slb_b", "slb_c")
            await eventually(lambda: not follower.mirror.upstreams, 30)
        assert most() < _MOST_CALLS


async def test_members_of_a_megabyte_each_are_skipped_and_the_others_served(valkey: Valkey) -> None:
    with capture_logs() as logs:
        async with Follower(valkey.url, watch=timing(resync=0.1)) as follower:
            await follower.synced()
            before = read_by(valkey)
            valkey.admin.sadd("slb_p1", "1.1.1.1:1", "x" * _MIB, "y" * _MIB)
            await follower.shows("/p1", ["1.1.1.1:1"])
            await goes_on(follower, valkey)
            assert read_by(valkey) - before < _MOST_READ // 4
            assert follower.metrics.redis.skipped == {"member": 2}
    assert max(len(str(line)) for line in logs) < 1000


async def test_keys_with_names_of_a_megabyte_are_skipped(valkey: Valkey) -> None:
    async with Follower(valkey.url, watch=timing(resync=0.1)) as follower:
        await follower.synced()
        valkey.admin.sadd("slb_p1", "1.1.1.1:1")
        await follower.shows("/p1", ["1.1.1.1:1"])
        for start in ("slb_a", "slb:route:/b", "slb:upstream:c"):
            valkey.admin.hset(start + "x" * _MIB, "weight", "1")
        await eventually(lambda: follower.metrics.redis.skipped == {"key": 3}, 30)
        before = read_by(valkey)
        await goes_on(follower, valkey)
        assert read_by(valkey) - before < _MOST_READ // 4
        assert set(follower.mirror.table.routes) == {"/p1", "/other"}


@pytest.mark.parametrize("spoil", ["large", "type"])
async def test_a_generation_that_another_program_spoilt_still_shows_that_nothing_is_lost(
    valkey: Valkey, spoil: str
) -> None:
    admin = valkey.admin
    admin.sadd("slb_p1", "1.1.1.1:1")
    async with Follower(valkey.url, watch=timing(resync=0.1)) as follower:
        await eventually(lambda: bool(admin.exists(keys.GENERATION)))
        admin.delete(keys.GENERATION)
        if spoil == "large":
            admin.set(keys.GENERATION, "x" * 20 * _MIB)
        else:
            admin.sadd(keys.GENERATION, "x")
        await eventually(lambda: follower.metrics.redis.skipped.get(spoil, 0) > 0)
        before = read_by(valkey)
        admin.delete("slb_p1")
        await follower.shows("/p1", None)
        await goes_on(follower, valkey)
        assert follower.connection.up
        assert read_by(valkey) - before < _MOST_READ


async def test_of_attributes_that_are_too_large_those_are_read_that_mean_something(valkey: Valkey) -> None:
    valkey.admin.sadd("slb_p1", "1.1.1.1:1")
    attributes = {**unknown_fields(_MANY), "weight": "7", "zone": "z" * _MIB}
    valkey.admin.hset("slb:upstream:1.1.1.1:1", mapping=attributes)
    async with Follower(valkey.url, watch=timing(resync=0.1)) as follower:
        await follower.synced()
        spec = follower.mirror.upstreams["1.1.1.1:1"].spec
        assert (spec.weight, spec.zone) == (7, "")
        assert follower.metrics.redis.skipped == {"large": 1}
        assert len(follower.mirror.attributes["1.1.1.1:1"]) == 2


async def test_more_instances_than_there_can_be_are_not_looked_at(valkey: Valkey) -> None:
    with valkey.admin.pipeline(transaction=False) as pipe:
        for each in range(keys.MOST_INSTANCES + 50):
            pipe.hset(keys.instance_key(f"i{each}"), "name", "x")
            pipe.zadd(keys.INSTANCES, {f"i{each}": 1e15})
        pipe.execute()
    valkey.admin.hset(keys.instance_key("i0"), mapping=unknown_fields(_MANY))
    async with Follower(valkey.url, watch=timing(resync=0.1)) as follower:
        await goes_on(follower, valkey)
        instances = Instances(follower.connection, InstanceInfo("me"))
        assert len(await instances.list()) == keys.MOST_INSTANCES


async def test_a_list_of_instances_that_is_too_long_does_not_keep_one_from_beating(valkey: Valkey) -> None:
    valkey.admin.zadd(keys.INSTANCES, {f"i{each}": 1e15 for each in range(_MANY)})
    async with Follower(valkey.url) as follower:
        await follower.synced()
        instances = Instances(follower.connection, InstanceInfo("me"))
        before = read_by(valkey)
        await instances.beat()
        assert read_by(valkey) - before < _MIB
        assert [each.id for each in instances.known] == ["me"]
        assert valkey.admin.exists(keys.instance_key("me"))


async def test_many_large_sets_are_read_in_replies_of_bounded_size(valkey: Valkey) -> None:
    for each in range(30):
        valkey.admin.sadd(f"slb_p{each}", *members(2000))
    async with Follower(valkey.url) as follower:
        await follower.synced()
        assert len(follower.mirror.table.routes) == 30
        assert {len(route.members) for route in follower.mirror.table.routes.values()} == {2000}
        calls = valkey.admin.info("commandstats")["cmdstat_evalsha"]["calls"]
        assert calls > 5


@pytest.mark.parametrize("refused", ["memory|usage", "hstrlen"])
async def test_an_older_acl_is_enough_to_follow(valkey: Valkey, refused: str) -> None:
    rules = [*acl_rules(), f"-{refused}"]
    valkey.admin.execute_command("ACL", "SETUSER", "slb", "reset", "on", ">secret", *rules)  # type: ignore[no-untyped-call]
    valkey.admin.sadd("slb_p1", "1.1.1.1:1")
    add_many(valkey, "slb_p2", members(MOST_MEMBERS + 1))
    valkey.admin.hset("slb:route:/p1", mapping={"retries": "3", "foo": "x" * _MIB})
    async with Follower(f"{valkey.url}?username=slb&password=secret") as follower:
        await follower.synced()
        assert follower.members("/p1") == ["1.1.1.1:1"]
        assert follower.mirror.table.routes["/p1"].settings.retries == 3
        assert follower.members("/p2") == []


async def test_a_flood_of_events_is_answered_by_one_reading_of_everything(valkey: Valkey) -> None:
    valkey.admin.set(keys.GENERATION, "so that no other sync comes")
    async with Follower(valkey.url) as follower:
        await follower.synced()
        valkey.admin.sadd("slb_p1", "1.1.1.1:1")
        await follower.shows("/p1", ["1.1.1.1:1"])
        syncs, dirty = follower.metrics.redis.full_syncs, follower.sync.dirty
        valkey.admin.config_set("notify-keyspace-events", "")
        valkey.admin.sadd("slb_p2", "2.2.2.2:2")
        for each in range(_MANY):
            dirty.mark(f"slb_flood{each}")
        assert len(kept_of(dirty, str)) < _MANY // 10
        await follower.shows("/p2", ["2.2.2.2:2"])
        assert follower.metrics.redis.full_syncs == syncs + 1
        dirty.mark("slb_" + "x" * _MIB)
        assert not dirty


async def test_a_text_of_megabytes_in_a_health_key_reaches_no_instance(valkey: Valkey) -> None:
    check = HealthCheck("/healthz", 1.0, 2, 2, 1.0)
    key = keys.health_key("1.1.1.1:1", check)
    async with Follower(valkey.url) as follower:
        await follower.synced()
        valkey.admin.set(key, f"9999999999999 {'u' * 20 * _MIB} 1")
        before = read_by(valkey)
        (answer,) = await HealthStore(follower.connection).claim([Ask("1.1.1.1:1", check, "up", 0, 1.0)], 5)
        assert answer.state == "up"
        assert read_by(valkey) - before < _MIB


def test_a_message_about_a_health_check_that_is_too_long_is_passed_over() -> None:
    received: list[str] = []
    _pass_on(lambda key, state, run: received.append(key), "", f"{'x' * _MIB} up 1")
    _pass_on(lambda key, state, run: received.append(key), "", "slb:{health}:x up 1")
    assert received == ["slb:{health}:x"]

"""What is written to Redis, and what is refused."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from slb.control import keys
from slb.control.connection import Connection
from slb.control.leases import Leases
from slb.control.orphans import Orphans
from slb.control.registry import Registry
from slb.errors import RedisUnavailable, Refused
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror
from tests.support.following import Follower
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, patience


async def test_a_registration_is_a_member_and_its_attributes(valkey: Valkey) -> None:
    admin = valkey.admin
    async with Follower(valkey.url) as follower:
        registry = follower.registry
        assert await registry.register("/a", "10.1.1.1:1", {"weight": "2", "zone": "z"})
        assert not await registry.register("/a", "10.1.1.1:1", {"weight": "3"})
        assert admin.smembers("slb_a") == {"10.1.1.1:1"}
        stored = admin.hgetall("slb:upstream:10.1.1.1:1")
        assert (stored["weight"], stored["zone"]) == ("3", "z")
        assert float(stored["joined"]) > 0


async def test_when_a_member_joined_stays_when_it_registers_again(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        await follower.registry.register("/a", "10.1.1.1:1", {"weight": "2"})
        joined = valkey.admin.hget("slb:upstream:10.1.1.1:1", "joined")
        await follower.registry.register("/a", "10.1.1.1:1", {"weight": "3"})
        await follower.registry.register("/b", "10.1.1.1:1", {"weight": "2"})
        assert joined
        assert valkey.admin.hget("slb:upstream:10.1.1.1:1", "joined") == joined


async def test_no_read_finds_a_member_without_its_attributes(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        await follower.synced()
        weights: list[int] = []

        def look(_: object) -> None:
            weights.extend(live.spec.weight for live in follower.mirror.upstreams.values())

        follower.mirror.on_swap(look)
        await follower.registry.register("/a", "10.1.1.1:1", {"weight": "7"})
        await follower.shows("/a", ["10.1.1.1:1"])
        assert set(weights) == {7}


async def test_attributes_go_with_the_last_route_that_names_the_member(valkey: Valkey) -> None:
    admin = valkey.admin
    async with Follower(valkey.url) as follower:
        await follower.synced()
        await follower.registry.register_all([("/a", "10.1.1.1:1", {"weight": "2"}), ("/b", "10.1.1.1:1", {})])
        await follower.shows("/b", ["10.1.1.1:1"])
        await follower.shows("/a", ["10.1.1.1:1"])
        assert await follower.registry.deregister("/a", "10.1.1.1:1")
        await follower.shows("/a", None)
        assert admin.exists("slb:upstream:10.1.1.1:1")
        assert await follower.registry.deregister("/b", "10.1.1.1:1")
        assert not admin.exists("slb:upstream:10.1.1.1:1")
        assert not await follower.registry.deregister("/b", "10.1.1.1:1")


async def test_a_list_is_registered_whole_or_not_at_all(valkey: Valkey) -> None:
    admin = valkey.admin
    admin.set("slb_bad", "a string")
    async with Follower(valkey.url) as follower:
        items = [("/a", "10.1.1.1:1", {"weight": "2"}), ("/bad", "10.2.2.2:2", {})]
        with pytest.raises(Refused, match="slb_bad"):
            await follower.registry.register_all(items)
        with pytest.raises(Refused, match="slb_bad"):
            await follower.registry.deregister_all([(path, member) for path, member, _ in items])
        assert not admin.exists("slb_a", "slb:upstream:10.1.1.1:1")
        assert await follower.registry.register_all([*items[:1], ("/b", "10.2.2.2:2", {})]) == [True, True]
        assert await follower.registry.deregister_all([("/a", "10.1.1.1:1"), ("/c", "10.1.1.1:1")]) == [True, False]
        assert await follower.registry.register_all([]) == []


async def test_settings_are_replaced_merged_and_reset(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        registry = follower.registry
        await registry.put_settings("/a", {"policy": "p2c", "retries": "2"})
        await registry.patch_settings("/a", {"retries": None, "idle_timeout": "5s"})
        assert await registry.settings("/a") == {"policy": "p2c", "idle_timeout": "5s"}
        await registry.put_settings("/a", {"policy": "random"})
        assert await registry.settings("/a") == {"policy": "random"}
        await registry.put_settings("/a", {})
        assert await registry.settings("/a") == {}
        await follower.shows("/a", None)
        assert not await registry.delete_route("/a")
        await registry.register("/a", "10.1.1.1:1", {})
        assert await registry.delete_route("/a")


async def test_a_reset_counts_the_routes_it_removed(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        with valkey.admin.pipeline() as pipe:
            for number in range(2500):
                pipe.sadd(f"slb_p{number}", "10.1.1.1:1")
                pipe.hset(f"slb:route:/p{number // 2}", "retries", "2")
            pipe.hset("slb:route:/only/settings", "retries", "2")
            pipe.execute()
        assert await follower.registry.reset() == 2501
        assert await follower.registry.reset() == 0


async def test_a_redis_that_is_away_or_frozen_is_unavailable_within_the_deadline(valkey: Valkey) -> None:
    async with Follower(valkey.url, command_deadline=patience(0.3)) as follower:
        await follower.synced()
        valkey.freeze()
        with pytest.raises(RedisUnavailable):
            await follower.registry.register("/a", "10.1.1.1:1", {})
        valkey.thaw()
        valkey.kill()
        with pytest.raises(RedisUnavailable):
            await follower.registry.register("/a", "10.1.1.1:1", {})
        with pytest.raises(RedisUnavailable):
            await follower.registry.reset()


async def test_a_redis_that_takes_no_writes_is_unavailable_and_the_error_states_why(valkey: Valkey) -> None:
    valkey.admin.config_set("maxmemory", "1")
    async with Follower(valkey.url) as follower:
        with pytest.raises(RedisUnavailable, match="'maxmemory'"):
            await follower.registry.register("/a", "10.1.1.1:1", {})


async def test_many_registrations_at_once_all_succeed(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        await follower.synced()
        registry: Registry = follower.registry
        added = await asyncio.gather(*(registry.register("/a", f"10.1.1.1:{port}", {}) for port in range(1, 301)))
        assert all(added)
        await eventually(lambda: len(follower.members("/a") or ()) == 300)


M = "10.1.1.1:1"


async def deregisters(connection: Connection, mirror: Mirror) -> None:
    await Registry(connection, mirror).deregister("/a", M)


async def deletes_the_route(connection: Connection, mirror: Mirror) -> None:
    await Registry(connection, mirror).delete_route("/a")


async def ends_the_lease(connection: Connection, mirror: Mirror) -> None:
    await connection.client.zadd(keys.LEASES, {keys.membership("/a", M): 1})
    leases = Leases(connection, mirror, Metrics())
    while not await leases.expire():
        await asyncio.sleep(0)


Leave = Callable[[Connection, Mirror], Awaitable[None]]


@pytest.mark.parametrize("leave", [deregisters, deletes_the_route, ends_the_lease])
async def test_attributes_of_a_member_stay_where_it_has_come_to_a_route_that_is_not_shown_yet(
    valkey: Valkey, leave: Leave
) -> None:
    """It was registered through one instance, and is taken from its other route through one that is behind."""
    async with Follower(valkey.url) as behind:
        await behind.synced()
        await behind.registry.register("/a", M, {"slots": "2"})
        await behind.shows("/a", [M])
        await eventually(lambda: behind.mirror.shown_to > 0)
    connection = Connection(valkey.url, Metrics())
    await Registry(connection).register("/b", M, {"slots": "8", "drain": "true"})
    assert behind.members("/b") is None
    await leave(connection, behind.mirror)
    assert valkey.admin.smembers("slb_a") == set()
    stored = valkey.admin.hgetall(keys.upstream_key(M))
    assert (stored["slots"], stored["drain"]) == ("8", "true")
    await Registry(connection, behind.mirror).deregister_all([("/a", M), ("/b", M)])
    assert not valkey.admin.exists(keys.upstream_key(M)), "the last route has let it go"
    await connection.aclose()


async def test_the_sweep_leaves_attributes_of_a_member_that_has_come_to_a_route_since(valkey: Valkey) -> None:
    async with Follower(valkey.url) as behind:
        await behind.synced()
        valkey.admin.hset(keys.upstream_key(M), "slots", "2")
        await eventually(lambda: M in behind.mirror.attributes)
        await eventually(lambda: behind.mirror.shown_to > 0)
    connection = Connection(valkey.url, Metrics())
    await Registry(connection).register("/b", M, {"slots": "8"})
    await Orphans(connection, behind.mirror, 0.0, time.monotonic).sweep()
    assert valkey.admin.hget(keys.upstream_key(M), "slots") == "8"
    await Registry(connection, behind.mirror).deregister("/b", M)
    assert not valkey.admin.exists(keys.upstream_key(M))
    await connection.aclose()


async def test_what_leaves_a_route_it_is_not_in_keeps_its_attributes(valkey: Valkey) -> None:
    admin = valkey.admin
    async with Follower(valkey.url) as follower:
        await follower.synced()
        await follower.registry.register("/a", "10.1.1.1:1", {"weight": "2"})
        await follower.shows("/a", ["10.1.1.1:1"])
        assert not await follower.registry.deregister("/b", "10.1.1.1:1")
        assert await follower.registry.deregister_all([("/b", "10.1.1.1:1"), ("/c", "10.1.1.1:1")]) == [False] * 2
        assert admin.hget("slb:upstream:10.1.1.1:1", "weight") == "2"
        assert await follower.registry.deregister_all([("/b", "10.1.1.1:1"), ("/a", "10.1.1.1:1")]) == [False, True]
        assert not admin.exists("slb:upstream:10.1.1.1:1")


async def test_what_the_mirror_does_not_show_yet_is_not_counted_twice(valkey: Valkey) -> None:
    """Two routes name it; the mirror stands still, so both are what it shows until the end."""
    admin = valkey.admin
    async with Follower(valkey.url) as follower:
        await follower.synced()
        await follower.registry.register_all([(path, "10.1.1.1:1", {"weight": "2"}) for path in ("/a", "/b")])
        await follower.shows("/a", ["10.1.1.1:1"])
        await follower.shows("/b", ["10.1.1.1:1"])
        assert await follower.registry.deregister("/a", "10.1.1.1:1")
        assert not await follower.registry.deregister("/a", "10.1.1.1:1")
        assert admin.hget("slb:upstream:10.1.1.1:1", "weight") == "2"


async def test_a_route_goes_with_the_attributes_that_only_it_needs(valkey: Valkey) -> None:
    admin = valkey.admin
    async with Follower(valkey.url) as follower:
        await follower.synced()
        both = [("/a", "10.1.1.1:1", {"weight": "2"}), ("/a", "10.2.2.2:2", {"weight": "2"})]
        await follower.registry.register_all([*both, ("/b", "10.2.2.2:2", {})])
        await follower.shows("/a", ["10.1.1.1:1", "10.2.2.2:2"])
        await follower.shows("/b", ["10.2.2.2:2"])
        assert await follower.registry.delete_route("/a")
        assert not admin.exists("slb:upstream:10.1.1.1:1")
        assert admin.exists("slb:upstream:10.2.2.2:2")
        admin.set("slb_bad", "a string")
        assert await follower.registry.delete_route("/bad")
        assert not admin.exists("slb_bad")


async def test_keys_of_another_type_are_refused_by_name_before_anything_is_written(valkey: Valkey) -> None:
    admin = valkey.admin
    admin.set("slb:upstream:10.1.1.1:1", "x")
    admin.set("slb:route:/a", "x")
    async with Follower(valkey.url) as follower:
        registry = follower.registry
        with pytest.raises(Refused, match=r"target: slb:upstream:10\.1\.1\.1:1 .* string, not a hash"):
            await registry.register_all([("/b", "10.2.2.2:2", {}), ("/a", "10.1.1.1:1", {"weight": "2"})])
        assert not admin.exists("slb_a", "slb_b")
        for asked in (registry.patch_settings("/a", {"retries": "2"}), registry.settings("/a")):
            with pytest.raises(Refused, match=r"path: slb:route:/a .* string, not a hash of settings"):
                await asked
        await registry.put_settings("/a", {"retries": "2"})
        assert await registry.settings("/a") == {"retries": "2"}
        assert await registry.register("/a", "10.1.1.1:1", {})


async def test_a_type_that_changes_after_the_check_is_no_outage(valkey: Valkey) -> None:
    valkey.admin.set("slb_a", "x")
    async with Follower(valkey.url) as follower:
        registry = follower.registry
        registry._check = lambda _: asyncio.sleep(0)  # type: ignore[assignment,method-assign]
        with pytest.raises(Refused, match="another type"):
            await registry.register("/a", "10.1.1.1:1", {})
        with pytest.raises(Refused, match="another type"):
            await registry.deregister("/a", "10.1.1.1:1")

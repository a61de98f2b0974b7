"""What is served while Redis is away, and which data holds when it comes back."""

import asyncio
from pathlib import Path
from random import Random

import pytest
from structlog.testing import capture_logs

from slb.config import Settings
from slb.control import keys
from slb.control.changes import Changes
from slb.control.connection import Connection
from slb.control.generation import RestoreTiming
from slb.control.history import State
from slb.control.restore import Restorer
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror
from tests.redis.old_data_rig import numbered
from tests.support.following import Follower, timing
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, patience


async def lose_redis(follower: Follower, valkey: Valkey) -> None:
    """Once all has been read and Redis shows that it has its data, kill it; return when that has been noticed."""
    await follower.synced()
    await eventually(lambda: bool(valkey.admin.exists(keys.GENERATION)), what="a generation")
    valkey.kill()
    await follower.up(False)


async def test_the_last_table_is_served_while_redis_is_away(valkey: Valkey) -> None:
    valkey.admin.sadd("slb_a", "10.1.1.1:1")
    async with Follower(valkey.url) as follower:
        await follower.synced()
        valkey.kill()
        await follower.up(False)
        assert follower.members("/a") == ["10.1.1.1:1"]
        assert not follower.metrics.redis.up


async def test_redis_back_with_its_data_is_followed(valkey: Valkey) -> None:
    valkey.admin.config_set("appendfsync", "always")
    valkey.admin.sadd("slb_a", "10.1.1.1:1")
    async with Follower(valkey.url) as follower:
        await lose_redis(follower, valkey)
        valkey.start()
        valkey.admin.delete("slb_a")
        valkey.admin.sadd("slb_b", "10.2.2.2:2")
        await follower.shows("/b", ["10.2.2.2:2"])
        await follower.shows("/a", None)
        assert follower.metrics.redis.reconnects == 1


async def test_the_generation_is_made_by_the_first_sync_that_finds_routes(valkey: Valkey) -> None:
    admin = valkey.admin
    async with Follower(valkey.url) as follower:
        await follower.synced()
        assert not admin.exists(keys.GENERATION)
        admin.sadd("slb_a", "10.1.1.1:1")
        await eventually(lambda: bool(admin.exists(keys.GENERATION)))
        assert admin.ttl(keys.GENERATION) == -1


async def test_a_starting_instance_waits_for_others_before_it_makes_a_generation(valkey: Valkey) -> None:
    admin = valkey.admin
    admin.sadd("slb_a", "10.1.1.1:1")
    settling = timing(restore=RestoreTiming(settle=patience(0.5)), resync=0.05)
    async with Follower(valkey.url, watch=settling) as follower:
        await follower.synced()
        assert not admin.exists(keys.GENERATION)
        await eventually(lambda: bool(admin.exists(keys.GENERATION)))


async def test_redis_back_without_its_data_gets_the_routes_again(valkey: Valkey) -> None:
    admin = valkey.admin
    admin.sadd("slb_a", "10.1.1.1:1", "10.2.2.2:2")
    admin.hset("slb:upstream:10.1.1.1:1", mapping={"weight": "3", "zone": "z"})
    admin.hset("slb:route:/a", "policy", "random")
    admin.hset("slb:route:/empty", "policy", "p2c")
    async with Follower(valkey.url) as follower:
        await lose_redis(follower, valkey)
        valkey.lose_data()
        valkey.start()
        admin = valkey.admin
        await eventually(lambda: bool(admin.exists(keys.GENERATION)))
        await follower.up(True)
        assert admin.smembers("slb_a") == {"10.1.1.1:1", "10.2.2.2:2"}
        assert admin.hgetall("slb:upstream:10.1.1.1:1") == {"weight": "3", "zone": "z"}
        assert admin.hgetall("slb:route:/a") == {"policy": "random"}
        assert admin.hgetall("slb:route:/empty") == {"policy": "p2c"}
        assert follower.members("/a") == ["10.1.1.1:1", "10.2.2.2:2"]
        await eventually(lambda: not admin.exists(keys.RESTORING))  # given up only after the generation is made


async def test_what_registers_while_routes_are_being_restored_is_kept_and_served(valkey: Valkey) -> None:
    valkey.admin.sadd("slb_a", "10.1.1.1:1")
    slow = timing(restore=RestoreTiming(settle=0.0, share_of_age=1000.0, longest_delay=1.0))
    async with Follower(valkey.url, watch=slow) as follower:
        await lose_redis(follower, valkey)
        valkey.lose_data()
        valkey.start()
        admin = valkey.admin
        await follower.up(True)
        assert not admin.exists(keys.GENERATION)
        admin.sadd("slb_a", "10.2.2.2:2")
        admin.sadd("slb_new", "10.3.3.3:3")
        admin.hset("slb:route:/a", "policy", "p2c")
        await follower.shows("/a", ["10.1.1.1:1", "10.2.2.2:2"])
        await follower.shows("/new", ["10.3.3.3:3"])
        await eventually(lambda: bool(admin.exists(keys.GENERATION)))
        assert admin.smembers("slb_a") == {"10.1.1.1:1", "10.2.2.2:2"}
        assert admin.hgetall("slb:route:/a") == {"policy": "p2c"}


async def test_an_emptied_redis_on_an_open_connection_is_refilled_at_the_next_sync(valkey: Valkey) -> None:
    valkey.admin.sadd("slb_a", "10.1.1.1:1")
    async with Follower(valkey.url, watch=timing(resync=0.1)) as follower:
        await follower.synced()
        await eventually(lambda: bool(valkey.admin.exists(keys.GENERATION)))
        valkey.admin.flushall()
        await eventually(lambda: bool(valkey.admin.exists(keys.GENERATION)))
        assert valkey.admin.smembers("slb_a") == {"10.1.1.1:1"}


async def test_an_event_after_redis_lost_its_data_takes_no_route_away(valkey: Valkey) -> None:
    valkey.admin.sadd("slb_a", "10.1.1.1:1")
    valkey.admin.sadd("slb_b", "10.2.2.2:2")
    async with Follower(valkey.url) as follower:
        await follower.synced()
        await eventually(lambda: bool(valkey.admin.exists(keys.GENERATION)))
        valkey.admin.flushall()
        valkey.admin.sadd("slb_a", "10.3.3.3:3")
        await follower.shows("/a", ["10.1.1.1:1", "10.3.3.3:3"])
        assert follower.members("/b") == ["10.2.2.2:2"]


async def test_a_reset_is_followed_to_emptiness(valkey: Valkey) -> None:
    admin = valkey.admin
    async with Follower(valkey.url) as one, Follower(valkey.url) as other:
        await one.synced()
        await one.registry.register("/a", "10.1.1.1:1", {"weight": "2"})
        await one.registry.put_settings("/b", {"policy": "p2c"})
        await other.shows("/a", ["10.1.1.1:1"])
        await other.shows("/b", [])
        admin.set("slb_foreign//key", "stays")
        await one.registry.reset()
        await other.shows("/a", None)
        await other.shows("/b", None)
        assert set(admin.keys("slb*")) == {"slb_foreign//key", keys.GENERATION, keys.CHANGES}


async def test_a_redis_that_was_reset_while_an_instance_was_away_is_followed(valkey: Valkey) -> None:
    valkey.admin.config_set("appendfsync", "always")
    valkey.admin.sadd("slb_a", "10.1.1.1:1")
    async with Follower(valkey.url) as follower:
        await lose_redis(follower, valkey)
        valkey.start()
        valkey.admin.delete("slb_a")
        await follower.shows("/a", None)


async def test_of_two_instances_the_one_with_the_older_table_waits_and_then_follows(valkey: Valkey) -> None:
    """The older one still has a member that has left; it must not come back."""
    admin = valkey.admin
    admin.sadd("slb_a", "10.1.1.1:1", "10.9.9.9:9")
    restore = RestoreTiming(settle=0.0, share_of_age=0.5, longest_delay=30.0)
    async with Follower(valkey.url) as fresh:
        await fresh.synced()
        await eventually(lambda: bool(admin.exists(keys.GENERATION)))
        async with Follower(valkey.url, watch=timing(restore=restore)) as old:
            await old.synced()
            old.sync._true_at -= 40.0
            old.sync.known_true = lambda: None  # type: ignore[method-assign]
            good, history = dict(old.mirror.records), old.changes.history.copy()
            admin.srem("slb_a", "10.9.9.9:9")
            for each in (fresh, old):
                await each.shows("/a", ["10.1.1.1:1"])
                await numbered(each, valkey)
            old.mirror.update(good, {})
            old.changes.history = history
            valkey.kill()
            await asyncio.gather(fresh.up(False), old.up(False))
            valkey.lose_data()
            valkey.start()
            await old.shows("/a", ["10.1.1.1:1"])
            assert valkey.admin.smembers("slb_a") == {"10.1.1.1:1"}


async def test_only_one_restores_at_a_time(valkey: Valkey) -> None:
    admin = valkey.admin
    admin.sadd("slb_a", "10.1.1.1:1")
    async with Follower(valkey.url, watch=timing(resync=0.1)) as follower:
        await follower.synced()
        await eventually(lambda: bool(admin.exists(keys.GENERATION)))
        with admin.pipeline() as pipe:
            pipe.flushall()
            pipe.set(keys.RESTORING, "another instance", px=60_000)
            pipe.execute()
        syncs = follower.metrics.redis.full_syncs
        await eventually(lambda: follower.metrics.redis.full_syncs > syncs + 5)
        assert admin.get(keys.RESTORING) == "another instance"
        assert not admin.exists("slb_a", keys.GENERATION)
        assert follower.members("/a") == ["10.1.1.1:1"]
        admin.delete(keys.RESTORING)
        await eventually(lambda: bool(admin.exists(keys.GENERATION)))
        assert admin.smembers("slb_a") == {"10.1.1.1:1"}


async def test_an_instance_that_writes_back_what_is_newer_does_not_renew_the_lock_of_another(
    valkey: Valkey,
) -> None:
    admin, connection = valkey.admin, Connection(valkey.url, Metrics())
    admin.set(keys.RESTORING, "another", px=60_000)
    newer = State(number=7, is_logged=True, path="/a", member="10.1.1.1:1", value=True)
    await Restorer(connection, Changes(connection, Mirror(Settings().route_settings, Random(1)))).catch_up(
        {keys.membership("/a", "10.1.1.1:1"): newer}, floor=3
    )
    await connection.aclose()
    assert admin.smembers("slb_a") == {"10.1.1.1:1"}
    assert admin.pttl(keys.RESTORING) > 30_000


def test_the_wait_before_a_restore_grows_with_age_and_is_shorter_where_the_table_is_not_from_disk() -> None:
    timing_of_design = RestoreTiming()
    assert timing_of_design.delay(10.0, first_sync=False, uptime=3600.0) == pytest.approx(0.1)
    assert timing_of_design.delay(100.0, first_sync=False, uptime=3600.0) == pytest.approx(1.0)
    assert timing_of_design.delay(1e9, first_sync=False, uptime=3600.0) == 10.0
    assert timing_of_design.delay(0.0, first_sync=True, uptime=0.0) == 10.0
    assert timing_of_design.delay(100.0, first_sync=True, uptime=4.0) == pytest.approx(7.0)


async def test_an_instance_that_starts_while_redis_is_away_serves_the_table_on_disk(
    valkey: Valkey, tmp_path: Path
) -> None:
    file = tmp_path / "table.json"
    valkey.admin.hset("slb:upstream:10.1.1.1:1", "weight", "3")
    valkey.admin.sadd("slb_a", "10.1.1.1:1")
    async with Follower(valkey.url, file) as before:
        await before.synced()
    valkey.kill()
    async with Follower(valkey.url, file) as after:
        await after.ready()
        assert after.members("/a") == ["10.1.1.1:1"]
        assert after.mirror.upstreams["10.1.1.1:1"].spec.weight == 3
        assert not after.connection.up


async def test_a_table_on_disk_refills_a_redis_that_lost_it(valkey: Valkey, tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    valkey.admin.sadd("slb_a", "10.1.1.1:1")
    async with Follower(valkey.url, file) as before:
        await before.synced()
    valkey.admin.flushall()
    async with Follower(valkey.url, file) as after:
        await after.shows("/a", ["10.1.1.1:1"])
        await eventually(lambda: bool(valkey.admin.exists(keys.GENERATION)))
        assert valkey.admin.smembers("slb_a") == {"10.1.1.1:1"}


async def test_a_table_on_disk_gives_way_to_a_redis_that_has_its_data(valkey: Valkey, tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    valkey.admin.sadd("slb_a", "10.1.1.1:1")
    async with Follower(valkey.url, file) as before:
        await before.synced()
        await eventually(lambda: bool(valkey.admin.exists(keys.GENERATION)))
    valkey.admin.delete("slb_a")
    async with Follower(valkey.url, file) as after:
        await after.synced()
        assert after.members("/a") is None
        assert not valkey.admin.exists("slb_a")


async def test_the_table_is_written_while_running_not_only_at_the_end(valkey: Valkey, tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    async with Follower(valkey.url, file) as follower:
        await follower.synced()
        valkey.admin.sadd("slb_later", "10.1.1.1:1")
        await eventually(lambda: file.exists() and b"/later" in file.read_bytes())


async def test_a_damaged_table_on_disk_is_logged_and_ignored(valkey: Valkey, tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    valkey.admin.sadd("slb_a", "10.1.1.1:1")
    async with Follower(valkey.url, file) as before:
        await before.synced()
    whole = file.read_bytes()
    newer = whole.replace(b'"version":2', b'"version":99')
    for damaged in (b"", b"{}\n", whole[:-20], whole.splitlines()[0], b"\x00\xff", newer):
        file.write_bytes(damaged)
        with capture_logs() as logs:
            async with Follower(valkey.url, file) as after:
                await after.shows("/a", ["10.1.1.1:1"])
        assert "disk_table_unusable" in {line["event"] for line in logs}


async def test_a_disk_that_cannot_be_written_ends_nothing(valkey: Valkey, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    with capture_logs() as logs:
        async with Follower(valkey.url, blocked / "table.json") as follower:
            await follower.synced()
            valkey.admin.sadd("slb_a", "10.1.1.1:1")
            await follower.shows("/a", ["10.1.1.1:1"])
    assert "disk_table_not_written" in {line["event"] for line in logs}

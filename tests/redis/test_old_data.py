"""Redis comes back with the data of some time ago: what the instances know to be newer stays, and goes back."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from slb.control import keys
from tests.support.following import Follower, timing
from tests.support.valkey import Valkey
from tests.support.waiting import eventually


@pytest.fixture
def snapshots() -> Iterator[Valkey]:
    """A Valkey that comes back with what its last SAVE has."""
    server = Valkey(appendonly="no")
    yield server
    server.close()


async def known(follower: Follower, valkey: Valkey) -> None:
    """All is read, and Redis says that it has its data."""
    await follower.synced()
    await eventually(lambda: bool(valkey.admin.exists(keys.GENERATION)), what="a generation")
    await eventually(lambda: follower.watcher._sync._generation is not None, what="a generation that is known")


async def back_from_snapshot(valkey: Valkey, *followers: Follower) -> None:
    valkey.kill()
    await asyncio.gather(*(follower.up(False) for follower in followers))
    valkey.start()
    await asyncio.gather(*(follower.up(True) for follower in followers))


def members(valkey: Valkey, key: str) -> set[str]:
    return set(valkey.admin.smembers(key))  # type: ignore[arg-type]


async def test_what_was_registered_since_the_snapshot_stays_and_what_was_deregistered_stays_away(
    snapshots: Valkey,
) -> None:
    async with Follower(snapshots.url) as one, Follower(snapshots.url) as other:
        await one.registry.register_all([("/a", "10.1.1.1:1", {}), ("/a", "10.9.9.9:9", {})])
        await known(one, snapshots)
        await known(other, snapshots)
        snapshots.admin.save()
        await one.registry.register("/a", "10.2.2.2:2", {"weight": "3"})
        await one.registry.register("/new", "10.3.3.3:3", {})
        await other.registry.deregister("/a", "10.9.9.9:9")
        for each in (one, other):
            await each.shows("/a", ["10.1.1.1:1", "10.2.2.2:2"])
            await each.shows("/new", ["10.3.3.3:3"])
        shown: list[object] = []
        for each in (one, other):
            each.mirror.on_swap(lambda _, each=each: shown.append((each.members("/a"), each.members("/new"))))
        with capture_logs() as logs:
            await back_from_snapshot(snapshots, one, other)
            await eventually(lambda: members(snapshots, "slb_a") == {"10.1.1.1:1", "10.2.2.2:2"}, timeout=5)
            await eventually(lambda: members(snapshots, "slb_new") == {"10.3.3.3:3"}, timeout=5)
        for each in (one, other):
            await each.shows("/a", ["10.1.1.1:1", "10.2.2.2:2"])
            assert each.mirror.upstreams["10.2.2.2:2"].spec.weight == 3
        assert all(seen == (["10.1.1.1:1", "10.2.2.2:2"], ["10.3.3.3:3"]) for seen in shown)
        assert snapshots.admin.hget("slb:upstream:10.2.2.2:2", "weight") == "3"
        found = [line for line in logs if line["event"] == "redis_came_back_behind"]
        assert found and found[0]["changes"] == 4


async def test_settings_and_drain_flags_go_back_as_well(snapshots: Valkey) -> None:
    async with Follower(snapshots.url) as follower:
        registry = follower.registry
        await registry.register("/a", "10.1.1.1:1", {"weight": "2"})
        await registry.put_settings("/a", {"policy": "p2c"})
        await registry.put_settings("/gone", {"policy": "p2c"})
        await known(follower, snapshots)
        await follower.shows("/gone", [])
        snapshots.admin.save()
        await registry.patch_settings("/a", {"policy": None, "retries": "2"})
        await registry.patch_upstream("10.1.1.1:1", {"drain": "true"})
        await registry.delete_route("/gone")
        await follower.shows("/gone", None)
        await eventually(lambda: follower.mirror.upstreams["10.1.1.1:1"].spec.drain)
        await back_from_snapshot(snapshots, follower)
        await eventually(lambda: not snapshots.admin.exists("slb:route:/gone"), timeout=5)
        assert snapshots.admin.hgetall("slb:route:/a") == {"retries": "2"}
        assert snapshots.admin.hget("slb:upstream:10.1.1.1:1", "drain") == "true"
        assert follower.mirror.upstreams["10.1.1.1:1"].spec.drain
        assert follower.members("/gone") is None


async def test_changes_by_hand_count_as_others_do(snapshots: Valkey) -> None:
    admin = snapshots.admin
    admin.sadd("slb_a", "10.1.1.1:1", "10.9.9.9:9")
    async with Follower(snapshots.url) as follower:
        await known(follower, snapshots)
        admin.save()
        admin.sadd("slb_a", "10.2.2.2:2")
        admin.srem("slb_a", "10.9.9.9:9")
        admin.hset("slb:route:/b", "policy", "p2c")
        await follower.shows("/a", ["10.1.1.1:1", "10.2.2.2:2"])
        await follower.shows("/b", [])
        await back_from_snapshot(snapshots, follower)
        await eventually(lambda: members(snapshots, "slb_a") == {"10.1.1.1:1", "10.2.2.2:2"}, timeout=5)
        assert snapshots.admin.hgetall("slb:route:/b") == {"policy": "p2c"}
        assert follower.members("/a") == ["10.1.1.1:1", "10.2.2.2:2"]


async def test_what_is_registered_after_redis_came_back_is_newer_than_all_that_was_lost(snapshots: Valkey) -> None:
    """Its numbers must not be those that were given before and lost."""
    async with Follower(snapshots.url) as follower:
        await follower.registry.register("/a", "10.1.1.1:1", {})
        await known(follower, snapshots)
        snapshots.admin.save()
        for _ in range(5):
            await follower.registry.register("/a", "10.2.2.2:2", {})
            await follower.registry.deregister("/a", "10.1.1.1:1")
        await follower.shows("/a", ["10.2.2.2:2"])
        snapshots.kill()
        await follower.up(False)
        follower.watcher._sync._reader, reader = None, follower.watcher._sync._reader  # type: ignore[assignment]
        snapshots.start()
        async with Follower(snapshots.url) as other:
            await other.synced()
            await other.registry.register("/a", "10.1.1.1:1", {})
            await other.registry.deregister("/a", "10.2.2.2:2")
            follower.watcher._sync._reader = reader
            await follower.up(True)
            await eventually(lambda: members(snapshots, "slb_a") == {"10.1.1.1:1"}, timeout=5)
            await follower.shows("/a", ["10.1.1.1:1"])
            await other.shows("/a", ["10.1.1.1:1"])


async def test_the_table_on_disk_knows_what_a_redis_has_lost(snapshots: Valkey, tmp_path: Path) -> None:
    """Both were off: nobody but the file knows."""
    file = tmp_path / "table.json"
    async with Follower(snapshots.url, file) as before:
        await before.registry.register("/a", "10.1.1.1:1", {})
        await known(before, snapshots)
        snapshots.admin.save()
        await before.registry.register("/a", "10.2.2.2:2", {})
        await before.registry.deregister("/a", "10.1.1.1:1")
        await before.shows("/a", ["10.2.2.2:2"])
    snapshots.kill()
    snapshots.start()
    async with Follower(snapshots.url, file) as after:
        await after.shows("/a", ["10.2.2.2:2"])
        await eventually(lambda: members(snapshots, "slb_a") == {"10.2.2.2:2"}, timeout=5)


async def test_a_redis_of_another_generation_is_followed_whatever_its_numbers(snapshots: Valkey) -> None:
    """How a backup is put in on purpose."""
    async with Follower(snapshots.url) as follower:
        await follower.registry.register("/a", "10.1.1.1:1", {})
        await known(follower, snapshots)
        snapshots.admin.set(keys.GENERATION, "of the backup")
        snapshots.admin.save()
        snapshots.admin.set(keys.GENERATION, follower.watcher._sync._changes.history.generation)
        await follower.registry.register("/a", "10.2.2.2:2", {})
        await follower.shows("/a", ["10.1.1.1:1", "10.2.2.2:2"])
        await back_from_snapshot(snapshots, follower)
        await follower.shows("/a", ["10.1.1.1:1"])
        assert members(snapshots, "slb_a") == {"10.1.1.1:1"}


async def test_a_reset_that_redis_has_forgotten_still_holds(snapshots: Valkey) -> None:
    async with Follower(snapshots.url) as follower:
        await follower.registry.register("/a", "10.1.1.1:1", {"weight": "2"})
        await known(follower, snapshots)
        snapshots.admin.save()
        await follower.registry.reset()
        await follower.shows("/a", None)
        await back_from_snapshot(snapshots, follower)
        await eventually(lambda: not snapshots.admin.exists("slb_a", "slb:upstream:10.1.1.1:1"), timeout=5)
        assert follower.members("/a") is None


async def test_more_changes_than_the_log_holds_are_known_all_the_same(snapshots: Valkey) -> None:
    """The table as a whole is newer than the snapshot then."""
    async with Follower(snapshots.url, watch=timing(resync=0.2)) as follower:
        await follower.registry.register("/a", "10.9.9.9:9", {})
        await known(follower, snapshots)
        snapshots.admin.save()
        await follower.registry.register("/early", "10.1.1.1:1", {})
        await follower.registry.deregister("/a", "10.9.9.9:9")
        many = [(f"/p{number}", "10.1.1.1:1", {}) for number in range(6000)]
        for start in range(0, len(many), 500):
            await follower.registry.register_all(many[start : start + 500])
        await eventually(lambda: len(follower.mirror.records) == 6001, timeout=30)
        assert snapshots.admin.zcard(keys.CHANGES) < 5600
        await eventually(lambda: follower.watcher._sync._changes.history.floor > 0)
        syncs = follower.metrics.full_syncs
        await eventually(lambda: follower.metrics.full_syncs > syncs + 1)
        await back_from_snapshot(snapshots, follower)
        await eventually(lambda: snapshots.admin.exists("slb_early", "slb_p0", "slb_p5999") == 3)
        await eventually(lambda: not snapshots.admin.exists("slb_a"))
        assert follower.members("/early") == ["10.1.1.1:1"]
        assert len(follower.mirror.records) == 6001

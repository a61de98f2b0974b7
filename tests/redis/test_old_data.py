"""Redis comes back with the data of some time ago: what is newer at the instances stays, and goes back."""

import os
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bench.ports import free_port
from slb.control import keys
from slb.control.generation import RestoreTiming
from slb.control.leases import Leases
from tests.redis.old_data_rig import back_from_snapshot, known, members, numbered, snapshots
from tests.support.following import Follower, timing
from tests.support.relay import Relay
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

__all__ = ["snapshots"]

LATE = RestoreTiming(settle=0.0, share_of_age=1e6, longest_delay=1.0)
"""Others write back first."""


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
        for mirror in (one.mirror, other.mirror):
            mirror.on_swap(
                lambda _: shown.extend((each.members("/a"), each.members("/new")) for each in (one, other))
            )
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
        assert [line["changes"] for line in found][:1] == [5]


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


async def test_an_old_lease_does_not_come_back_with_old_data(snapshots: Valkey) -> None:
    """Neither of what was made to stand for good since, nor of what was deregistered. What has not
    changed keeps its lease."""
    stays, leaves, leased = (keys.membership("/a", f"10.1.1.{each}:1") for each in (1, 2, 3))
    async with Follower(snapshots.url) as one, Follower(snapshots.url) as other:
        items: list[tuple[str, str, dict[str, str]]] = [("/a", f"10.1.1.{each}:1", {}) for each in (1, 2, 3)]
        await one.registry.register_all(items, [5.0] * 3)
        await known(one, snapshots)
        await known(other, snapshots)
        snapshots.admin.save()
        await one.registry.register_all(items[:1])
        await one.registry.deregister("/a", "10.1.1.2:1")
        for each in (one, other):
            await each.shows("/a", ["10.1.1.1:1", "10.1.1.3:1"])
        await back_from_snapshot(snapshots, one, other)
        await eventually(lambda: snapshots.admin.zscore(keys.LEASES, stays) is None, what="the old lease gone")
        await eventually(lambda: members(snapshots, "slb_a") == {"10.1.1.1:1", "10.1.1.3:1"}, timeout=5)
        assert snapshots.admin.zmscore(keys.LEASES, [stays, leaves, leased])[:2] == [None, None]
        assert snapshots.admin.zscore(keys.LEASES, leased) is not None
        snapshots.admin.zincrby(keys.LEASES, 6000, "clock")
        assert await Leases(one.connection, one.mirror, one.metrics).expire() == 1
        assert members(snapshots, "slb_a") == {"10.1.1.1:1"}


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
    socket = snapshots.process.socket
    async with Relay(socket) as relay, Follower(relay.url) as follower:
        await follower.registry.register("/a", "10.1.1.1:1", {})
        await known(follower, snapshots)
        snapshots.admin.save()
        for _ in range(5):
            await follower.registry.register("/a", "10.2.2.2:2", {})
            await follower.registry.deregister("/a", "10.1.1.1:1")
        await follower.shows("/a", ["10.2.2.2:2"])
        await numbered(follower, snapshots)
        snapshots.kill()
        await follower.up(False)
        relay.point_to(None)
        snapshots.start()
        async with Follower(snapshots.url) as other:
            await other.synced()
            await other.registry.register("/a", "10.1.1.1:1", {})
            await other.registry.deregister("/a", "10.2.2.2:2")
            relay.point_to(socket)
            await follower.up(True)
            await eventually(lambda: members(snapshots, "slb_a") == {"10.1.1.1:1"}, timeout=5)
            await follower.shows("/a", ["10.1.1.1:1"])
            await other.shows("/a", ["10.1.1.1:1"])


async def test_the_table_on_disk_has_what_a_redis_has_lost(snapshots: Valkey, tmp_path: Path) -> None:
    """Both were off: only the file has it."""
    file = tmp_path / "table.json"
    async with Follower(snapshots.url, file) as before:
        await before.registry.register("/a", "10.1.1.1:1", {})
        await known(before, snapshots)
        snapshots.admin.save()
        await before.registry.register("/a", "10.2.2.2:2", {})
        await before.registry.deregister("/a", "10.1.1.1:1")
        await before.shows("/a", ["10.2.2.2:2"])
        await numbered(before, snapshots)
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
        snapshots.admin.set(keys.GENERATION, follower.changes.history.generation or "")
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


async def test_a_replica_that_lagged_and_was_promoted_is_given_what_it_missed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        port = free_port()
        master = stack.enter_context(closing(Valkey(port=str(port), repl_diskless_sync_delay="0")))
        replica = stack.enter_context(closing(Valkey()))
        async with (
            Relay(master.process.socket) as relay,
            Follower(relay.url) as one,
            Follower(relay.url) as other,
        ):
            await one.registry.register_all([("/a", "10.1.1.1:1", {}), ("/a", "10.9.9.9:9", {})])
            await known(one, master)
            replica.admin.replicaof("127.0.0.1", str(port))
            await eventually(lambda: members(replica, "slb_a") == {"10.1.1.1:1", "10.9.9.9:9"})
            await eventually(lambda: bool(replica.admin.exists(keys.GENERATION, keys.CHANGES)))
            replica.admin.replicaof("127.0.0.1", "1")
            await one.registry.register("/a", "10.2.2.2:2", {})
            await other.registry.deregister("/a", "10.9.9.9:9")
            for each in (one, other):
                await each.shows("/a", ["10.1.1.1:1", "10.2.2.2:2"])
                await numbered(each, master)
            master.kill()
            with capture_logs() as logs:
                relay.point_to(replica.process.socket)
                await one.synced()
                replica.admin.replicaof("NO", "ONE")
                await eventually(lambda: members(replica, "slb_a") == {"10.1.1.1:1", "10.2.2.2:2"}, timeout=5)
            for each in (one, other):
                await each.shows("/a", ["10.1.1.1:1", "10.2.2.2:2"])
            assert "redis_came_back_behind" in {line["event"] for line in logs}


async def test_an_append_only_file_that_was_cut_at_its_end_is_made_up_for(valkey: Valkey) -> None:
    valkey.admin.config_set("appendfsync", "always")
    async with Follower(valkey.url) as follower:
        await follower.registry.register_all([("/a", "10.1.1.1:1", {}), ("/a", "10.9.9.9:9", {})])
        await known(follower, valkey)
        await eventually(lambda: bool(valkey.admin.exists(keys.CHANGES)))
        (file,) = (valkey.directory / "appendonlydir").glob("*.incr.aof")
        size = file.stat().st_size
        await follower.registry.register("/b", "10.2.2.2:2", {"weight": "2"})
        await follower.registry.deregister("/a", "10.9.9.9:9")
        await follower.shows("/a", ["10.1.1.1:1"])
        await follower.shows("/b", ["10.2.2.2:2"])
        await numbered(follower, valkey)
        valkey.kill()
        await follower.up(False)
        os.truncate(file, size)
        valkey.start()
        await eventually(lambda: members(valkey, "slb_a") == {"10.1.1.1:1"}, timeout=5)
        await eventually(lambda: members(valkey, "slb_b") == {"10.2.2.2:2"}, timeout=5)
        assert valkey.admin.hget("slb:upstream:10.2.2.2:2", "weight") == "2"
        assert follower.members("/a") == ["10.1.1.1:1"]


@pytest.mark.parametrize("first", ["the one that has less", "the one that has more"])
async def test_two_instances_that_know_different_things_end_with_the_newest_of_all(
    snapshots: Valkey, tmp_path: Path, first: str
) -> None:
    """One was cut off while the other registered; Redis comes back from before both, and they find it in turn."""
    socket = snapshots.process.socket
    async with (
        Relay(socket) as to_one,
        Relay(socket) as to_other,
        Follower(to_one.url) as one,
        Follower(to_other.url) as other,
    ):
        await one.registry.register_all([("/a", "10.1.1.1:1", {}), ("/a", "10.9.9.9:9", {})])
        await known(one, snapshots)
        await known(other, snapshots)
        await eventually(lambda: bool(snapshots.admin.exists(keys.CHANGES)))
        snapshots.admin.save()
        await one.registry.register("/b", "10.3.3.3:3", {})
        await other.shows("/b", ["10.3.3.3:3"])
        await one.shows("/b", ["10.3.3.3:3"])
        await numbered(one, snapshots)
        to_one.point_to(None)
        await one.up(False)
        await other.registry.register("/a", "10.2.2.2:2", {})
        await other.registry.deregister("/a", "10.9.9.9:9")
        await other.registry.deregister("/b", "10.3.3.3:3")
        await other.shows("/a", ["10.1.1.1:1", "10.2.2.2:2"])
        await other.shows("/b", None)
        await numbered(other, snapshots)
        snapshots.kill()
        to_other.point_to(None)
        await other.up(False)
        snapshots.start()
        in_turn = [(to_one, one), (to_other, other)]
        for relay, follower in in_turn if first == "the one that has less" else reversed(in_turn):
            relay.point_to(socket)
            await follower.up(True)
        await eventually(lambda: members(snapshots, "slb_a") == {"10.1.1.1:1", "10.2.2.2:2"}, timeout=5)
        await eventually(lambda: not snapshots.admin.exists("slb_b"), timeout=5)
        for each in (one, other):
            await each.shows("/a", ["10.1.1.1:1", "10.2.2.2:2"])
            await each.shows("/b", None)


@pytest.mark.parametrize("freshest", ["has seen that it is empty", "has not seen it yet"])
async def test_an_emptied_redis_is_refilled_with_what_the_freshest_has(
    valkey: Valkey, tmp_path: Path, freshest: str
) -> None:
    """The instance that has less comes first and writes back what has left since; it leaves again."""
    has_seen = freshest == "has seen that it is empty"
    async with (
        Relay(valkey.process.socket) as to_old,
        Follower(to_old.url) as old,
        Follower(valkey.url, watch=timing(restore=LATE, look=0.05 if has_seen else 30.0)) as fresh,
    ):
        await fresh.registry.register_all([("/a", "10.1.1.1:1", {}), ("/a", "10.9.9.9:9", {})])
        for each in (fresh, old):
            await known(each, valkey)
        await old.shows("/a", ["10.1.1.1:1", "10.9.9.9:9"])
        to_old.point_to(None)
        await old.up(False)
        await fresh.registry.register("/a", "10.2.2.2:2", {})
        await fresh.registry.deregister("/a", "10.9.9.9:9")
        await fresh.shows("/a", ["10.1.1.1:1", "10.2.2.2:2"])
        await numbered(fresh, valkey)
        valkey.admin.flushall()
        if has_seen:
            await eventually(lambda: fresh.sync.recovery.is_settled is False, what="the loss seen")
        to_old.point_to(valkey.process.socket)
        await old.up(True)
        await eventually(lambda: bool(valkey.admin.exists(keys.GENERATION)))
        await eventually(lambda: members(valkey, "slb_a") == {"10.1.1.1:1", "10.2.2.2:2"}, timeout=5)
        await old.shows("/a", ["10.1.1.1:1", "10.2.2.2:2"])
        assert fresh.members("/a") == ["10.1.1.1:1", "10.2.2.2:2"]


async def test_a_flushall_is_noticed_though_it_sends_no_event(valkey: Valkey) -> None:
    """No event, no connection that breaks; and the next full sync is half a minute away."""
    async with Follower(valkey.url) as follower:
        await follower.registry.register("/a", "10.1.1.1:1", {"weight": "2"})
        await known(follower, valkey)
        valkey.admin.flushall()
        await eventually(lambda: members(valkey, "slb_a") == {"10.1.1.1:1"}, timeout=5)
        assert valkey.admin.hget("slb:upstream:10.1.1.1:1", "weight") == "2"
        assert follower.members("/a") == ["10.1.1.1:1"]

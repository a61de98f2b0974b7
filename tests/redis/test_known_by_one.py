"""Redis loses a change that one instance alone has, and others may be quicker to write back what they have."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import Any

import pytest

from slb.control import keys
from slb.control.changes import Changes
from slb.control.history import History, Snapshot
from tests.redis.old_data_rig import known, members, numbered, resting, snapshots
from tests.support.following import Follower, timing
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, soon

__all__ = ["snapshots"]


def log_as_it_is(changes: Changes) -> Callable[[bool], Awaitable[History]]:
    """In the place of `changes.read`: it shows nothing that is written from now on."""
    before = replace(changes.history.copy(), of={}, last=changes.read_to)

    async def read(whole: bool = False) -> History:
        return before

    return read


async def not_numbered(entries: Collection[str]) -> set[str]:
    """In the place of `changes.number`."""
    return set()


async def test_a_change_that_redis_loses_before_its_number_was_read_holds_where_it_was_answered(
    snapshots: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance may show a change a moment before it reads the log that has its number."""
    async with Follower(snapshots.url) as follower:
        registry, changes = follower.registry, follower.changes
        await registry.register_all([("/a", f"10.1.1.{each}:1", {}) for each in range(1, 4)])
        await registry.put_settings("/a", {"policy": "random"})
        await known(follower, snapshots)
        await numbered(follower, snapshots)
        snapshots.admin.save()
        old_log = log_as_it_is(changes)
        with monkeypatch.context() as patch:
            patch.setattr(changes, "read", old_log)
            patch.setattr(changes, "number", not_numbered)
            await registry.deregister("/a", "10.1.1.1:1")
            await registry.register("/a", "10.1.1.4:1", {"weight": "5"})
            await registry.patch_upstream("10.1.1.4:1", {"zone": "z", "weight": None})
            await registry.patch_settings("/a", {"policy": None, "panic_threshold": "7"})
            await registry.register("/b", "10.1.1.5:1", {})
            await registry.delete_route("/b")
            await follower.shows("/a", ["10.1.1.2:1", "10.1.1.3:1", "10.1.1.4:1"])
            await follower.shows("/b", None)
            await eventually(lambda: follower.mirror.records["/a"].settings == {"panic_threshold": "7"})
            await eventually(lambda: follower.mirror.upstreams["10.1.1.4:1"].spec.zone == "z")
            snapshots.kill()
            await follower.up(False)
        snapshots.start()
        await follower.up(True)
        left = {"10.1.1.2:1", "10.1.1.3:1", "10.1.1.4:1"}
        await eventually(lambda: members(snapshots, "slb_a") == left, timeout=5)
        await follower.shows("/a", sorted(left))
        await eventually(lambda: snapshots.admin.hgetall("slb:route:/a") == {"panic_threshold": "7"}, timeout=5)
        stored = snapshots.admin.hgetall("slb:upstream:10.1.1.4:1")
        assert (stored["zone"], "weight" in stored) == ("z", False)


@pytest.mark.parametrize("by_hand", [False, True])
async def test_redis_is_older_where_it_lacks_a_number_that_was_given_here_and_not_read_yet(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch, by_hand: bool
) -> None:
    """Older data at the same address, as after a failover to a replica that lags, is met by a new connection while
    the subscription still receives from the server before: no reconnect shows that it may be another Redis."""
    async with Follower(valkey.url) as follower:
        changes = follower.changes
        await follower.registry.register("/a", "10.1.1.1:1", {})
        await known(follower, valkey)
        await numbered(follower, valkey)
        log: Any = valkey.admin.zrange(keys.CHANGES, 0, -1, withscores=True)
        old_log = log_as_it_is(changes)
        with monkeypatch.context() as patch:
            patch.setattr(changes, "read", old_log)
            if by_hand:
                valkey.admin.sadd("slb_a", "10.1.1.2:1")
            else:
                patch.setattr(changes, "number", not_numbered)
                await follower.registry.register("/a", "10.1.1.2:1", {})
            await follower.shows("/a", ["10.1.1.1:1", "10.1.1.2:1"])
            await resting(follower)
        with valkey.admin.pipeline(transaction=True) as pipe:
            pipe.delete(keys.CHANGES)
            pipe.zadd(keys.CHANGES, dict(log))
            pipe.srem("slb_a", "10.1.1.2:1")
            pipe.execute()
        await eventually(lambda: members(valkey, "slb_a") == {"10.1.1.1:1", "10.1.1.2:1"}, timeout=5)
        await follower.shows("/a", ["10.1.1.1:1", "10.1.1.2:1"])
        await numbered(follower, valkey)
        assert not (await changes.read()).ends_early


async def test_what_was_answered_holds_though_the_mirror_shows_it_as_it_was_a_moment_before(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read just before the change, and Redis is emptied just after it."""
    async with Follower(valkey.url, watch=timing(look=30.0)) as follower:
        registry, dirty = follower.registry, follower.sync.dirty
        await registry.register_all([("/a", "10.1.1.1:1", {}), ("/a", "10.2.2.2:2", {})])
        await registry.put_settings("/a", {"policy": "p2c", "max_inflight": "5"})
        await known(follower, valkey)
        await numbered(follower, valkey)
        await resting(follower)
        with monkeypatch.context() as patch:
            patch.setattr(dirty, "mark", lambda key: None)
            await registry.deregister("/a", "10.1.1.1:1")
            await registry.register("/a", "10.3.3.3:3", {"weight": "3"})
            await registry.patch_settings("/a", {"retries": "2", "policy": None})
            assert follower.members("/a") == ["10.1.1.1:1", "10.2.2.2:2"]
            valkey.admin.flushall()
        dirty.mark("slb_a")
        await eventually(lambda: members(valkey, "slb_a") == {"10.2.2.2:2", "10.3.3.3:3"}, timeout=5)
        expected = {"max_inflight": "5", "retries": "2"}
        await eventually(lambda: valkey.admin.hgetall("slb:route:/a") == expected, timeout=5)
        await eventually(lambda: valkey.admin.hget("slb:upstream:10.3.3.3:3", "weight") == "3")
        await follower.shows("/a", ["10.2.2.2:2", "10.3.3.3:3"])


async def test_what_was_answered_while_all_is_read_is_no_change_by_hand(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read before it would get a later number where Redis is emptied just then, and be written back."""
    async with Follower(valkey.url, watch=timing(look=30.0)) as follower:
        registry, sync = follower.registry, follower.sync
        await registry.register_all([("/a", "10.1.1.1:1", {}), ("/a", "10.2.2.2:2", {})])
        await known(follower, valkey)
        await numbered(follower, valkey)
        everything, undone = sync._reader.everything, sync.recovery.undone
        is_emptied = asyncio.Event()

        async def just_before(*args: Any) -> Snapshot:
            patch.setattr(sync._reader, "everything", everything)
            await registry.deregister("/a", "10.1.1.1:1")
            found = await everything(*args)
            await registry.register("/a", "10.3.3.3:3", {"weight": "3"})
            return found

        async def emptied(by_hand: Collection[str]) -> bool:
            patch.setattr(sync.recovery, "undone", undone)
            is_undone = await undone(by_hand)
            valkey.admin.flushall()
            is_emptied.set()
            return is_undone

        with monkeypatch.context() as patch:
            patch.setattr(sync._reader, "everything", just_before)
            patch.setattr(sync.recovery, "undone", emptied)
            sync.dirty.mark("slb_a")
            sync.dirty.all = True
            await soon(is_emptied.wait())
        sync.dirty.mark("slb_a")
        await eventually(lambda: members(valkey, "slb_a") == {"10.2.2.2:2", "10.3.3.3:3"})
        await eventually(lambda: valkey.admin.hget("slb:upstream:10.3.3.3:3", "weight") == "3")
        await follower.shows("/a", ["10.2.2.2:2", "10.3.3.3:3"])

"""The log of changes: what it holds no more, what does not belong there, and what no event reports."""

import pytest

from slb.control import keys
from slb.control.registry import ToRegister
from tests.redis.old_data_rig import back_from_snapshot, known, snapshots
from tests.support.following import Follower, timing
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, settled

__all__ = ["snapshots"]


async def test_more_changes_than_the_log_holds_are_known_all_the_same(snapshots: Valkey) -> None:
    """The table as a whole is newer than the snapshot then."""
    async with Follower(snapshots.url, watch=timing(resync=0.2)) as follower:
        await follower.registry.register("/a", "10.9.9.9:9", {})
        await known(follower, snapshots)
        snapshots.admin.save()
        await follower.registry.register("/early", "10.1.1.1:1", {})
        await follower.registry.deregister("/a", "10.9.9.9:9")
        many: list[ToRegister] = [(f"/p{number}", "10.1.1.1:1", {}) for number in range(6000)]
        for start in range(0, len(many), 500):
            await follower.registry.register_all(many[start : start + 500])
        await eventually(lambda: len(follower.mirror.records) == 6001, timeout=30)
        assert snapshots.admin.zcard(keys.CHANGES) < 5600
        await eventually(lambda: follower.changes.history.floor > 0)
        syncs = follower.metrics.redis.full_syncs
        await eventually(lambda: follower.metrics.redis.full_syncs > syncs + 1)
        await back_from_snapshot(snapshots, follower)
        await eventually(lambda: snapshots.admin.exists("slb_early", "slb_p0", "slb_p5999") == 3)
        await eventually(lambda: not snapshots.admin.exists("slb_a"))
        assert follower.members("/early") == ["10.1.1.1:1"]
        assert len(follower.mirror.records) == 6001


@pytest.mark.parametrize("rubbish", ["a string", "endless numbers", "strange names"])
async def test_another_programs_data_in_the_place_of_the_log_is_no_harm(valkey: Valkey, rubbish: str) -> None:
    admin = valkey.admin
    async with Follower(valkey.url, watch=timing(resync=0.1)) as follower:
        await follower.registry.register("/a", "10.1.1.1:1", {})
        await known(follower, valkey)
        await eventually(lambda: bool(admin.exists(keys.CHANGES)))
        admin.delete(keys.CHANGES)
        if rubbish == "a string":
            admin.set(keys.CHANGES, "x")
        else:
            score = float("inf") if rubbish == "endless numbers" else 2.0**52
            for name in (b"slb_a", b"slb_a  ", b"slb_x ../..", b"slb:route:", b"a\nb 7", b"\xff"):
                admin.zadd(keys.CHANGES, {name: score})
        syncs = follower.metrics.redis.full_syncs
        await eventually(lambda: follower.metrics.redis.full_syncs > syncs + 3)
        assert follower.members("/a") == ["10.1.1.1:1"]
        await follower.registry.register("/a", "10.2.2.2:2", {})
        await follower.shows("/a", ["10.1.1.1:1", "10.2.2.2:2"])
        await eventually(lambda: admin.type(keys.CHANGES) == "zset")
        await eventually(lambda: admin.zscore(keys.CHANGES, "slb_a 10.2.2.2:2") is not None)
        assert follower.metrics.redis.reconnects == 0


async def test_what_is_not_ours_in_the_log_is_not_read_again_and_again(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        await follower.registry.register("/a", "10.1.1.1:1", {})
        await known(follower, valkey)
        await eventually(lambda: follower.metrics.redis.full_syncs == 2, what="the one that follows the generation")
        valkey.admin.zadd(keys.CHANGES, {"slb_//": 2.0**52})
        await follower.registry.register("/a", "10.2.2.2:2", {})
        await eventually(lambda: "slb_//" in follower.changes.waiting)
        await settled(lambda: int(valkey.admin.info("commandstats")["cmdstat_evalsha"]["calls"]))


async def test_what_is_registered_again_unchanged_is_newer_than_it_was(snapshots: Valkey) -> None:
    """No event reports it; its number is learned all the same, and what left before does not come between."""
    async with Follower(snapshots.url, watch=timing(look=0.05)) as follower:
        await follower.registry.register("/a", "10.1.1.1:1", {})
        await known(follower, snapshots)
        await follower.shows("/a", ["10.1.1.1:1"])
        history = follower.changes.history
        before = history.revision("slb_a 10.1.1.1:1")
        await follower.registry.register("/a", "10.1.1.1:1", {})
        await eventually(lambda: history.revision("slb_a 10.1.1.1:1") > before)
        await eventually(lambda: not follower.changes.waiting)

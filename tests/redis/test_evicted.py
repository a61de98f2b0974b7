"""Redis evicts what the instances hold: it stays with them, and is written back."""

import pytest
from redis.exceptions import ResponseError
from structlog.testing import capture_logs

from slb.control import keys
from slb.control.changes import Changes, WriteBack
from slb.control.history import History, Snapshot, State
from slb.control.restore import Restorer
from slb.model import RouteRecord
from tests.redis.old_data_rig import known, members, numbered
from tests.support.following import Follower, timing
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

SPEC = {"weight": "3"}


def evict(valkey: Valkey, *names: str) -> None:
    """Have it throw away these keys: the only ones with a lifetime, but for those of instances."""
    admin = valkey.admin
    for name in names:
        admin.pexpire(name, 3_600_000)
    admin.config_set("maxmemory-policy", "volatile-ttl")
    admin.config_set("maxmemory", "1")
    assert admin.exists(*names) == 0
    admin.config_set("maxmemory", "0")


async def evict_of_others(valkey: Valkey, *followers: Follower) -> None:
    """A key that is none of slb's; until each has found that nothing of its own is missing."""
    before = {each: each.metrics.redis.full_syncs for each in followers}
    valkey.admin.set("foreign", "1")
    evict(valkey, "foreign")

    def have_looked() -> bool:
        return all(
            each.metrics.redis.full_syncs > count and each.sync.recovery.is_settled
            for each, count in before.items()
        )

    await eventually(have_looked, timeout=5)


@pytest.mark.parametrize(
    "names",
    [
        ["slb_a"],
        ["slb:route:/a", "slb:upstream:10.1.1.1:1"],
        ["slb_a", keys.CHANGES],
        ["slb_a", keys.GENERATION],
        [keys.GENERATION],
        ["slb_a", "slb:route:/a", keys.GENERATION, keys.CHANGES],
    ],
    ids=" ".join,
)
async def test_what_redis_throws_away_stays_and_goes_back(valkey: Valkey, names: list[str]) -> None:
    async with Follower(valkey.url) as one, Follower(valkey.url) as other:
        await one.registry.register("/a", "10.1.1.1:1", SPEC)
        await one.registry.put_settings("/a", {"policy": "p2c"})
        for each in (one, other):
            await known(each, valkey)
            await each.shows("/a", ["10.1.1.1:1"])
            await numbered(each, valkey)
        shown: list[object] = []
        for mirror in (one.mirror, other.mirror):
            mirror.on_swap(lambda _: shown.extend(each.members("/a") for each in (one, other)))
        evict(valkey, *names)
        await eventually(lambda: valkey.admin.exists(*names) == len(names), timeout=5)
        assert valkey.admin.hgetall("slb:upstream:10.1.1.1:1").items() >= SPEC.items()
        assert valkey.admin.hgetall("slb:route:/a") == {"policy": "p2c"}
        await eventually(lambda: all(each.sync.recovery.is_settled for each in (one, other)), timeout=5)
        assert all(each == ["10.1.1.1:1"] for each in shown)


async def test_an_eviction_is_noticed_at_once(valkey: Valkey) -> None:
    async with Follower(valkey.url, watch=timing(look=60.0, resync=60.0)) as follower:
        await follower.registry.register("/a", "10.1.1.1:1", SPEC)
        await follower.registry.put_settings("/a", {"policy": "p2c"})
        await known(follower, valkey)
        await numbered(follower, valkey)
        evict(valkey, "slb:route:/a")
        await eventually(lambda: valkey.admin.hgetall("slb:route:/a") == {"policy": "p2c"})


async def test_a_registration_right_after_does_not_make_the_others_leave(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        await follower.registry.register_all([("/a", "10.1.1.1:1", {}), ("/a", "10.2.2.2:2", {})])
        await known(follower, valkey)
        await follower.shows("/a", ["10.1.1.1:1", "10.2.2.2:2"])
        await numbered(follower, valkey)
        with capture_logs() as logs:
            evict(valkey, "slb_a")
            await follower.registry.register("/a", "10.3.3.3:3", {})
            await follower.shows("/a", ["10.1.1.1:1", "10.2.2.2:2", "10.3.3.3:3"])
            await eventually(lambda: len(members(valkey, "slb_a")) == 3, timeout=5)
        assert [line["changes"] for line in logs if line["event"] == "redis_evicted"] == [2]


async def test_a_member_removed_by_hand_since_stays_removed(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        await follower.registry.register_all([("/a", "10.1.1.1:1", {}), ("/a", "10.2.2.2:2", {})])
        await known(follower, valkey)
        await numbered(follower, valkey)
        evict(valkey, "slb_a")
        await eventually(lambda: len(members(valkey, "slb_a")) == 2, timeout=5)
        await eventually(lambda: not follower.sync.recovery.evictions.happened, what="all is there again")
        valkey.admin.srem("slb_a", "10.1.1.1:1")
        await follower.shows("/a", ["10.2.2.2:2"])
        valkey.admin.srem("slb_a", "10.2.2.2:2")
        await follower.shows("/a", None)


async def test_a_setting_that_is_changed_before_an_eviction_is_met_stands_beside_those_that_go_back(
    valkey: Valkey,
) -> None:
    async with Follower(valkey.url) as follower:
        await follower.registry.register("/a", "10.1.1.1:1", {})
        await follower.registry.put_settings("/a", {"policy": "p2c", "max_inflight": "5"})
        await known(follower, valkey)
        await numbered(follower, valkey)
        evict(valkey, "slb:route:/a")
        await follower.registry.patch_settings("/a", {"retries": "2", "policy": None})
        expected = {"max_inflight": "5", "retries": "2"}
        await eventually(lambda: valkey.admin.hgetall("slb:route:/a") == expected, what="settings", timeout=5)
        await eventually(lambda: follower.mirror.records["/a"].settings == expected)


async def test_an_evicted_key_of_others_costs_no_line_and_no_row(valkey: Valkey) -> None:
    async with Follower(valkey.url) as one, Follower(valkey.url) as other:
        await one.registry.register_all([("/a", f"10.1.1.{each}:1", {}) for each in range(1, 51)])
        for each in (one, other):
            await known(each, valkey)
            await numbered(each, valkey)
        valkey.admin.config_resetstat()
        with capture_logs() as logs:
            await evict_of_others(valkey, one, other)
        assert not [line for line in logs if line["event"].startswith("redis_")]
        assert not {"cmdstat_sadd", "cmdstat_hset", "cmdstat_zadd"} & valkey.admin.info("commandstats").keys()


@pytest.mark.parametrize("left", [["10.1.1.1:1"], ["10.1.1.1:1", "10.2.2.2:2"]], ids=["one of two", "both"])
async def test_what_is_removed_by_hand_while_redis_evicts_keys_of_others_stays_removed(
    valkey: Valkey, left: list[str]
) -> None:
    """As in a cache that is shared: whenever an instance looks, something has been evicted."""
    admin = valkey.admin
    async with Follower(valkey.url) as one, Follower(valkey.url) as other:
        await one.registry.register_all([("/a", "10.1.1.1:1", {}), ("/a", "10.2.2.2:2", {})])
        await one.registry.put_settings("/b", {"policy": "p2c"})
        await one.registry.put_settings("/c", {"policy": "p2c", "retries": "2"})
        for each in (one, other):
            await known(each, valkey)
            await numbered(each, valkey)
        remaining = {"10.1.1.1:1", "10.2.2.2:2"} - set(left)
        with capture_logs() as logs:
            admin.set("foreign", "1")
            evict(valkey, "foreign")
            admin.srem("slb_a", *left)
            admin.delete("slb:route:/b")
            admin.hdel("slb:route:/c", "retries")
            for each in (one, other):
                await each.shows("/a", sorted(remaining) or None)
                await each.shows("/b", None)
            for _ in range(2):
                await evict_of_others(valkey, one, other)
                assert [each.members("/a") for each in (one, other)] == [sorted(remaining) or None] * 2
                assert (members(valkey, "slb_a"), admin.exists("slb:route:/b")) == (remaining, 0)
                assert admin.hgetall("slb:route:/c") == {"policy": "p2c"}
        assert not [line for line in logs if line["event"].startswith("redis_")]


async def test_what_is_evicted_after_a_removal_by_hand_goes_back(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        await follower.registry.register_all([("/a", f"10.1.1.{each}:1", {}) for each in range(1, 4)])
        await known(follower, valkey)
        await numbered(follower, valkey)
        valkey.admin.srem("slb_a", "10.1.1.3:1")
        await follower.shows("/a", ["10.1.1.1:1", "10.1.1.2:1"])
        await numbered(follower, valkey)
        evict(valkey, "slb_a")
        await eventually(lambda: members(valkey, "slb_a") == {"10.1.1.1:1", "10.1.1.2:1"}, timeout=5)


async def test_what_redis_still_has_is_given_no_number_as_if_put_there_by_hand(valkey: Valkey) -> None:
    """It may be evicted the next moment, and then look as if it had left under that number."""
    entry = keys.membership("/a", "10.1.1.1:1")
    there = RouteRecord(frozenset({"10.1.1.1:1"}))
    async with Follower(valkey.url) as follower:
        await follower.synced()
        restorer = Restorer(follower.connection, Changes(follower.connection, follower.mirror))
        good = Snapshot(
            {"/a": there, "/b": there}, history=History({entry: 7, keys.membership("/b", "10.1.1.1:1"): 8})
        )
        assert await restorer.write_back(good, Snapshot({"/a": there}))
        assert members(valkey, "slb_b") == {"10.1.1.1:1"}
        assert valkey.admin.zscore(keys.CHANGES, entry) is None


@pytest.mark.parametrize("is_logged", [True, False])
async def test_what_redis_has_no_memory_for_is_refused_and_not_passed_over(valkey: Valkey, is_logged: bool) -> None:
    row = keys.membership("/a", "10.1.1.1:1"), State(7, is_logged, "/a", "10.1.1.1:1", True)
    async with Follower(valkey.url) as follower:
        await follower.synced()
        valkey.admin.config_set("maxmemory", "1")
        with pytest.raises(ResponseError, match="maxmemory"):
            await WriteBack(follower.connection)([row])
        valkey.admin.config_set("maxmemory", "0")
        assert await WriteBack(follower.connection)([row]) == 0
        assert members(valkey, "slb_a") == {"10.1.1.1:1"}

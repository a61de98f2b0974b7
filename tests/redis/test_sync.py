"""The mirror follows a real Valkey."""

import asyncio
from pathlib import Path
from random import Random

import pytest
from structlog.testing import capture_logs

from slb.control import keys
from slb.control.connection import Connection
from slb.control.scripts import scan_names
from slb.observe.metrics import Metrics
from tests.support.following import Follower, timing
from tests.support.valkey import Valkey
from tests.support.waiting import eventually


async def test_a_member_added_by_hand_is_served(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        await follower.synced()
        valkey.admin.sadd("slb_path1", "10.8.8.8:80")
        await follower.shows("/path1", ["10.8.8.8:80"])


async def test_what_was_there_before_the_start_is_served(valkey: Valkey) -> None:
    valkey.admin.sadd("slb_path1", "10.8.8.8:80", "10.10.10.10:80")
    valkey.admin.sadd("slb_", "10.9.9.9:80")
    async with Follower(valkey.url) as follower:
        await follower.ready()
        assert follower.members("/path1") == ["10.10.10.10:80", "10.8.8.8:80"]
        assert follower.members("/") == ["10.9.9.9:80"]


async def test_removals_and_deletions_are_followed(valkey: Valkey) -> None:
    admin = valkey.admin
    admin.sadd("slb_a", "10.1.1.1:1", "10.2.2.2:2")
    async with Follower(valkey.url) as follower:
        await follower.synced()
        admin.srem("slb_a", "10.1.1.1:1")
        await follower.shows("/a", ["10.2.2.2:2"])
        admin.rename("slb_a", "slb_b")
        await follower.shows("/a", None)
        await follower.shows("/b", ["10.2.2.2:2"])
        admin.pexpire("slb_b", 1)
        await follower.shows("/b", None)


async def test_a_route_lives_while_its_set_or_its_settings_do(valkey: Valkey) -> None:
    admin = valkey.admin
    async with Follower(valkey.url) as follower:
        await follower.synced()
        admin.hset("slb:route:/a", "policy", "random")
        await follower.shows("/a", [])
        admin.sadd("slb_a", "10.1.1.1:1")
        await follower.shows("/a", ["10.1.1.1:1"])
        assert follower.mirror.table.routes["/a"].settings.policy == "random"
        admin.delete("slb:route:/a")
        await eventually(lambda: follower.mirror.table.routes["/a"].settings.policy == "round_robin")
        admin.delete("slb_a")
        await follower.shows("/a", None)


async def test_a_member_added_by_hand_fades_in_where_others_were_before(valkey: Valkey) -> None:
    admin = valkey.admin
    admin.hset("slb:route:/a", "fade_in", "1h")
    admin.sadd("slb_a", "10.1.1.1:1", "10.2.2.2:2")
    async with Follower(valkey.url) as follower:
        await follower.synced()
        assert follower.mirror.table.routes["/a"].view.fading_until == 0.0
        admin.sadd("slb_a", "10.3.3.3:3")
        await follower.shows("/a", ["10.1.1.1:1", "10.2.2.2:2", "10.3.3.3:3"])
        route, new = follower.mirror.table.routes["/a"], follower.mirror.upstreams["10.3.3.3:3"]
        assert route.view.fading_until == new.seen + 3600
        assert new in route.view.deprioritized(new.seen, Random(1))


async def test_attributes_are_followed(valkey: Valkey) -> None:
    admin = valkey.admin
    admin.hset("slb:upstream:10.1.1.1:1", "weight", "3")
    admin.sadd("slb_a", "10.1.1.1:1", "10.2.2.2:2")
    async with Follower(valkey.url) as follower:
        await follower.synced()
        assert follower.mirror.upstreams["10.1.1.1:1"].spec.weight == 3
        admin.hset("slb:upstream:10.1.1.1:1", "drain", "1")
        await eventually(lambda: len(follower.mirror.table.routes["/a"].upstreams) == 1)
        admin.delete("slb:upstream:10.1.1.1:1")
        await eventually(lambda: len(follower.mirror.table.routes["/a"].upstreams) == 2)
        assert follower.mirror.upstreams["10.1.1.1:1"].spec.weight == 1


async def test_another_database_is_followed_by_its_own_channels(valkey: Valkey) -> None:
    async with Follower(f"{valkey.url}?db=3") as follower:
        await follower.synced()
        await follower.registry.register("/a", "10.1.1.1:1", {})
        await follower.shows("/a", ["10.1.1.1:1"])
        valkey.admin.sadd("slb_a", "10.9.9.9:9")
        await follower.registry.register("/a", "10.2.2.2:2", {})
        await follower.shows("/a", ["10.1.1.1:1", "10.2.2.2:2"])


async def test_a_path_marked_ten_times_while_it_waits_is_read_once(valkey: Valkey) -> None:
    admin = valkey.admin
    admin.set(keys.GENERATION, "so that no other sync comes")
    async with Follower(valkey.url) as follower:
        await follower.synced()
        admin.config_set("notify-keyspace-events", "")
        admin.sadd("slb_a", "10.1.1.1:1")
        admin.config_resetstat()
        swaps = follower.swaps
        for _ in range(10):
            follower.sync.dirty.mark("slb_a")
        await follower.shows("/a", ["10.1.1.1:1"])
        assert follower.swaps == swaps + 1
        assert admin.info("commandstats")["cmdstat_smembers"]["calls"] == 1


async def test_hundreds_of_paths_changed_at_once_all_arrive(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        await follower.synced()
        with valkey.admin.pipeline() as pipe:
            for number in range(500):
                pipe.sadd(f"slb_p{number}", "10.1.1.1:1")
            pipe.execute()
        await eventually(lambda: len(follower.mirror.table.routes) == 500)


async def test_missing_notification_flags_are_added_and_others_kept(valkey: Valkey) -> None:
    admin = valkey.admin
    admin.config_set("notify-keyspace-events", "El")
    async with Follower(valkey.url) as follower:
        await follower.synced()
        assert set("KgshxeEl") == set(str(admin.config_get()["notify-keyspace-events"]))


async def test_flags_are_added_again_after_a_restart_forgot_them(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        await follower.synced()
        valkey.kill()
        await follower.up(False)
        valkey.start()
        await follower.up(True)
        valkey.admin.sadd("slb_a", "10.1.1.1:1")
        await follower.shows("/a", ["10.1.1.1:1"])


async def test_a_resync_repairs_what_lost_notifications_missed(valkey: Valkey) -> None:
    admin = valkey.admin
    async with Follower(valkey.url, watch=timing(resync=0.2)) as follower:
        await follower.synced()
        admin.config_set("notify-keyspace-events", "")
        admin.sadd("slb_a", "10.1.1.1:1")
        await follower.shows("/a", ["10.1.1.1:1"])
        assert set("Kgshxe") == set(str(admin.config_get()["notify-keyspace-events"]))


async def test_a_resync_that_finds_nothing_new_makes_no_table(valkey: Valkey) -> None:
    valkey.admin.sadd("slb_a", "10.1.1.1:1")
    async with Follower(valkey.url, watch=timing(resync=0.05)) as follower:
        await follower.synced()
        table, syncs = follower.mirror.table, follower.metrics.redis.full_syncs
        await eventually(lambda: follower.metrics.redis.full_syncs > syncs + 3)
        assert follower.mirror.table is table


async def test_a_setting_that_is_refused_is_logged_once_and_once_more_when_it_is_mended(valkey: Valkey) -> None:
    admin = valkey.admin
    admin.sadd("slb_p1", "10.1.1.1:1")
    with capture_logs() as logs:
        async with Follower(valkey.url, watch=timing(resync=0.05)) as follower:
            await follower.shows("/p1", ["10.1.1.1:1"])
            admin.hset("slb:route:/p1", mapping={"policy": "magic", "retries": "2"})
            await eventually(lambda: bool(follower.mirror.faults))
            admin.sadd("slb_p1", "10.1.1.1:2")
            await follower.shows("/p1", ["10.1.1.1:1", "10.1.1.1:2"])
            admin.hset("slb:route:/p1", "policy", "random")
            await eventually(lambda: not follower.mirror.faults)
    logged = [line for line in logs if line["event"] in ("setting_refused", "settings_in_order")]
    assert [line["route"] for line in logged] == ["/p1", "/p1"]
    assert str(logged[0]["fault"]).startswith("policy = 'magic': ")
    assert logged[1]["event"] == "settings_in_order"


async def test_foreign_and_broken_entries_are_skipped_counted_and_logged_once(valkey: Valkey) -> None:
    admin = valkey.admin
    with capture_logs() as logs:
        async with Follower(valkey.url, watch=timing(resync=0.05)) as follower:
            await follower.synced()
            admin.sadd("slb_p1", "garbage", "HOST:80", "10.1.1.1:1", "10.1.1.1")
            admin.set("slb_text", "a string")
            admin.sadd("slb_a//b", "10.1.1.1:1")
            admin.sadd("slb_{x}", "10.1.1.1:1")
            admin.set("slb:route:/p1", "a string")
            admin.hset("slb:upstream:nonsense", "weight", "1")
            await follower.shows("/p1", ["10.1.1.1:1"])
            await eventually(lambda: follower.metrics.redis.skipped == {"member": 3, "type": 2, "key": 3})
            syncs = follower.metrics.redis.full_syncs
            await eventually(lambda: follower.metrics.redis.full_syncs > syncs + 2)
            assert set(follower.mirror.table.routes) == {"/p1"}
            admin.delete("slb_text", "slb:route:/p1", "slb_a//b", "slb_{x}", "slb:upstream:nonsense")
            admin.srem("slb_p1", "garbage", "HOST:80", "10.1.1.1")
            await eventually(lambda: not any(follower.metrics.redis.skipped.values()))
    skipped = [
        (line["kind"], line["key"], line["entry"]) for line in logs if line["event"] == "redis_entry_skipped"
    ]
    assert len(skipped) == len(set(skipped)) == 8


async def test_a_key_of_bytes_that_are_no_text_ends_nothing(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        await follower.synced()
        valkey.admin.sadd(b"slb_\xff\xfe", "10.1.1.1:1")
        valkey.admin.sadd("slb_a", b"\xff\xfe", "10.1.1.1:1")
        await follower.shows("/a", ["10.1.1.1:1"])
        await eventually(lambda: follower.metrics.redis.skipped == {"key": 1, "member": 1})


async def test_settings_that_are_no_text_do_not_keep_the_table_from_the_disk(
    valkey: Valkey, tmp_path: Path
) -> None:
    file = tmp_path / "table.json"
    valkey.admin.hset("slb:route:/a", b"policy", b"\xff")
    async with Follower(valkey.url, file) as follower:
        await follower.shows("/a", [])
    assert b'"/a"' in file.read_bytes()


async def test_attributes_without_a_route_are_removed_after_two_syncs_far_enough_apart(valkey: Valkey) -> None:
    admin = valkey.admin
    admin.hset("slb:upstream:10.1.1.1:1", "weight", "3")
    admin.hset("slb:upstream:10.2.2.2:2", "weight", "3")
    admin.sadd("slb_a", "10.2.2.2:2")
    async with Follower(valkey.url, watch=timing(resync=0.05, orphan_age=0.1)) as follower:
        await follower.synced()
        await eventually(lambda: not admin.exists("slb:upstream:10.1.1.1:1"))
        assert admin.exists("slb:upstream:10.2.2.2:2")


async def test_a_sync_that_fails_midway_changes_nothing(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    valkey.admin.sadd("slb_a", "10.1.1.1:1")
    async with Follower(valkey.url, watch=timing(resync=0.05)) as follower:
        await follower.synced()
        fail = ConnectionError("midway")

        async def broken(*_: object) -> None:
            raise fail

        monkeypatch.setattr("slb.control.reader._Reading.hashes", broken)
        valkey.admin.config_set("notify-keyspace-events", "")
        valkey.admin.sadd("slb_b", "10.1.1.1:1")
        await follower.up(False)
        assert set(follower.mirror.table.routes) == {"/a"}
        monkeypatch.undo()
        await follower.shows("/b", ["10.1.1.1:1"])


async def test_a_frozen_redis_is_noticed_and_followed_again_when_it_thaws(valkey: Valkey) -> None:
    valkey.admin.sadd("slb_a", "10.1.1.1:1")
    async with Follower(valkey.url, watch=timing(ping=0.1), command_deadline=0.3) as follower:
        await follower.synced()
        valkey.freeze()
        await follower.up(False)
        assert follower.members("/a") == ["10.1.1.1:1"]
        valkey.thaw()
        await follower.up(True)
        valkey.admin.sadd("slb_a", "10.2.2.2:2")
        await follower.shows("/a", ["10.1.1.1:1", "10.2.2.2:2"])


async def test_staleness_grows_only_while_redis_is_away(valkey: Valkey) -> None:
    async with Follower(valkey.url, watch=timing(ping=0.02)) as follower:
        await follower.synced()
        seen = [follower.watcher.staleness()]  # which may be next to nothing: that it is never less shows nothing

        def fell() -> bool:
            seen.append(follower.watcher.staleness())
            return seen[-1] < seen[-2]

        await eventually(fell, what="a PING makes it small again")
        valkey.kill()
        await follower.up(False)
        await eventually(lambda: follower.watcher.staleness() > 0.1)


async def test_shown_waits_for_the_mirror_and_gives_up_in_time(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        await follower.synced()
        waiting = asyncio.create_task(follower.watcher.shown(lambda mirror: "/a" in mirror.table.routes, 10))
        valkey.admin.sadd("slb_a", "10.1.1.1:1")
        assert await waiting
        assert not await follower.watcher.shown(lambda mirror: "/b" in mirror.table.routes, 0.01)


def test_keys_are_spelled_as_the_design_has_them() -> None:
    assert keys.route_key("/p1") == "slb_p1"
    assert keys.route_key("/") == "slb_"
    assert keys.path_of("slb_") == "/"
    assert keys.path_of("slb_models/llama") == "/models/llama"
    assert keys.path_of("slb:route:/a") == "/a"
    assert keys.path_of("slb_a//b") is None
    assert keys.path_of("slb_%61") is None
    assert keys.path_of("slb:generation") is None
    assert keys.member_of("slb:upstream:[::1]:80") == "[::1]:80"
    assert keys.member_of("slb:upstream:HOST:80") is None


async def test_the_names_of_jobs_are_not_read_however_many_there_are(valkey: Valkey) -> None:
    valkey.admin.mset({f"slb:{{jobs:flux}}:job:{number}": "" for number in range(3000)})
    valkey.admin.sadd("slb_p1", "1.1.1.1:1")
    connection = Connection(valkey.url, Metrics())
    try:
        found = [name async for page in scan_names(connection, keys.OURS) for name in page]
    finally:
        await connection.aclose()
    assert set(found) == {"slb_p1"}

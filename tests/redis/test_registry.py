"""What is written to Redis, and what is refused."""

import asyncio
import subprocess
import sys
import time
from typing import cast

import pytest

from slb.control.instances import InstanceInfo, Instances
from slb.control.processes import identity
from slb.control.registry import Registry
from slb.errors import RedisUnavailable, Refused
from tests.support.following import Follower, timing
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, patience, until_found


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


async def test_nobody_ever_reads_a_member_without_its_attributes(valkey: Valkey) -> None:
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


async def test_a_redis_that_takes_no_writes_is_unavailable_and_says_why(valkey: Valkey) -> None:
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


async def test_instances_are_listed_while_they_beat(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        one = Instances(follower.connection, InstanceInfo("1", name="a", address="127.0.0.1:8080"))
        two = Instances(follower.connection, InstanceInfo("2", name="b"), lifetime=0.2)
        await one.beat()
        await two.beat()
        assert [info.name for info in await one.list()] == ["a", "b"]
        assert one.count == 2
        valkey.admin.delete("slb:instance:2")
        assert await one.list() == [InstanceInfo("1", name="a", address="127.0.0.1:8080")]
        assert 0 < valkey.admin.pttl("slb:instance:1") <= 10_000
        await one.remove()
        assert await one.list() == []


async def test_a_heartbeat_outlives_an_outage(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        instances = Instances(follower.connection, InstanceInfo("1"), beat=0.05)
        beating = asyncio.create_task(instances.run())
        await follower.synced()
        valkey.kill()
        await follower.up(False)
        with pytest.raises(RedisUnavailable):
            await instances.list()
        valkey.lose_data()
        valkey.start()
        await follower.up(True)
        await until_found(instances.list)
        beating.cancel()
        await asyncio.wait([beating])


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


def an_ended_process() -> str:
    say = "from slb.control.processes import identity; print(identity())"
    return subprocess.check_output([sys.executable, "-c", say], text=True).strip()


def its_life_ends(valkey: Valkey, instance: str) -> None:
    """As 10 s after its last beat."""
    valkey.admin.delete(f"slb:instance:{instance}")
    valkey.admin.zadd("slb:instances", {instance: int(time.time() * 1000) - 1000})


def beating(follower: Follower, name: str) -> Instances:
    made = Instances(follower.connection, InstanceInfo(name, name=name))
    follower.watcher.on_instances(made.found)
    return made


async def test_a_full_sync_finds_who_is_alive_and_nobody_has_to_ask(valkey: Valkey) -> None:
    async with Follower(valkey.url, watch=timing(resync=0.05)) as follower:
        one = beating(follower, "1")
        await one.beat()
        assert one.count == 1
        await Instances(follower.connection, InstanceInfo("2", name="b", api="127.0.0.1:81")).beat()
        await eventually(lambda: one.count == 2)
        assert [info.api for info in one.known] == ["", "127.0.0.1:81"]


async def test_a_beat_takes_out_who_is_missing_for_long_and_nobody_who_may_come_back(valkey: Valkey) -> None:
    now = [0.0]
    async with Follower(valkey.url) as follower:
        one = Instances(follower.connection, InstanceInfo("1"), beat=2.0, clock=lambda: now[0])
        one.found({"1": {}, "2": {}, "3": {}})
        two = Instances(follower.connection, InstanceInfo("2"))
        seen = []
        for now[0], back in ((0.0, False), (2.0, True), (3.0, False), (4.0, False)):
            await (two.beat() if back else asyncio.sleep(0))
            await one.beat()
            seen.append([info.id for info in one.known])
        assert seen == [["1", "2", "3"]] * 3 + [["1", "2"]]
        await two.remove()
        for now[0] in (5.0, 9.0):
            await one.beat()
        assert one.count == 1


async def test_a_beat_finds_who_has_come_and_nobody_has_to_sync(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        one, two, looking = (Instances(follower.connection, InstanceInfo(name, name=name)) for name in "123")
        await one.beat()
        await two.beat()
        assert [info.id for info in two.known] == ["1", "2"], "known from its first beat on"
        await one.beat()
        assert one.known == two.known
        await looking.look()
        assert looking.known == two.known, "who only looks is not in the list"
        ends = dict(cast("list[tuple[str, float]]", valkey.admin.zrange("slb:instances", 0, -1, withscores=True)))
        assert ends.keys() == {"1", "2"}
        assert 0 < valkey.admin.pttl("slb:instance:1") <= 10_000 < valkey.admin.pttl("slb:instances") <= 70_000


async def two_instances(follower: Follower, now: list[float]) -> tuple[Instances, Instances]:
    """Both have beaten; the first, whose clock shows `now`, has for six seconds."""
    one = Instances(follower.connection, InstanceInfo("1"), beat=2.0, clock=lambda: now[0])
    two = Instances(follower.connection, InstanceInfo("2"))
    await two.beat()
    for now[0] in (0.0, 2.0, 4.0, 6.0):
        await one.beat()
    return one, two


async def test_while_redis_answers_who_leaves_is_gone_with_the_next_beat(valkey: Valkey) -> None:
    now = [0.0]
    async with Follower(valkey.url) as follower:
        one, two = await two_instances(follower, now)
        assert one.count == 2
        await two.remove()
        assert valkey.admin.zscore("slb:instances", "2") is None
        now[0] = 8.0
        await one.beat()
        assert one.count == 1


async def test_after_redis_has_lost_its_data_those_who_have_not_yet_beaten_still_count(
    valkey: Valkey,
) -> None:
    now = [0.0]
    async with Follower(valkey.url) as follower:
        one, _ = await two_instances(follower, now)
        valkey.admin.flushall()
        for now[0] in (8.0, 10.0):
            await one.beat()
            assert one.count == 2
        now[0] = 12.0
        await one.beat()
        assert one.count == 1


async def test_the_dead_are_taken_out_of_the_list_by_whoever_beats(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        one = Instances(follower.connection, InstanceInfo("1"))
        valkey.admin.zadd("slb:instances", {"killed": 1.0})
        await one.beat()
        assert one.count == 1
        assert valkey.admin.zscore("slb:instances", "killed") is None


async def test_an_instance_that_died_long_ago_is_known_by_its_identity_to_one_that_starts(valkey: Valkey) -> None:
    """Its hash has ended with its life; the fleet was away meanwhile, so no other has seen it die."""
    ended = await asyncio.to_thread(an_ended_process)
    died: list[str] = []
    async with Follower(valkey.url) as follower:
        await Instances(follower.connection, InstanceInfo("2", process=ended)).beat()
        await Instances(follower.connection, InstanceInfo("3", process=identity())).beat()
        its_life_ends(valkey, "2")
        its_life_ends(valkey, "3")
        one = Instances(follower.connection, InstanceInfo("1", process=identity()))
        one.on_death = died.extend
        await one.beat()
        assert (died, [each.id for each in one.known]) == (["2"], ["1"])
        assert valkey.admin.zrange("slb:instances", 0, -1) == ["3", "1"], "3 is only slow: it may beat again"
        assert valkey.admin.exists("slb:identity:2", "slb:identity:3") == 1
        assert 0 < valkey.admin.pttl("slb:identity:3") <= 70_000


async def test_an_instance_that_died_while_redis_was_away_is_noticed_by_those_that_knew_it(valkey: Valkey) -> None:
    ended = await asyncio.to_thread(an_ended_process)
    died: list[str] = []
    async with Follower(valkey.url) as follower:
        one = Instances(follower.connection, InstanceInfo("1", process=identity()))
        one.on_death = died.extend
        two = Instances(follower.connection, InstanceInfo("2", process=ended))
        await two.beat()
        its_life_ends(valkey, "2")
        one.found({"2": InstanceInfo("2", process=ended).as_hash()})
        await one.beat()
        assert (died, [each.id for each in one.known]) == (["2"], ["1"])


async def test_an_instance_that_has_stopped_has_not_died(valkey: Valkey) -> None:
    ended = await asyncio.to_thread(an_ended_process)
    died: list[str] = []
    async with Follower(valkey.url) as follower:
        one = Instances(follower.connection, InstanceInfo("1", process=identity()))
        one.on_death = died.extend
        two = Instances(follower.connection, InstanceInfo("2", process=ended))
        one.found({"2": InstanceInfo("2", process=ended).as_hash()})
        await two.beat()
        await two.remove()
        await one.beat()
        assert died == []
        assert not valkey.admin.exists("slb:identity:2")


async def test_one_that_gives_nothing_back_leaves_the_dead_to_those_that_do(valkey: Valkey) -> None:
    """A supervisor of workers, or a quota router, may be the first that sees it."""
    ended = await asyncio.to_thread(an_ended_process)
    died: list[str] = []
    async with Follower(valkey.url) as follower:
        supervisor, one = (
            Instances(follower.connection, InstanceInfo(name, process=identity())) for name in ("0", "1")
        )
        one.on_death = died.extend
        await Instances(follower.connection, InstanceInfo("2", process=ended)).beat()
        await supervisor.look()
        assert (list(supervisor.known), await supervisor.list()) == ([], [])
        await one.beat()
        assert died == ["2"]


async def test_who_has_died_on_this_machine_leaves_the_list_with_the_next_beat(valkey: Valkey) -> None:
    ended = await asyncio.to_thread(an_ended_process)
    died: list[str] = []
    async with Follower(valkey.url) as follower:
        one = Instances(follower.connection, InstanceInfo("1", process=identity()))
        one.on_death = died.extend
        await Instances(follower.connection, InstanceInfo("3", process=identity())).beat()
        await Instances(follower.connection, InstanceInfo("2", process=ended)).beat()
        await one.beat()
        assert ([each.id for each in one.known], died) == (["1", "3"], ["2"])
        assert valkey.admin.zscore("slb:instances", "2") is None
        assert valkey.admin.exists("slb:instance:2") == 0
        one.found({"1": {}, "2": {}, "3": {}})
        assert [each.id for each in one.known] == ["1", "3"], "read before it was taken out"
        await one.beat()
        assert died == ["2"]

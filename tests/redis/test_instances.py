"""Which instances live, and which have died: what each beat records, and finds."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest

from slb.control.instances import DRAINING, InstanceInfo, Instances
from slb.control.processes import identity
from slb.errors import RedisUnavailable
from tests.support.following import Follower
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, until_found


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


async def test_only_those_with_a_role_share_what_it_uses(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        for id_, roles in (("1", "proxy,dns"), ("2", "dns"), ("3", "jobs")):
            await Instances(follower.connection, InstanceInfo(id_, roles=roles)).beat()
        one = Instances(follower.connection, InstanceInfo("4", roles="quota"))
        await one.beat()
        assert (one.count, one.count_of(["proxy", "jobs"]), one.count_of(["quota"])) == (4, 2, 1)
        assert one.count_of(["extproc"]) == 1, "at least this one"


async def test_whether_one_with_a_role_is_on_another_host_is_known(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        await Instances(follower.connection, InstanceInfo("1", roles="proxy", host="a")).beat()
        await Instances(follower.connection, InstanceInfo("2", roles="dns", host="b")).beat()
        one = Instances(follower.connection, InstanceInfo("3", roles="proxy,jobs", host="a"))
        await one.beat()
        assert (one.is_elsewhere(["proxy"]), one.is_elsewhere(["proxy", "dns"])) == (False, True)


async def test_who_follows_states_sees_at_once_that_another_drains(valkey: Valkey) -> None:
    """Whose beat is far away; the other's state is read once and then not again, unless it tells."""
    async with Follower(valkey.url) as follower:
        one = Instances(follower.connection, InstanceInfo("1"), beat=30.0)
        other = Instances(follower.connection, InstanceInfo("2", name_server="10.0.0.1:53", dns_ttl="7"), beat=30.0)
        work = [one.run(), one.follow_states(), other.run()]
        tasks = [asyncio.create_task(each) for each in work]
        await eventually(lambda: one.longest_answer() == 8.0)
        changes: list[str] = []
        one.on_change = lambda: changes.extend(each.state for each in one.known if each.id == "2")
        other.begin_drain()
        await eventually(lambda: changes == [DRAINING])
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@pytest.mark.parametrize(
    ("written", "seconds"), [("5", 6.0), ("2.5", 3.5), ("999999", 3601.0), ("x", 0), ("-1", 0)]
)
async def test_the_ttl_that_somebody_wrote_is_read_with_care(valkey: Valkey, written: str, seconds: float) -> None:
    async with Follower(valkey.url) as follower:
        one = Instances(follower.connection, InstanceInfo("1"))
        one.known = [InstanceInfo("2", name_server="10.0.0.1:53", dns_ttl=written)]
        assert one.longest_answer() == seconds


def an_ended_process() -> str:
    code = "from slb.control.processes import identity; print(identity())"
    return subprocess.check_output([sys.executable, "-c", code], text=True).strip()


@asynccontextmanager
async def a_process() -> AsyncIterator[str]:
    """Its identity; it ends with the context."""
    code = "from slb.control.processes import identity; print(identity(), flush=True); input()"
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    yield (await process.stdout.readline()).decode().strip()
    await process.communicate(b"end")


def its_life_ends(valkey: Valkey, instance: str) -> None:
    """As 10 s after its last beat."""
    valkey.admin.delete(f"slb:instance:{instance}")
    valkey.admin.zadd("slb:instances", {instance: int(time.time() * 1000) - 1000})


async def test_a_beat_takes_out_instances_missing_for_long_and_none_that_may_come_back(valkey: Valkey) -> None:
    now = [0.0]
    async with Follower(valkey.url) as follower:
        one = Instances(follower.connection, InstanceInfo("1"), beat=2.0, clock=lambda: now[0])
        two, three = (Instances(follower.connection, InstanceInfo(name)) for name in "23")
        for each in (two, three, one):
            await each.beat()
        valkey.admin.flushall()
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


async def test_a_beat_finds_new_instances_without_a_sync(valkey: Valkey) -> None:
    async with Follower(valkey.url) as follower:
        one, two, looking = (Instances(follower.connection, InstanceInfo(name, name=name)) for name in "123")
        await one.beat()
        await two.beat()
        assert [info.id for info in two.known] == ["1", "2"], "known from its first beat on"
        await one.beat()
        assert one.known == two.known
        await looking.look()
        assert looking.known == two.known, "one that only looks is not in the list"
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


async def test_while_redis_answers_an_instance_that_leaves_is_gone_with_the_next_beat(valkey: Valkey) -> None:
    now = [0.0]
    async with Follower(valkey.url) as follower:
        one, two = await two_instances(follower, now)
        assert one.count == 2
        await two.remove()
        assert valkey.admin.zscore("slb:instances", "2") is None
        now[0] = 8.0
        await one.beat()
        assert one.count == 1


async def test_after_redis_has_lost_its_data_instances_that_have_not_yet_beaten_still_count(
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


async def test_dead_instances_are_taken_out_of_the_list_by_any_beat(valkey: Valkey) -> None:
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
        assert [each.what for each in follower.metrics.changes.take(10)] == ["died"]
        assert valkey.admin.zrange("slb:instances", 0, -1) == ["3", "1"], "3 is only slow: it may beat again"
        assert valkey.admin.exists("slb:identity:2", "slb:identity:3") == 1
        assert 0 < valkey.admin.pttl("slb:identity:3") <= 70_000


async def test_one_that_beats_no_more_is_silent_unless_it_has_left_or_died(valkey: Valkey) -> None:
    ended = await asyncio.to_thread(an_ended_process)
    async with Follower(valkey.url) as follower:
        one = Instances(follower.connection, InstanceInfo("1", process=identity()), beat=0.01)
        two = Instances(follower.connection, InstanceInfo("2", name="b", process=identity()))
        for each in (two, Instances(follower.connection, InstanceInfo("3", name="c", process=ended)), one):
            await each.beat()
        assert ([each.id for each in one.known], one.silent) == (["1", "2"], [])
        its_life_ends(valkey, "2")

        async def silent() -> Sequence[str]:
            await one.beat()
            return one.silent

        assert await until_found(silent) == ["b"]
        await two.beat()
        assert await silent() == []
        its_life_ends(valkey, "2")
        assert await until_found(silent) == ["b"]
        await two.remove()
        assert await silent() == []


async def test_an_instance_that_died_while_redis_was_away_is_noticed_by_those_that_knew_it(valkey: Valkey) -> None:
    died: list[str] = []
    async with Follower(valkey.url) as follower:
        one = Instances(follower.connection, InstanceInfo("1", process=identity()))
        one.on_death = died.extend
        async with a_process() as process:
            await Instances(follower.connection, InstanceInfo("2", process=process)).beat()
            await one.beat()
        its_life_ends(valkey, "2")
        await one.beat()
        assert (died, [each.id for each in one.known]) == (["2"], ["1"])


async def test_an_instance_that_has_stopped_has_not_died(valkey: Valkey) -> None:
    died: list[str] = []
    async with Follower(valkey.url) as follower:
        one = Instances(follower.connection, InstanceInfo("1", process=identity()))
        one.on_death = died.extend
        async with a_process() as process:
            two = Instances(follower.connection, InstanceInfo("2", process=process))
            await two.beat()
            await one.beat()
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


async def test_an_instance_that_died_on_this_machine_leaves_the_list_with_the_next_beat(valkey: Valkey) -> None:
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
        await one.beat()
        assert died == ["2"]


async def test_a_death_is_noted_by_one_of_those_that_see_it(valkey: Valkey) -> None:
    ended = await asyncio.to_thread(an_ended_process)
    async with Follower(valkey.url) as follower, Follower(valkey.url) as second:
        await Instances(follower.connection, InstanceInfo("2", name="two", process=ended)).beat()
        seeing = [
            Instances(each.connection, InstanceInfo(id_, process=identity()))
            for id_, each in (("1", follower), ("3", second))
        ]
        for each in seeing:
            each.on_death = lambda ids: None
        await asyncio.gather(*(each.beat() for each in seeing))
        noted = [*follower.metrics.changes.take(10), *second.metrics.changes.take(10)]
        assert [(each.what, each.subject) for each in noted] == [("died", "two")]

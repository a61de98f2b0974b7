"""The fleet's log of changes in a real Valkey."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from slb.control import change_log, keys
from slb.control.change_log import MOST_READ, ChangeLog
from slb.errors import RedisUnavailable
from slb.observe.changes import MOST_WAITING
from tests.redis.fleet_rig import fleet
from tests.support.acl import acl_rules
from tests.support.following import Follower
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, until


@asynccontextmanager
async def logging(url: str) -> AsyncIterator[tuple[Follower, ChangeLog]]:
    async with Follower(url) as follower:
        await follower.synced()
        log = ChangeLog(follower.connection, follower.metrics.changes, "id-1", "one")
        task = asyncio.create_task(log.run())
        yield follower, log
        task.cancel()
        await asyncio.wait([task])


async def test_what_is_noted_is_read_by_all_in_its_order(valkey: Valkey) -> None:
    async with logging(valkey.url) as (follower, log):
        follower.metrics.changes.note("registered", "10.0.0.1:80", "/p", by="ops")
        follower.metrics.changes.note("ejected", "10.0.0.1:80", "it refuses connections")
        found = await until(log.read, lambda found: len(found) == 2)
        first, second = found
        assert (first.what, first.subject, first.detail, first.by) == ("registered", "10.0.0.1:80", "/p", "ops")
        assert (first.instance, first.name) == ("id-1", "one")
        assert second.what == "ejected"
        assert await log.read(first.id) == [second]
        assert await log.read(second.id) == []
        assert await log.read("", 1) == [second]
        assert valkey.admin.pttl(keys.FLEET_CHANGES) > 0


async def test_the_log_is_bounded(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "_KEPT", 200)
    async with logging(valkey.url) as (follower, log):
        for number in range(MOST_WAITING):
            follower.metrics.changes.note("ejected", f"10.0.0.1:{number}", "x" * 10_000)
        await until(log.read, lambda found: bool(found) and found[-1].subject == f"10.0.0.1:{MOST_WAITING - 1}")
        assert valkey.admin.xlen(keys.FLEET_CHANGES) <= 200 + 100
        assert max(len(each.detail) for each in await log.read()) == 300


async def test_while_redis_is_away_the_last_changes_wait(valkey: Valkey) -> None:
    async with logging(valkey.url) as (follower, log):
        valkey.kill()
        await follower.up(False)
        for number in range(2 * MOST_WAITING):
            follower.metrics.changes.note("ejected", str(number))
        assert len(follower.metrics.changes) == MOST_WAITING
        with pytest.raises(RedisUnavailable):
            await log.read()
        valkey.start()
        await follower.up(True)
        found = await until(log.read, lambda found: bool(found) and found[-1].what == "redis_back", timeout=40)
        assert found[-2].subject == str(2 * MOST_WAITING - 1)


async def test_a_log_to_which_nothing_can_be_added_any_more_begins_anew(valkey: Valkey) -> None:
    """Anybody may add an entry with the last id there is, which looks like one of slb's own."""
    admin: Any = valkey.admin
    last = f"{2**64 - 1}-{2**64 - 1}"
    async with logging(valkey.url) as (follower, log):
        follower.metrics.changes.note("ejected", "a")
        [before] = await until(log.read, bool)
        admin.xadd(keys.FLEET_CHANGES, {"time": "1", "what": "x"}, id=last)
        assert await log.read(before.id) == []  # who reads on from the last id would never see another
        with capture_logs() as lines:
            follower.metrics.changes.note("ejected", "b")
            found = await until(partial(log.read, before.id), bool)
        assert [each.subject for each in found] == ["b"]
        assert [(each["event"], each["log_level"]) for each in lines] == [("changes_begun_anew", "warning")]
        follower.metrics.changes.note("ejected", "c")
        await until(partial(log.read, before.id), lambda found: [each.subject for each in found] == ["b", "c"])


async def test_what_others_wrote_there_is_passed_over(valkey: Valkey) -> None:
    admin: Any = valkey.admin
    for fields in ({"x": "y"}, {"time": "nan", "what": "x"}, {"time": "1", "what": "y" * 5000}, {"time": "z"}):
        admin.xadd(keys.FLEET_CHANGES, fields)
    async with logging(valkey.url) as (follower, log):
        follower.metrics.changes.note("started", "\udcff name")
        (entry,) = await until(log.read, bool)
        assert entry.subject == "\\udcff name"


async def test_what_others_wrote_hides_nothing_behind_it(valkey: Valkey) -> None:
    async with logging(valkey.url) as (follower, log):
        follower.metrics.changes.note("started", "one")
        (first,) = await until(log.read, bool)
        for _ in range(2 * MOST_READ):
            valkey.admin.xadd(keys.FLEET_CHANGES, {"x": "y"})
        assert await log.read() == [first]
        follower.metrics.changes.note("ejected", "10.0.0.1:80")
        (second,) = await until(lambda: log.read(first.id), bool)
        assert await log.read() == [first, second]
        assert await log.read("", 1) == [second]


async def test_a_key_of_another_type_is_an_outage_of_the_log_alone(valkey: Valkey) -> None:
    valkey.admin.set(keys.FLEET_CHANGES, "x")
    async with logging(valkey.url) as (follower, log):
        follower.metrics.changes.note("started", "one")
        with pytest.raises(RedisUnavailable, match="WRONGTYPE"):
            await log.read()
        valkey.admin.delete(keys.FLEET_CHANGES)
        await until(log.read, bool, timeout=30)


async def test_the_documented_rights_are_enough_for_the_view_and_the_log(valkey: Valkey) -> None:
    admin: Any = valkey.admin
    admin.execute_command("ACL", "SETUSER", "slb", "on", ">pw", *acl_rules())
    async with fleet(valkey.url.replace("://", "://slb:pw@"), "one", "other") as (one, other):
        other.follower.metrics.changes.note("started", "other")
        one.view.enter()
        await eventually(lambda: len(one.state()["instances"]) == 2)
        await eventually(lambda: bool(one.state()["changes"]))
        assert not one.view.self_shown()["alone"]


async def test_a_viewer_shows_the_last_changes(valkey: Valkey) -> None:
    async with fleet(valkey.url, "one", "other") as (one, other):
        for number in range(250):
            other.follower.metrics.changes.note("ejected", str(number))
        one.view.enter()
        await eventually(
            lambda: any(each["subject"] == "249" for each in one.state()["changes"].values()), timeout=20
        )
        other.follower.metrics.changes.note("recovered", "249")
        await eventually(lambda: any(each["what"] == "recovered" for each in one.state()["changes"].values()))
        assert len(one.state()["changes"]) <= 200

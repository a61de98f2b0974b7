"""A large table: everything arrives, and the event loop is given back between slices."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

from slb.control.disk import DiskTable, table_file
from slb.control.slices import Slices
from tests.support.following import Follower, timing
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

_ROUTES = 2000


def fill(valkey: Valkey, last: str = "9") -> None:
    with valkey.admin.pipeline(transaction=False) as pipe:
        for number in range(_ROUTES):
            members = [f"10.{number >> 8}.{number & 255}.{each}:80" for each in range(9)]
            pipe.sadd(f"slb_models/m{number}", *members, f"10.{number >> 8}.{number & 255}.{last}:80")
        pipe.execute()


async def turns_during(waited_for: asyncio.Future[bool] | asyncio.Task[bool]) -> int:
    """How often others got their turn meanwhile."""
    turns = 0
    while not waited_for.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


async def test_a_first_sync_of_thousands_of_routes_gives_way_again_and_again(valkey: Valkey) -> None:
    fill(valkey)
    async with Follower(valkey.url) as follower:
        shown = asyncio.create_task(follower.watcher.shown(lambda mirror: mirror.ready, 60))
        assert await turns_during(shown) > _ROUTES * 10 / 200
        assert len(follower.mirror.table.routes) == _ROUTES
        assert len(follower.mirror.upstreams) == _ROUTES * 10


async def test_changes_of_thousands_of_routes_arrive_by_resync_and_by_notifications(valkey: Valkey) -> None:
    fill(valkey)
    async with Follower(valkey.url, watch=timing(resync=0.3)) as follower:
        await follower.synced()
        valkey.admin.config_set("notify-keyspace-events", "")
        fill(valkey, last="10")
        await eventually(lambda: len(follower.mirror.upstreams) == _ROUTES * 11, 60)
        fill(valkey, last="11")
        await eventually(lambda: len(follower.mirror.upstreams) == _ROUTES * 12, 60)


async def test_names_are_not_looked_for_at_each_resync_where_others_have_many_keys(valkey: Valkey) -> None:
    valkey.admin.eval("for n = 1, 40000 do redis.call('SET', 'slb:{jobs:m}:job:' .. n, 'x') end", 0)
    valkey.admin.sadd("slb_known", "10.0.0.1:80")
    async with Follower(valkey.url, watch=timing(resync=0.05)) as follower:
        await follower.synced()
        await eventually(lambda: bool(valkey.admin.exists("slb:generation")))
        begun = follower.metrics.redis.full_syncs
        await eventually(lambda: follower.metrics.redis.full_syncs > begun + 2, 60)
        with valkey.admin.pipeline() as pipe:
            pipe.config_set("notify-keyspace-events", "")
            pipe.sadd("slb_known", "10.0.0.2:80")
            pipe.sadd("slb_new", "10.0.0.3:80")
            pipe.config_resetstat()
            pipe.execute()
        resynced = follower.metrics.redis.full_syncs
        await follower.shows("/known", ["10.0.0.1:80", "10.0.0.2:80"])
        await eventually(lambda: follower.metrics.redis.full_syncs > resynced + 2, 60)
        assert "cmdstat_scan" not in valkey.admin.info("commandstats")
        assert follower.members("/new") is None
        valkey.admin.client_kill_filter(_type="pubsub")
        await follower.shows("/new", ["10.0.0.3:80"])


async def test_a_large_table_goes_to_disk_and_back_unchanged(valkey: Valkey, tmp_path: Path) -> None:
    fill(valkey)
    file = table_file(tmp_path, valkey.url)
    async with Follower(valkey.url, file) as follower:
        await follower.synced()
    kept = DiskTable(file, follower.mirror).load()
    assert kept is not None
    assert kept[0].records == follower.mirror.records
    assert os.listdir(tmp_path) == [file.name]


async def test_thousands_of_lost_routes_are_written_back(valkey: Valkey) -> None:
    fill(valkey)
    async with Follower(valkey.url, watch=timing(resync=0.2)) as follower:
        await follower.synced()
        await eventually(lambda: bool(valkey.admin.exists("slb:generation")))
        valkey.admin.flushall()
        await eventually(lambda: bool(valkey.admin.exists("slb:generation")), 60)
        await eventually(lambda: not valkey.admin.exists("slb:restoring"))  # it goes last, one command later
        written = {f"slb_models/m{number}" for number in range(_ROUTES)}
        assert {*valkey.admin.scan_iter(count=1000)} - {"slb:changes"} == {"slb:generation", *written}
        assert len(follower.mirror.table.routes) == _ROUTES


async def test_a_slice_ends_when_its_time_is_used_up() -> None:
    times: Iterator[float] = iter([0.0, 0.0, 1.5, 2.5, 2.5, 3.0])
    slices = Slices(lambda: next(times), 2.0)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    seen = []
    for _ in range(4):
        await slices.rest()
        seen.append(turns)
    task.cancel()
    assert seen == [0, 0, 1, 1]

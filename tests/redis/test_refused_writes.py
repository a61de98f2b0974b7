"""A Redis that answers and refuses to write: its disk is full, its memory, or it is a replica."""

from collections.abc import Callable
from random import Random

import pytest
from pydantic import SecretStr
from redis.exceptions import ResponseError
from structlog.testing import capture_logs

from slb.config import Settings
from slb.control import keys
from slb.control.connection import connect
from slb.control.recovery import SyncTiming
from slb.control.watcher import WatchTiming
from slb.errors import RedisUnavailable
from slb.observe.metrics import Metrics
from tests.support.following import SETTLE_AT_ONCE, Follower
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

MEMBER = "10.1.1.1:1"
ORPHAN = "slb:upstream:10.9.9.9:9"


def failing_save(valkey: Valkey) -> Callable[[], object]:
    """The last save has failed: a directory stands where the file is to go."""
    (valkey.directory / "dump.rdb" / "in-the-way").mkdir(parents=True)
    admin = valkey.admin
    admin.config_set("save", "3600 1")
    admin.bgsave()

    def heal() -> None:
        (valkey.directory / "dump.rdb" / "in-the-way").rmdir()
        (valkey.directory / "dump.rdb").rmdir()
        admin.config_set("save", "")
        admin.bgsave()

    return heal


def replica_of_none(valkey: Valkey) -> Callable[[], object]:
    valkey.admin.replicaof("127.0.0.1", "1")
    return lambda: valkey.admin.replicaof("NO", "ONE")


def without_memory(valkey: Valkey) -> Callable[[], object]:
    valkey.admin.config_set("maxmemory", "1")
    return lambda: valkey.admin.config_set("maxmemory", "0")


Trouble = Callable[[Valkey], Callable[[], object]]
TROUBLES = [failing_save, replica_of_none, without_memory]


def refuses(valkey: Valkey) -> bool:
    try:
        valkey.admin.set("tried", "1")
    except ResponseError:
        return True
    return False


def eager(**more: float) -> WatchTiming:
    """Everything at short intervals, so that much can go wrong in a test's time."""
    sync = SyncTiming(SETTLE_AT_ONCE, orphan_age=0.0, refused_retry=0.05)
    return WatchTiming(resync=0.05, ping=0.05, sync=sync, **more)


async def troubled(valkey: Valkey, trouble: Trouble) -> Callable[[], object]:
    heal = trouble(valkey)
    await eventually(lambda: refuses(valkey), what="writes refused")
    return heal


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_such_a_redis_is_followed_on_one_connection_and_written_to_when_it_can_be(
    valkey: Valkey, trouble: Trouble
) -> None:
    admin = valkey.admin
    admin.sadd("slb_a", MEMBER)
    admin.hset(ORPHAN, "weight", "2")
    heal = await troubled(valkey, trouble)
    with capture_logs() as logs:
        async with Follower(valkey.url, watch=eager()) as follower:
            await follower.synced()
            await eventually(lambda: follower.metrics.redis.full_syncs > 10)
            assert follower.members("/a") == [MEMBER]
            with pytest.raises(RedisUnavailable):
                await follower.registry.register("/b", MEMBER, {})
            heal()
            await eventually(lambda: bool(admin.exists(keys.GENERATION)), what="a generation")
            await eventually(lambda: not admin.exists(ORPHAN), what="the orphan is removed")
            assert follower.metrics.redis.reconnects == 0
    events = [line["event"] for line in logs]
    assert "redis_down" not in events
    assert events.count("redis_refuses_writes") == 1


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_it_does_not_end_the_start(valkey: Valkey, trouble: Trouble) -> None:
    await troubled(valkey, trouble)
    connection = await connect(Settings(redis_url=SecretStr(valkey.url)), Metrics())
    assert connection.up
    await connection.aclose()


async def test_what_it_lost_is_served_until_it_can_be_written_back(valkey: Valkey) -> None:
    admin = valkey.admin
    admin.sadd("slb_a", MEMBER)
    async with Follower(valkey.url, watch=eager()) as follower:
        await eventually(lambda: bool(admin.exists(keys.GENERATION)))
        admin.flushall()
        heal = await troubled(valkey, without_memory)
        before = follower.metrics.redis.full_syncs
        await eventually(lambda: follower.metrics.redis.full_syncs > before + 3)
        assert follower.members("/a") == [MEMBER]
        heal()
        await eventually(lambda: admin.smembers("slb_a") == {MEMBER})
        assert follower.metrics.redis.reconnects == 0


async def test_where_no_write_can_test_whether_notifications_come_redis_is_polled(valkey: Valkey) -> None:
    valkey.admin.acl_setuser("default", enabled=True, nopass=True, commands=["-config"])
    heal = replica_of_none(valkey)
    async with Follower(valkey.url, watch=eager(canary=0.1, poll=0.05)) as follower:
        await eventually(lambda: follower.metrics.redis.polling)
        heal()
        valkey.admin.sadd("slb_a", MEMBER)
        await follower.shows("/a", [MEMBER])
        assert follower.metrics.redis.reconnects == 0


class Recorded(Random):
    """Notes the longest of each pause that is drawn."""

    def __init__(self) -> None:
        super().__init__(1)
        self.longest: list[float] = []

    def uniform(self, a: float, b: float) -> float:
        self.longest.append(b)
        return super().uniform(a, b)


@pytest.mark.parametrize(("steady", "pauses"), [(60.0, [0.0, 0.01, 0.02, 0.04, 0.08]), (0.0, [0.0] * 5)])
async def test_only_sessions_that_end_at_once_come_further_and_further_apart(
    valkey: Valkey, steady: float, pauses: list[float]
) -> None:
    rng = Recorded()
    watch = WatchTiming(first_backoff=0.01, longest_backoff=0.16, steady=steady)
    async with Follower(valkey.url, watch=watch, rng=rng) as follower:
        for ended in range(1, len(pauses) + 1):
            await follower.synced()
            valkey.admin.client_kill_filter(_type="pubsub")
            await eventually(lambda ended=ended: len(rng.longest) == ended)  # type: ignore[misc]
    assert rng.longest == pauses

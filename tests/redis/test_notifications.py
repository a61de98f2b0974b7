"""Redis that allows little: an ACL, no CONFIG, no notifications."""

import time

from structlog.testing import capture_logs

from slb.control.generation import RestoreTiming
from slb.control.instances import InstanceInfo, Instances
from slb.control.notifications import missing_flags
from tests.support.acl import acl_rules
from tests.support.following import Follower, timing
from tests.support.valkey import Valkey
from tests.support.waiting import eventually


def user(valkey: Valkey, rules: list[str], name: str = "slb") -> str:
    """Make a user with just these rules; the URL to log in with."""
    valkey.admin.execute_command("ACL", "SETUSER", name, "reset", "on", ">secret", *rules)  # type: ignore[no-untyped-call]
    return f"{valkey.url}?username={name}&password=secret"


async def test_the_documented_acl_is_enough_for_everything(valkey: Valkey) -> None:
    async with Follower(user(valkey, acl_rules()), watch=timing(resync=0.2, orphan_age=0.1, ping=0.1)) as follower:
        await follower.synced()
        assert await follower.registry.register("/a", "10.1.1.1:1", {"weight": "2"})
        await follower.registry.put_settings("/a", {"policy": "p2c", "retries": "2"})
        await follower.registry.patch_settings("/a", {"retries": None, "policy": "random"})
        await eventually(lambda: follower.members("/a") == ["10.1.1.1:1"])
        assert await follower.registry.settings("/a") == {"policy": "random"}
        instances = Instances(follower.connection, InstanceInfo("abc"))
        await instances.beat()
        assert len(await instances.list()) == 1
        await instances.remove()
        valkey.admin.flushall()
        await eventually(lambda: valkey.admin.smembers("slb_a") == {"10.1.1.1:1"}, what="written back")
        valkey.admin.hset("slb:upstream:10.8.8.8:8", "weight", "2")
        await eventually(lambda: not valkey.admin.exists("slb:upstream:10.8.8.8:8"), what="orphan removed")
        assert await follower.registry.deregister("/a", "10.1.1.1:1")
        assert await follower.registry.delete_route("/a")
        await follower.registry.reset()
        assert not follower.metrics.redis.polling
        assert follower.metrics.redis.reconnects == 0
    assert valkey.admin.acl_log() == []


async def test_another_database_needs_its_own_channels(valkey: Valkey) -> None:
    async with Follower(user(valkey, acl_rules(db=2)) + "&db=2") as follower:
        await follower.synced()
        await follower.registry.register("/a", "10.1.1.1:1", {})
        await follower.shows("/a", ["10.1.1.1:1"])


async def test_without_config_notifications_that_come_all_the_same_are_used(valkey: Valkey) -> None:
    valkey.admin.config_set("notify-keyspace-events", "AKE")
    async with Follower(user(valkey, acl_rules(config=False))) as follower:
        await follower.synced()
        valkey.admin.sadd("slb_a", "10.1.1.1:1")
        await follower.shows("/a", ["10.1.1.1:1"])
        assert not follower.metrics.redis.polling


async def test_without_config_and_notifications_redis_is_polled_and_that_is_logged_once(valkey: Valkey) -> None:
    before = time.time()
    with capture_logs() as logs:
        watch = timing(canary=0.05, poll=0.05)
        async with Follower(user(valkey, acl_rules(config=False)), watch=watch) as follower:
            await follower.synced()
            valkey.admin.sadd("slb_a", "10.1.1.1:1", "10.2.2.2:2")
            await follower.shows("/a", ["10.1.1.1:1", "10.2.2.2:2"])
            assert follower.metrics.redis.polling
            since = follower.metrics.redis.polling_since
            assert since is not None
            assert before <= since <= time.time()
            valkey.admin.srem("slb_a", "10.1.1.1:1")
            await follower.shows("/a", ["10.2.2.2:2"])
            assert follower.metrics.redis.polling_since == since, "it is the same trouble"
            valkey.admin.config_set("notify-keyspace-events", "Kgshxe")
            await eventually(lambda: not follower.metrics.redis.polling, what="notifications noticed")
            assert not follower.metrics.redis.polling_since
    assert [line["event"] for line in logs].count("no_keyspace_notifications") == 1


async def test_a_member_removed_while_polling_stays_removed_before_there_is_a_generation(valkey: Valkey) -> None:
    watch = timing(restore=RestoreTiming(settle=60.0), canary=0.05, poll=0.05)
    async with Follower(user(valkey, acl_rules(config=False)), watch=watch) as follower:
        await follower.synced()
        valkey.admin.sadd("slb_a", "10.1.1.1:1", "10.2.2.2:2")
        await follower.shows("/a", ["10.1.1.1:1", "10.2.2.2:2"])
        valkey.admin.srem("slb_a", "10.1.1.1:1")
        await follower.shows("/a", ["10.2.2.2:2"])


def test_flags_that_stand_for_others_are_understood() -> None:
    assert missing_flags("") == "Kgshxe"
    assert missing_flags("AKE") == ""
    assert missing_flags("AE") == "K"
    assert missing_flags("Kg") == "shxe"

"""A Redis Cluster: its table is read, followed and written, key by key, at the node that has each."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from slb.control import keys
from slb.control.hash_slots import SLOTS, slot_of, tags_of
from tests.support.following import Follower
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_server import BINARY
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(not BINARY, reason="no redis-server here")

PATHS = [f"/p{number}" for number in range(30)]


@pytest.fixture
def clusters() -> Iterator[Callable[..., RedisCluster]]:
    """Makes clusters: `clusters(password="x")`."""
    with ExitStack() as stack:

        def make(*options: str, **more: str) -> RedisCluster:
            cluster = RedisCluster(*options, **more)  # type: ignore[arg-type]
            stack.callback(cluster.close)
            return cluster

        yield make


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    """One for all tests that break nothing; emptied before each that asks for `emptied`."""
    made = RedisCluster()
    yield made
    made.close()


@pytest.fixture
def emptied(cluster: RedisCluster) -> RedisCluster:
    for node in cluster.primaries:
        node.admin.flushall()
        node.admin.config_set("notify-keyspace-events", "")
    return cluster


def members_in(cluster: RedisCluster, path: str) -> set[str]:
    key = keys.route_key(path)
    found: set[str] = cluster.admin_of(key).smembers(key)
    return found


async def test_routes_of_all_nodes_are_read_and_a_change_at_each_is_heard(emptied: RedisCluster) -> None:
    for path in PATHS:
        emptied.admin_of(keys.route_key(path)).sadd(keys.route_key(path), "10.1.1.1:1")
    emptied.admin_of("slb:route:/p1").hset("slb:route:/p1", "policy", "random")
    async with Follower(emptied.url) as follower:
        await follower.synced()
        assert sorted(follower.mirror.records) == sorted(PATHS)
        assert follower.mirror.records["/p1"].settings == {"policy": "random"}
        assert not follower.metrics.redis.polling
        for node in emptied.nodes:
            assert set("Kgshxe") & set(node.admin.config_get("notify-keyspace-events")["notify-keyspace-events"])
        for path in PATHS:
            emptied.admin_of(keys.route_key(path)).sadd(keys.route_key(path), "10.2.2.2:2")
        for path in PATHS:
            await follower.shows(path, ["10.1.1.1:1", "10.2.2.2:2"])
        assert not follower.metrics.redis.reconnects


async def test_what_is_written_through_slb_is_written_at_each_node_and_explained_by_the_log(
    emptied: RedisCluster,
) -> None:
    items = [(path, f"10.0.0.{number}:80", {"weight": "3"}) for number, path in enumerate(PATHS)]
    async with Follower(emptied.url) as follower, Follower(emptied.url) as other:
        await follower.synced()
        await other.synced()
        registry = follower.registry
        assert await registry.register_all(items) == [True] * len(PATHS)
        assert await registry.register_all(items) == [False] * len(PATHS)
        for path, member, _ in items:
            await other.shows(path, [member])
            assert members_in(emptied, path) == {member}
            assert emptied.admin_of(f"slb:upstream:{member}").hget(f"slb:upstream:{member}", "weight") == "3"
        await registry.put_settings("/p1", {"policy": "random", "retries": "3"})
        await registry.patch_settings("/p1", {"retries": None, "queue_limit": "7"})
        assert await registry.settings("/p1") == {"policy": "random", "queue_limit": "7"}
        assert await registry.deregister("/p2", "10.0.0.2:80")
        assert not await registry.deregister("/p2", "10.0.0.2:80")
        await other.shows("/p2", None)
        assert not emptied.admin_of("slb:upstream:10.0.0.2:80").exists("slb:upstream:10.0.0.2:80")
        assert await registry.delete_route("/p3")
        await other.shows("/p3", None)
        log = emptied.admin_of(keys.CHANGES)
        assert log.zscore(keys.CHANGES, "slb_p3 10.0.0.3:80") > log.zscore(keys.CHANGES, "slb_p1 10.0.0.1:80")
        await eventually(lambda: not other.changes.waiting)
        assert other.changes.history.revision("slb_p3 10.0.0.3:80") == log.zscore(
            keys.CHANGES, "slb_p3 10.0.0.3:80"
        )


@pytest.mark.parametrize("how", ["kill", "freeze"])
async def test_a_primary_that_is_replaced_is_followed_and_written_to(
    clusters: Callable[..., RedisCluster], how: str
) -> None:
    cluster = clusters()
    for path in PATHS:
        cluster.admin_of(keys.route_key(path)).sadd(keys.route_key(path), "10.1.1.1:1")
    async with Follower(cluster.url) as follower:
        await follower.synced()
        old = cluster.primary_of(keys.route_key("/p1"))
        await asyncio.to_thread(getattr(old, how))
        await follower.up(False)
        assert sorted(follower.mirror.records) == sorted(PATHS)
        await eventually(lambda: cluster.has_replaced(old), 20, "another primary")
        for path in PATHS:
            cluster.admin_of(keys.route_key(path)).sadd(keys.route_key(path), "10.2.2.2:2")
        for path in PATHS:
            await follower.shows(path, ["10.1.1.1:1", "10.2.2.2:2"])
        await follower.synced()
        await asyncio.to_thread(old.mend)
        assert await follower.registry.register("/p1", "10.3.3.3:3", {})
        assert "10.3.3.3:3" in members_in(cluster, "/p1")


def test_slots_are_those_of_redis(cluster: RedisCluster) -> None:
    for key in ("slb_", "slb:{/p}:inflight", "a{}b", "{}{x}", "a{b", "{{x}}", "é", "slb:generation:{1}"):
        assert slot_of(key) == cluster.nodes[0].admin.cluster("keyslot", key)
    parts = [slot_of(f"{{{tag}}}") * 16 // SLOTS for tag in tags_of(16)]
    assert parts == list(range(16))

"""A Redis Cluster: its table is read, followed and written, key by key, at the node that has each."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from slb.control import keys
from slb.control.connection import Connection
from slb.control.demand import Demand, Demands
from slb.control.discovered import Fenced, Term
from slb.control.hash_slots import SLOTS, slot_of, tags_of
from slb.control.instances import InstanceInfo, Instances
from slb.control.leases import Leases
from slb.control.registry import Registry
from slb.discovery.found import Member
from slb.errors import RedisUnavailable, Refused
from slb.observe.metrics import Metrics
from tests.redis.discovery_rig import Told, instance
from tests.redis.fleet_rig import fleet
from tests.support.acl import acl_rules
from tests.support.following import Follower
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_server import BINARY
from tests.support.waiting import eventually, until

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


@pytest.mark.parametrize("ttls", [None, [60.0]])
async def test_whether_an_attribute_has_another_value_is_said_once(
    emptied: RedisCluster, ttls: list[float] | None
) -> None:
    async with Follower(emptied.url) as follower:
        await follower.synced()

        async def differing(**attributes: str) -> set[str]:
            found = await follower.registry.register_and_compare([("/p1", "10.1.1.1:1", attributes)], ttls)
            return found[1]

        assert await differing(weight="2") == {"10.1.1.1:1"}
        assert await differing(weight="2") == set()
        assert await differing(weight="3") == {"10.1.1.1:1"}
        assert await differing(weight="3") == set()
        assert await differing() == set()


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


async def test_discovery_writes_what_it_owns_and_only_that(emptied: RedisCluster) -> None:
    source, a, b, c = Told(), "10.1.1.1:1", "10.2.2.2:2", "10.3.3.3:3"
    async with instance(emptied, source) as one:
        await one.follower.registry.register("/a", a, {"weight": "2"})
        await source.say({a: Member(), b: Member(zone="z"), c: Member()})
        await one.follower.shows("/a", [a, b, c])
        assert one.follower.mirror.upstreams[b].spec.zone == "z"
        await one.follower.registry.register("/a", b, {"weight": "2"})
        origins = await one.follower.registry.origins({"/a": [a, b, c], "/b": [a]})
        assert origins == {"/a": {a: "static", b: "static", c: "discovered"}, "/b": {a: "static"}}
        await source.say({a: Member(), b: Member(), c: Member(is_draining=True)})
        await eventually(lambda: one.follower.mirror.upstreams[c].spec.drain)
        await source.say([], is_gone=True)
        await one.follower.shows("/a", [a, b])
        key = keys.upstream_key(c)
        await eventually(lambda: not emptied.admin_of(key).exists(key))
        await one.stop()
        with pytest.raises(Fenced):
            await one.discovered.write(Term("/a", source.name, 5), {}, {c: {"zone": "z"}})
        assert members_in(emptied, "/a") == {a, b}
        assert not emptied.admin_of(key).exists(key)


async def test_a_node_that_lost_its_data_gets_it_back(emptied: RedisCluster) -> None:
    """The others have theirs, so the routes that are missing were not removed."""
    async with Follower(emptied.url) as follower:
        await follower.synced()
        for path in PATHS:
            await follower.registry.register(path, "10.1.1.1:1", {})
            await follower.registry.patch_settings(path, {"policy": "random"})
        generation = keys.generation_keys(of_cluster=True)
        await eventually(lambda: all(emptied.admin_of(each).exists(each) for each in generation))
        emptied.primary_of(keys.route_key("/p1")).admin.flushall()
        await eventually(lambda: all(emptied.admin_of(each).exists(each) for each in generation), 20)
        for path in PATHS:
            assert members_in(emptied, path) == {"10.1.1.1:1"}
            assert emptied.admin_of(keys.settings_key(path)).hgetall(keys.settings_key(path)) == {
                "policy": "random"
            }
            assert follower.members(path) == ["10.1.1.1:1"]


async def test_a_registration_with_a_lease_ends_unless_it_is_renewed(emptied: RedisCluster) -> None:
    async with Follower(emptied.url) as follower:
        await follower.synced()
        items = [("/p1", "10.1.1.1:1", {"weight": "2"}), ("/p2", "10.2.2.2:2", {})]
        leases = Leases(follower.connection, follower.mirror, follower.metrics, follower.watcher.on_written)
        await leases.expire()
        assert await follower.registry.register_all(items, [1.5, 60.0]) == [True, True]
        assert await follower.registry.register_all(items, [1.5, 60.0]) == [False, False]
        left = await follower.registry.leases([(path, member) for path, member, _ in items])
        assert left is not None
        assert [each is not None for each in left] == [True, True]

        async def has_ended() -> bool:
            await asyncio.sleep(0.2)
            return bool(await leases.expire())

        await until(has_ended, bool, what="an expired lease")
        assert not members_in(emptied, "/p1")
        assert members_in(emptied, "/p2") == {"10.2.2.2:2"}
        await follower.shows("/p1", None)
        assert not emptied.admin_of("slb:upstream:10.1.1.1:1").exists("slb:upstream:10.1.1.1:1")


async def test_attributes_of_a_member_stay_where_it_has_come_to_a_route_that_is_not_shown_yet(
    emptied: RedisCluster,
) -> None:
    member = "10.1.1.1:1"
    async with Follower(emptied.url) as behind:
        await behind.synced()
        await behind.registry.register("/p1", member, {"slots": "2"})
        await behind.shows("/p1", [member])
        await eventually(lambda: behind.mirror.shown_to > 0)
    connection = Connection(emptied.url, Metrics())
    await Registry(connection).register("/p2", member, {"slots": "8"})
    key = keys.upstream_key(member)
    await Registry(connection, behind.mirror).deregister("/p1", member)
    assert emptied.admin_of(key).hget(key, "slots") == "8"
    await Registry(connection, behind.mirror).deregister_all([("/p1", member), ("/p2", member)])
    assert not emptied.admin_of(key).exists(key)
    await connection.aclose()


async def test_instances_are_listed_and_leave(emptied: RedisCluster) -> None:
    connections = [Connection(emptied.url, Metrics()) for _ in range(2)]
    one, other = (
        Instances(connection, InstanceInfo(name, name=name))
        for connection, name in zip(connections, "ab", strict=True)
    )
    await one.beat()
    await other.beat()
    assert [each.id for each in await one.list()] == ["a", "b"]
    await other.remove()
    assert [each.id for each in await one.list()] == ["a"]
    for connection in connections:
        await connection.aclose()


async def test_what_is_asked_of_a_pool_is_read_at_its_node(emptied: RedisCluster) -> None:
    connection = Connection(emptied.url, Metrics())
    try:
        for number, path in enumerate(PATHS):
            named = dict(zip(keys.POOL_KEYS, keys.pool_keys(path), strict=True))
            admin = emptied.admin_of(named["inflight"])
            admin.zadd(named["inflight"], {"10.0.0.1:80": number, "10.0.0.2:80": 1})
            admin.hset(named["queue:tickets"], mapping={"i/1": "[]", "i/2": "[]"})
            admin.zadd(named["queue:class:"] + "jobs", {"i/1": 1})
        demands = Demands(connection)
        found = [await demands.of(path) for path in PATHS]
        assert found == [Demand(number + 1, 2, 1) for number in range(len(PATHS))]
    finally:
        await connection.aclose()


async def test_reset_empties_all_nodes(emptied: RedisCluster) -> None:
    async with Follower(emptied.url) as follower:
        await follower.synced()
        for path in PATHS:
            await follower.registry.register(path, "10.1.1.1:1", {"weight": "3"})
        await eventually(lambda: len(follower.mirror.records) == len(PATHS))
        assert await follower.registry.reset() == len(PATHS)
        await eventually(lambda: not follower.mirror.records)
        assert not any(node.admin.keys("slb_*") for node in emptied.primaries)


async def test_a_key_of_another_type_is_named_and_nothing_is_written(emptied: RedisCluster) -> None:
    emptied.admin_of("slb_p1").set("slb_p1", "text")
    async with Follower(emptied.url) as follower:
        await follower.synced()
        with pytest.raises(Refused, match="holds a string"):
            await follower.registry.register("/p1", "10.1.1.1:1", {})


async def test_the_documented_rights_are_enough(emptied: RedisCluster) -> None:
    for node in emptied.nodes:
        node.admin.execute_command("ACL", "SETUSER", "slb", "on", ">pw", *acl_rules())
    async with Follower(emptied.url.replace("://", "://slb:pw@")) as follower:
        await follower.synced()
        assert not follower.metrics.redis.polling
        assert await follower.registry.register_all([("/p1", "10.1.1.1:1", {"weight": "3"})], [60.0]) == [True]
        await follower.registry.put_settings("/p1", {"policy": "random"})
        await follower.shows("/p1", ["10.1.1.1:1"])
        assert await follower.registry.delete_route("/p1")
    for node in emptied.nodes:
        node.admin.execute_command("ACL", "DELUSER", "slb")


async def test_a_slot_that_moves_is_followed(clusters: Callable[..., RedisCluster]) -> None:
    cluster = clusters()
    key = keys.route_key("/p1")
    source, target = (
        cluster.primary_of(key),
        next(each for each in cluster.primaries if each is not cluster.primary_of(key)),
    )
    async with Follower(cluster.url) as follower:
        await follower.synced()
        slot, ids = slot_of(key), [each.admin.cluster("myid") for each in (source, target)]
        target.admin.cluster("setslot", slot, "importing", ids[0])
        source.admin.cluster("setslot", slot, "migrating", ids[1])
        for node in (target, source, *cluster.primaries):
            node.admin.cluster("setslot", slot, "node", ids[1])

        async def registered() -> bool:
            try:
                return await follower.registry.register("/p1", "10.1.1.1:1", {})
            except RedisUnavailable:
                return False

        await until(registered, bool, what="a write at the new node")
        assert target.admin.smembers(key) == {"10.1.1.1:1"}
        await follower.shows("/p1", ["10.1.1.1:1"])
        target.admin.sadd(key, "10.2.2.2:2")
        await follower.shows("/p1", ["10.1.1.1:1", "10.2.2.2:2"])


@pytest.mark.parametrize("names", [keys.pool_keys("/p{1}"), keys.quota_keys(), keys.job_keys("flux")])
def test_all_keys_of_a_script_are_in_one_slot(names: list[str]) -> None:
    assert len({slot_of(name + suffix) for name in names for suffix in ("", "more", "{x}")}) == 1


async def test_the_view_of_the_fleet_and_its_log_go_over_a_cluster(emptied: RedisCluster) -> None:
    async with fleet(emptied.url, "one", "other") as (one, other):
        other.follower.metrics.changes.note("drained", "10.0.0.1:80")
        one.view.enter()
        await eventually(lambda: len(one.state()["instances"]) == 2)
        await eventually(lambda: one.state()["instances"]["id-other"]["silent_for"] is not None)
        await eventually(lambda: "drained" in [each["what"] for each in one.state()["changes"].values()])
        assert not one.view.self_shown()["alone"]

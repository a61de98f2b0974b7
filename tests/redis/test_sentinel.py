"""A Redis behind Sentinels: which server is found, and what happens when another becomes the master."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pydantic import SecretStr
from redis.exceptions import ConnectionError as RedisConnectionError

from bench.ports import free_port
from slb.config import Settings
from slb.control.connection import Connection, connect
from slb.control.subscription import Subscription
from slb.errors import RedisRefused, RedisUnavailable
from slb.observe.metrics import Metrics
from tests.support.acl import SENTINEL_RULES, acl_rules
from tests.support.following import Follower
from tests.support.redis_nodes import HOST, RedisNode, closing
from tests.support.redis_server import BINARY
from tests.support.redis_trio import SERVICE, Trio
from tests.support.waiting import eventually, until

pytestmark = pytest.mark.skipif(not BINARY, reason="no redis-server here")

Maker = Callable[..., RedisNode]


@pytest.fixture
def trios() -> Iterator[Callable[..., Trio]]:
    """Makes trios: `trios(password="x")`."""
    with ExitStack() as stack:

        def make(**more: str) -> Trio:
            trio = Trio(**more)  # type: ignore[arg-type]
            stack.callback(trio.close)
            return trio

        yield make


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Maker]:
    """Makes single servers, each with a folder of its own."""
    with ExitStack() as stack:

        def make(*words: str, **more: object) -> RedisNode:
            port = free_port()
            return closing(stack, RedisNode(tmp_path / str(port), port, *words, **more))  # type: ignore[arg-type]

        yield make


@pytest.fixture
def sentinel(node: Maker, tmp_path: Path) -> Maker:
    """Makes single Sentinels that name `master`, and agree with nobody."""

    def make(master: RedisNode, *lines: str, **more: str) -> RedisNode:
        file = tmp_path / f"sentinel-{free_port()}.conf"
        file.write_text("".join(f"{line}\n" for line in (_monitor(master), *lines)))
        return node("--sentinel", config=file, **more)

    return make


def _monitor(master: RedisNode) -> str:
    return f"sentinel monitor {SERVICE} {HOST} {master.port} 9"


def name_instead(sentinel: RedisNode, master: RedisNode) -> None:
    """From now on the Sentinel names another master."""
    sentinel.admin.execute_command("SENTINEL", "REMOVE", SERVICE)
    sentinel.admin.execute_command("SENTINEL", "MONITOR", SERVICE, HOST, master.port, 9)


def url_of(*sentinels: RedisNode, service: str = SERVICE) -> str:
    return f"redis+sentinel://{','.join(each.address for each in sentinels)}/{service}"


async def opened(url: str) -> Connection:
    return await connect(Settings(redis_url=SecretStr(url)), Metrics())


@pytest.mark.parametrize("how", ["kill", "freeze"])
async def test_the_server_that_takes_over_is_followed_and_written_to(trios: Callable[..., Trio], how: str) -> None:
    trio = trios()
    old = trio.master
    trio.admin.sadd("slb_a", "10.1.1.1:1")
    async with Follower(trio.url) as follower:
        await follower.shows("/a", ["10.1.1.1:1"])
        await follower.synced()
        await asyncio.to_thread(getattr(old, how))
        await follower.up(False)
        assert follower.members("/a") == ["10.1.1.1:1"]
        await eventually(lambda: trio.has_replaced(old), what="another master")
        trio.admin.sadd("slb_a", "10.2.2.2:2")
        await follower.shows("/a", ["10.1.1.1:1", "10.2.2.2:2"])
        await follower.synced()
        await asyncio.to_thread(old.mend)  # it takes itself for the master yet
        assert await follower.registry.register("/a", "10.3.3.3:3", {})
        assert trio.admin.sismember("slb_a", "10.3.3.3:3")
        assert not old.admin.sismember("slb_a", "10.3.3.3:3") or old.info("replication")["role"] == "slave"


async def test_a_failover_that_was_asked_for_is_followed(trios: Callable[..., Trio]) -> None:
    trio = trios(password="data", sentinel_password="own")
    old = trio.master
    async with Follower(trio.url) as follower:
        await follower.synced()
        trio.sentinels[0].admin.execute_command("SENTINEL", "FAILOVER", SERVICE)
        await eventually(lambda: trio.has_replaced(old), what="another master")
        trio.admin.sadd("slb_a", "10.1.1.1:1")
        await follower.shows("/a", ["10.1.1.1:1"])


async def test_once_another_master_is_named_nothing_goes_to_the_one_before(node: Maker, sentinel: Maker) -> None:
    """As with one that stood still for so short a time that no connection ended: it takes writes yet."""
    old, new = node(), node()
    named = sentinel(old)
    connection = await opened(url_of(named))
    async with Subscription(connection, ["channel"]) as subscription:
        listening = asyncio.create_task(subscription.listen(lambda *_: None))
        name_instead(named, new)
        await connection.look()
        await eventually(listening.done, what="the end of a subscription at the old master")
        assert isinstance(listening.exception(), RedisConnectionError)
    await connection.client.set("slb:generation", "x")
    assert new.admin.get("slb:generation") == "x"
    assert not old.admin.exists("slb:generation")
    await connection.aclose()


async def test_a_server_that_is_no_master_is_not_used_and_another_sentinel_is_asked(
    node: Maker, sentinel: Maker
) -> None:
    master = node()
    replica = node("--replicaof", HOST, str(master.port))
    await eventually(lambda: replica.info("replication")["role"] == "slave", what="a replica")
    astray = sentinel(replica)
    connection = await opened(url_of(astray))
    assert not connection.up
    await connection.aclose()
    connection = await opened(url_of(sentinel(replica), sentinel(master)))

    async def written() -> bool:
        try:
            async with connection.answering() as redis:
                return bool(await redis.set("slb:generation", "x"))
        except RedisUnavailable:
            return False

    await until(written, bool, what="the master found")
    assert master.admin.get("slb:generation") == "x"
    await connection.aclose()


@pytest.mark.parametrize("how", ["kill", "freeze"])
async def test_a_sentinel_that_does_not_answer_is_passed_over(node: Maker, sentinel: Maker, how: str) -> None:
    master = node()
    silent, other = sentinel(master), sentinel(master)
    getattr(silent, how)()
    connection = await opened(url_of(silent, other))
    assert connection.up
    await connection.aclose()


async def test_sentinels_that_know_no_such_master_are_asked_again(node: Maker, sentinel: Maker) -> None:
    """They may not have been told yet."""
    master = node()
    named = sentinel(master)
    connection = await opened(url_of(named, service="another"))
    assert not connection.up
    with pytest.raises(RedisUnavailable, match="know no master named another") as caught:
        async with connection.answering() as redis:
            await redis.get("slb:generation")
    assert not caught.value.reached
    named.admin.execute_command("SENTINEL", "MONITOR", "another", HOST, master.port, 9)
    await connection.probe()
    await eventually(lambda: connection.up, what="the master found")
    await connection.aclose()


async def test_a_password_that_all_sentinels_refuse_ends_the_start(node: Maker, sentinel: Maker) -> None:
    asking = sentinel(node(), "requirepass right", password="right")
    url = url_of(asking)
    with pytest.raises(RedisRefused, match="refused") as caught:
        await opened(f"{url}?sentinel_password=hunter2")
    assert "hunter2" not in str(caught.value)
    connection = await opened(f"{url}?sentinel_password=right")
    assert connection.up
    await connection.aclose()


async def test_the_documented_rights_are_enough_at_a_sentinel_and_at_the_master(
    node: Maker, sentinel: Maker
) -> None:
    master = node()
    master.admin.execute_command("ACL", "SETUSER", "slb", "on", ">pw", *acl_rules())
    asked = sentinel(master, f"user slb on >own {' '.join(SENTINEL_RULES)}")
    url = url_of(asked).replace("://", "://slb:pw@")
    async with Follower(f"{url}?sentinel_username=slb&sentinel_password=own") as follower:
        await follower.synced()
        assert await follower.registry.register("/a", "10.1.1.1:1", {})
        await follower.shows("/a", ["10.1.1.1:1"])


async def test_a_password_that_the_master_refuses_ends_the_start(node: Maker, sentinel: Maker) -> None:
    named = sentinel(node("--requirepass", "right", password="right"))
    with pytest.raises(RedisRefused, match="refused"):
        await opened(url_of(named).replace("://", "://:hunter2@"))
    connection = await opened(url_of(named).replace("://", "://:right@"))
    assert connection.up
    await connection.aclose()


async def test_a_server_that_became_a_replica_is_left_where_its_name_leads_to_another(
    node: Maker, tmp_path: Path
) -> None:
    """As managed services have it: one name, of whichever server is the master; connections to others stay."""
    name = tmp_path / "name"
    first = node("--unixsocket", str(tmp_path / "first"))
    second = node("--unixsocket", str(tmp_path / "second"), "--replicaof", HOST, str(first.port))
    await eventually(lambda: second.info("replication").get("master_link_status") == "up", what="a replica")
    name.symlink_to(tmp_path / "first")
    async with Follower(f"unix://{name}") as follower:
        await follower.synced()
        name.unlink()
        name.symlink_to(tmp_path / "second")
        second.admin.replicaof("NO", "ONE")
        first.admin.replicaof(HOST, second.port)

        async def registered() -> bool:
            try:
                return await follower.registry.register("/a", "10.1.1.1:1", {})
            except RedisUnavailable:
                return False

        await until(registered, bool, what="a write at the new master")
        assert second.admin.smembers("slb_a") == {"10.1.1.1:1"}
        first.admin.replicaof("NO", "ONE")  # what is written to the second is not heard of here any more
        await eventually(lambda: bool(second.admin.pubsub_numpat()), what="a subscription at the new master")
        await follower.synced()
        second.admin.sadd("slb_a", "10.2.2.2:2")
        await follower.shows("/a", ["10.1.1.1:1", "10.2.2.2:2"])

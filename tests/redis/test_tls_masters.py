"""Redis that fails over and speaks TLS: Sentinels and servers, or the nodes of a cluster, with one authority."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest
from redis.exceptions import RedisError

from slb.control import keys
from slb.control.connection import Connection
from slb.observe.metrics import Metrics
from tests.support.certificates import Authority
from tests.support.following import Follower
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_server import BINARY
from tests.support.redis_trio import Trio
from tests.support.waiting import eventually, until

pytestmark = pytest.mark.skipif(not BINARY, reason="no redis-server here")


@pytest.mark.parametrize("kind", [Trio, RedisCluster])
async def test_a_master_that_is_killed_is_replaced_over_tls(
    tmp_path: Path, kind: type[Trio | RedisCluster]
) -> None:
    key = keys.route_key("/a")
    with closing(kind(password="secret", authority=Authority(tmp_path))) as redis:
        async with Follower(redis.url) as follower:
            await follower.synced()
            assert await follower.registry.register("/a", "10.1.1.1:1", {})
            old = redis.primary_of(key)
            await asyncio.to_thread(old.kill)
            await eventually(lambda: redis.has_replaced(old), 20, "another master")
            redis.admin_of(key).sadd(key, "10.2.2.2:2")
            await follower.shows("/a", ["10.1.1.1:1", "10.2.2.2:2"])
            await follower.synced()
            assert await follower.registry.register("/a", "10.3.3.3:3", {})
            assert redis.admin_of(key).sismember(key, "10.3.3.3:3")


@pytest.mark.parametrize("kind", [Trio, RedisCluster])
async def test_servers_of_another_authority_are_not_believed(
    tmp_path: Path, kind: type[Trio | RedisCluster]
) -> None:
    ours, others = (tmp_path / name for name in ("ours", "others"))
    for folder in (ours, others):
        folder.mkdir()
    with closing(kind(authority=Authority(others))) as redis:
        connection = Connection(redis.url.replace(str(others), str(Authority(ours).file.parent)), Metrics())

        async def refusal() -> str:
            with pytest.raises((RedisError, OSError)) as refused:
                await connection.client.get("slb:generation")
            return str(refused.value).lower()

        await until(refusal, lambda said: "certificate" in said)  # on a busy machine it may be late once
        await connection.aclose()

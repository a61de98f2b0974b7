"""Real instances under traffic, on a Redis whose master is killed, or frozen until another has taken over."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from random import Random

import pytest

from tests.chaos.checker import Checker
from tests.chaos.cluster import Cluster, Instance
from tests.chaos.history import History
from tests.chaos.upstream import Leases, Upstream
from tests.process.commands import Commands
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_server import BINARY
from tests.support.redis_trio import Trio
from tests.support.waiting import eventually, patience, until

pytestmark = pytest.mark.skipif(not BINARY, reason="no redis-server here")

UPSTREAMS, INSTANCES, CLIENTS, PLAIN_CLIENTS = 3, 2, 20, 4
SERVICE_SECONDS = 0.05
SLACK, PATIENCE = 0.5, 4.0
PLAIN = "/plain"
BY_HAND = 8


class Plain:
    """Clients of a route without a cap: whatever becomes of Redis, each is answered."""

    def __init__(self, slb: Commands, instances: list[Instance]) -> None:
        self._slb = slb
        self._urls = [each.url.removesuffix("/p") + PLAIN for each in instances]
        self.answered = 0
        self.failed: list[tuple[int, str]] = []

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        """While this lasts they ask."""
        tasks = [asyncio.create_task(self._ask(url)) for url in self._urls for _ in range(PLAIN_CLIENTS)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, url: str) -> None:
        while True:
            status, text = await self._slb.get(url)
            self.answered += status == 200
            if status != 200:
                self.failed.append((status, text))
            await asyncio.sleep(0.005)


class Lab:
    """The instances, their Redis, and who asks them."""

    def __init__(self, slb: Commands, redis: Trio | RedisCluster, cluster: Cluster, plain: Plain) -> None:
        self.slb = slb
        self.redis = redis
        self.cluster = cluster
        self.plain = plain

    async def served_everywhere(self, path: str, member: str) -> None:
        """Every instance has the member in the route, within a second."""
        for instance in self.cluster.alive:

            async def look(api: str = instance.api) -> bool:
                status, text = await self.slb.get(f"{api}/routes{path}")
                return status == 200 and member in text

            await until(look, bool, 1.0, f"{path} at {instance.name}")


@asynccontextmanager
async def lab_on(redis: Trio | RedisCluster, home: Path) -> AsyncIterator[Lab]:
    history = History(time.time)
    leases = Leases(history)
    slb = Commands(home)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(slb.close)
        made = [Upstream(history, leases, SERVICE_SECONDS) for _ in range(UPSTREAMS)]
        upstreams = [await stack.enter_async_context(each.serving()) for each in made]
        free = [(await slb.upstream(name, "--service-time", "0s"))[1] for name in ("a", "b")]
        cluster = Cluster(slb, redis, history, leases, upstreams)
        cluster.register()
        key = f"slb_{PLAIN[1:]}"
        redis.admin_of(key).sadd(key, *free)
        for _ in range(INSTANCES):
            await cluster.start()
        yield Lab(slb, redis, cluster, Plain(slb, cluster.alive))


@pytest.mark.parametrize("how", ["kill", "freeze"])
@pytest.mark.parametrize("kind", [Trio, RedisCluster])
async def test_no_plain_request_fails_and_caps_hold_again_when_a_master_is_replaced(
    tmp_path: Path, kind: type[Trio | RedisCluster], how: str, request: pytest.FixtureRequest
) -> None:
    rng = Random(int(request.config.getoption("randomly_seed", 4)))
    with closing(kind()) as redis:
        async with lab_on(redis, tmp_path) as lab:
            await take_away_a_master(lab, how, rng)


async def take_away_a_master(lab: Lab, how: str, rng: Random) -> None:
    cluster, plain = lab.cluster, lab.plain
    watching = asyncio.create_task(cluster.watch())
    async with plain.asking(), cluster.clients(CLIENTS, Random(rng.random())):
        await asyncio.sleep(1)
        old = rng.choice(lab.redis.primaries)
        async with cluster.redis_trouble():
            await asyncio.to_thread(getattr(old, how))
            await eventually(lambda: lab.redis.has_replaced(old), 20, "another master")
            for number in range(BY_HAND):  # some at each primary
                key = f"slb_by-hand-{number}"
                lab.redis.admin_of(key).sadd(key, "10.1.1.1:1")
                await lab.served_everywhere(f"/by-hand-{number}", "10.1.1.1:1")
            await asyncio.to_thread(old.mend)
        await asyncio.sleep(patience(2))
    await eventually(lambda: not cluster.remaining(), 20, "something is left in Redis")
    watching.cancel()
    await asyncio.wait([watching])
    assert not plain.failed, plain.failed[:3]
    assert not cluster.failures, cluster.failures[:3]
    cluster.note_local_turns(SLACK)
    capacities = {"/p": dict.fromkeys(cluster.members, 1)}
    verdict = Checker(cluster.history, capacities, SLACK, PATIENCE).check()
    assert not verdict.violations, verdict
    assert verdict.strict > 50

"""Jobs that were acknowledged are there when another server has taken the master's place."""

import asyncio
from collections.abc import Iterator
from contextlib import closing

import pytest

from slb.control import keys
from tests.process.commands import Commands, Serving
from tests.process.dispatchers import MODEL, Dispatchers
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_server import BINARY
from tests.support.redis_trio import Trio
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(not BINARY, reason="no redis-server here")


@pytest.fixture(params=[Trio, RedisCluster])
def redis(request: pytest.FixtureRequest) -> Iterator[Trio | RedisCluster]:
    with closing(request.param()) as made:
        yield made


class Submitters:
    """One job after another; `taken`: those that were acknowledged."""

    def __init__(self, slb: Commands, at: Serving) -> None:
        self._slb = slb
        self._at = at
        self._count = 0
        self.taken: list[str] = []

    async def run(self) -> None:
        while True:
            self._count += 1
            body = {"model": MODEL, "payload": "x", "job_id": f"job{self._count}"}
            async with self._slb.session.post(f"{self._at.api}/queue/submit", json=body) as reply:
                if reply.status == 202:
                    self.taken.append(body["job_id"])
                await asyncio.sleep(0 if reply.status == 202 else 0.05)


@pytest.mark.parametrize("how", ["kill", "freeze"])
async def test_no_job_is_lost_that_a_replica_was_known_to_have(
    slb: Commands, redis: Trio | RedisCluster, how: str
) -> None:
    jobs = Dispatchers(slb, redis)
    needs_replica = {"SLB_JOBS_DURABILITY": "replica"}
    serving = await slb.until_ready(await slb.serve("--roles", "proxy,jobs", redis=redis.url, env=needs_replica))
    await jobs.ask("PUT", f"{serving.api}/admin/model-configs/{MODEL}", {})
    submitters = Submitters(slb, serving)
    running = [asyncio.create_task(submitters.run()) for _ in range(8)]
    await eventually(lambda: len(submitters.taken) > 200, what="jobs taken")
    old = redis.primary_of(keys.job_keys(MODEL)[0])
    await asyncio.to_thread(getattr(old, how))
    await eventually(lambda: redis.has_replaced(old), 20, "another master")
    await asyncio.to_thread(old.mend)  # a cluster's new primary has no other replica
    before = len(submitters.taken)
    await eventually(lambda: len(submitters.taken) > before + 100, 20, "jobs taken again")
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    there = {id_: (await jobs.job(serving, id_))["status"] for id_ in submitters.taken}
    assert set(there.values()) == {"queued"}

"""A run with kills, freezes, clients that leave and a Redis that restarts; and what the checker finds."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest

from tests.chaos.checker import Checker
from tests.chaos.cluster import Cluster
from tests.chaos.history import History
from tests.chaos.long_run import Found, Plan, Run, lab_of
from tests.chaos.upstream import Leases, Upstream
from tests.chaos.watchdog import Watchdog
from tests.process.commands import Commands
from tests.support.redis_server import BINARY
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

UPSTREAMS = 4
CLIENTS = 60
SERVICE_TIME = 0.06
SLACK = 0.5
PATIENCE = 4.0
PAST_THE_LEASE = 12.0


@pytest.fixture
async def cluster(tmp_path: Path, valkey: Valkey) -> AsyncIterator[Cluster]:
    """Three instances, and upstreams of one slot each."""
    history = History(time.time)
    leases = Leases(history)
    slb = Commands(tmp_path)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(slb.close)
        made = [Upstream(history, leases, SERVICE_TIME) for _ in range(UPSTREAMS)]
        upstreams = [await stack.enter_async_context(each.serving()) for each in made]
        cluster = Cluster(slb, valkey, history, leases, upstreams)
        cluster.register()
        for _ in range(3):
            await cluster.start()
        yield cluster


async def test_slots_are_given_out_rightly_whatever_breaks(
    cluster: Cluster, valkey: Valkey, request: pytest.FixtureRequest
) -> None:
    seed = int(request.config.getoption("randomly_seed", 4))
    rng = Random(seed)
    troubles = [freeze_one_past_its_lease, restart_redis, pause_redis, lose_redis]
    rng.shuffle(troubles)
    print(f"--randomly-seed={seed}:", *(trouble.__name__ for trouble in troubles))
    watching = asyncio.create_task(cluster.watch())
    async with cluster.clients(CLIENTS, Random(rng.random())):
        await asyncio.sleep(3)
        for trouble in troubles:
            await trouble(cluster, valkey, rng)
            await asyncio.sleep(2)
    await eventually(lambda: not cluster.remaining(), 20, "something is left in Redis")
    watching.cancel()
    await asyncio.wait([watching])
    cluster.history.remaining = cluster.remaining()
    cluster.note_local_turns(SLACK)
    capacities = {"/p": dict.fromkeys(cluster.members, 1)}
    verdict = Checker(cluster.history, capacities, SLACK, PATIENCE).check()
    print(verdict)
    assert not verdict.violations, f"seed {seed}: {verdict}"
    assert verdict.strict > 300


@pytest.mark.parametrize(
    "redis",
    [
        pytest.param(None, id="valkey"),
        pytest.param(BINARY, id="redis", marks=pytest.mark.skipif(not BINARY, reason="no redis-server here")),
    ],
)
async def test_what_a_failover_does_and_what_redis_loses_is_not_noticed(tmp_path: Path, redis: str | None) -> None:
    """A round of the long run, with the faults that no other test has."""
    faults = ("busy-script", "moved", "failover", "lagging-replica", "cut-file", "evict", "unequal-knowledge")
    plan, found = Plan(0, 4, faults, Path(redis) if redis else None, 2, 0), Found()
    async with lab_of(plan, tmp_path) as lab, Watchdog().watching(lab.server.address) as watchdog:
        await Run(plan, lab, watchdog, found, print).rounds()
    assert found.done == Counter(faults)
    assert not found.violations


@pytest.mark.skipif(not BINARY, reason="no redis-server here")
@pytest.mark.parametrize(
    ("kind", "faults"), [("sentinel", ("switch-master", "stall")), ("cluster", ("switch-master", "move-slot"))]
)
async def test_a_redis_whose_masters_change_keeps_the_promises(
    tmp_path: Path, kind: str, faults: tuple[str, ...]
) -> None:
    plan, found = Plan(0, 4, faults, None, 2, 0, kind), Found()
    async with lab_of(plan, tmp_path) as lab, Watchdog().watching(lab.server.address) as watchdog:
        await Run(plan, lab, watchdog, found, print).rounds()
    assert found.done == Counter(faults)
    assert not found.violations


async def freeze_one_past_its_lease(cluster: Cluster, valkey: Valkey, rng: Random) -> None:
    """And kill another meanwhile, in whose place a new one comes."""
    async with cluster.frozen(rng.choice(cluster.alive)):
        cluster.kill(rng.choice(cluster.alive))
        await cluster.start()
        await asyncio.sleep(PAST_THE_LEASE)


async def restart_redis(cluster: Cluster, valkey: Valkey, rng: Random) -> None:
    """It comes back with its data, but for the last of it."""
    async with cluster.redis_trouble():
        valkey.kill()
        await asyncio.sleep(rng.uniform(0, 2))
        valkey.start()


async def pause_redis(cluster: Cluster, valkey: Valkey, rng: Random) -> None:
    """It answers nothing, and then everything."""
    async with cluster.redis_trouble():
        valkey.freeze()
        await asyncio.sleep(rng.uniform(0.5, 2))
        valkey.thaw()


async def lose_redis(cluster: Cluster, valkey: Valkey, rng: Random) -> None:
    """It comes back with nothing."""
    async with cluster.redis_trouble():
        valkey.kill()
        valkey.lose_data()
        await asyncio.sleep(rng.uniform(0, 2))
        valkey.start()

"""The `pool` of a route is changed while requests hold slots and wait: they end in the pool they came to."""

from slb.control.lane_timing import LaneTiming
from tests.redis.gate_rig import QUEUED, ROUTE, Fleet, Pods, Visit
from tests.support.valkey import Valkey
from tests.support.waiting import eventually
from tests.unit.routing.mirror_rig import record, replace

PATIENT = LaneTiming(budget=0.1, silence=30.0)


async def waits(visit: Visit) -> Visit:
    """Once it is in a queue."""
    await eventually(lambda: visit.entry is not None and visit.entry.wait.queued, what="in the queue")
    return visit


async def test_requests_that_wait_are_served_by_the_old_pool_and_new_ones_by_the_new(valkey: Valkey) -> None:
    pods = Pods(1)
    async with Fleet(valkey, 1, pods, QUEUED, PATIENT) as fleet:
        (proxy,) = fleet.proxies
        running = proxy.visit()
        assert await running.answer == pods.members[0]
        waiting = [await waits(proxy.visit()) for _ in range(2)]
        replace(proxy.mirror, {ROUTE: record(*pods.members, **QUEUED, pool="/other")})
        later = proxy.visit()
        assert await later.answer == pods.members[0], "the new pool counts its own"
        behind = await waits(proxy.visit())
        proxy.gates.take_down()
        later.end()
        assert await behind.answer == pods.members[0]
        assert not waiting[0].answer.done()
        for before, each in zip((running, waiting[0]), waiting, strict=True):
            before.end()
            assert await each.answer == pods.members[0], "in the order they came"
        assert valkey.admin.zscore(f"slb:{{{ROUTE}}}:inflight", pods.members[0]) == 1
        for each in (waiting[1], behind):
            each.end()

        def is_down() -> bool:
            proxy.gates.take_down()
            return proxy.gates.known(ROUTE) is None

        await eventually(is_down, what="the old pool's gate goes when all have ended")


async def test_a_request_that_waits_in_the_old_pool_waits_no_longer_than_before(valkey: Valkey) -> None:
    pods = Pods(1)
    brief = {**QUEUED, "queue_timeout": "200ms"}
    async with Fleet(valkey, 1, pods, brief, PATIENT) as fleet:
        (proxy,) = fleet.proxies
        assert await proxy.visit().answer == pods.members[0]
        waiting = proxy.visit()
        replace(proxy.mirror, {ROUTE: record(*pods.members, **QUEUED, pool="/other")})
        assert await waiting.answer == "queue_timeout"

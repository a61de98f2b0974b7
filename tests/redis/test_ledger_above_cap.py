"""An upstream that has more in flight than a cap allows stands in the log and in a metric, whatever the cause."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from slb.control.lane_timing import LaneTiming
from tests.redis.gate_rig import CAPPED, ROUTE, Fleet, Pods, Proxy
from tests.support.valkey import Valkey
from tests.support.waiting import eventually
from tests.unit.routing.mirror_rig import record, replace

QUIET = LaneTiming(budget=5.0, silence=30.0, beat=60.0, lease=60.0, life=600.0)
"""Nothing is sent but what the test does."""


async def admitted(proxy: Proxy, count: int) -> None:
    """So many requests that do not end."""
    for _ in range(count):
        assert await proxy.visit().answer in proxy.pods.members


async def logged(above: int, logs: list[Any], *proxies: Proxy) -> None:
    """By each instance, once: so many above the cap of the only upstream."""
    await eventually(lambda: all(each.metrics.ledger.above_cap for each in proxies), timeout=10, what="counted")
    for each in proxies:
        each.gates.look_above()
        assert each.metrics.ledger.above_cap == above
    upstreams = {proxies[0].pods.members[0]: above}
    warning = {"event": "ledger_above_cap", "log_level": "warning", "above": above, "upstreams": upstreams}
    assert [line for line in logs if line["event"] == "ledger_above_cap"] == [warning] * len(proxies)


@pytest.mark.parametrize(
    ("before", "after", "more", "above"),
    [
        ({"max_inflight": "3"}, {"max_inflight": "1"}, 0, 2),
        ({"max_inflight": "3", "pool": "/a"}, {"max_inflight": "3", "pool": "/b"}, 3, 3),
    ],
    ids=["a cap is lowered", "the pool of a route is changed"],
)
async def test_a_change_of_the_route_that_leaves_more_in_flight_than_its_cap(
    valkey: Valkey, before: dict[str, str], after: dict[str, str], more: int, above: int
) -> None:
    pods = Pods(1)
    async with Fleet(valkey, 1, pods, CAPPED | before, QUIET) as fleet:
        (proxy,) = fleet.proxies
        await admitted(proxy, 3)
        await eventually(lambda: sum(proxy.gates.scores().values()) == 3, what="read")
        proxy.gates.look_above()
        assert proxy.metrics.ledger.above_cap == 0
        with capture_logs() as logs:
            replace(proxy.mirror, {ROUTE: record(*pods.members, **(CAPPED | after))})
            assert {"event": "ledger_caps_lowered", "log_level": "info", "count": 1, "routes": [ROUTE]} in logs
            await admitted(proxy, more)
            await logged(above, logs, proxy)


async def test_an_instance_that_starts_after_redis_has_lost_its_data(valkey: Valkey) -> None:
    pods = Pods(1)
    async with Fleet(valkey, 1, pods, CAPPED, QUIET) as fleet:
        (one,) = fleet.proxies
        await admitted(one, 1)
        valkey.admin.flushall()
        async with Fleet(valkey, 1, pods, CAPPED, QUIET, first=1) as later:
            (other,) = later.proxies
            await admitted(other, 1)
            with capture_logs() as logs:
                one.gate.lane.send_all()
                await logged(1, logs, one, other)
            (lost,) = [line for line in logs if line["event"] == "ledger_lost"]
            assert (lost["pool"], lost["held"]) == (ROUTE, 1)

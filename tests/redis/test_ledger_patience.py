"""While Redis answers within `ledger_patience` a cap holds: connections that are cut, stalls, forgotten scripts."""

import asyncio
import time
from collections.abc import Callable

import pytest

from slb.control.lane_timing import LaneTiming
from tests.redis.gate_rig import QUEUED, Fleet, Pods
from tests.support.relay import Relay
from tests.support.valkey import Valkey
from tests.support.waiting import patience

SERVICE = 0.01
Blow = Callable[[Valkey], object]


def kill_one(valkey: Valkey) -> None:
    """Of the connections of lanes."""
    lanes = [each for each in valkey.admin.client_list() if each["cmd"] == "evalsha"]
    valkey.admin.client_kill_filter(_id=lanes[0]["id"])


def restart(valkey: Valkey) -> None:
    """With all it had: each instance finds another server, which may have lost something."""
    valkey.admin.config_set("appendfsync", "always")
    valkey.kill()
    valkey.start()


def fail_over(valkey: Valkey) -> None:
    """For a moment it is a replica, which takes no writes."""
    valkey.admin.replicaof("127.0.0.1", "1")
    time.sleep(0.2)
    valkey.admin.replicaof("NO", "ONE")


def stall(seconds: float) -> Blow:
    """It answers nothing for so long."""

    def freeze(valkey: Valkey) -> None:
        valkey.freeze()
        time.sleep(seconds)
        valkey.thaw()

    return freeze


BLOWS: dict[str, Blow] = {
    "CLIENT KILL of one connection": kill_one,
    "CLIENT KILL TYPE normal": lambda valkey: valkey.admin.client_kill_filter(_type="normal"),
    "SCRIPT FLUSH": lambda valkey: valkey.admin.script_flush(),
    "CLIENT PAUSE 80": lambda valkey: valkey.admin.client_pause(80),
    "CLIENT PAUSE 1000": lambda valkey: valkey.admin.client_pause(1000),
    "a stall of 60 ms": stall(0.06),
    "a stall of 300 ms": stall(0.3),
    "a stall of 1 s": stall(1.0),
    "a restart": restart,
    "a failover": fail_over,
    "FLUSHALL": lambda valkey: valkey.admin.flushall(),
}


@pytest.mark.parametrize("blow", BLOWS)
async def test_never_two_run_where_one_may(valkey: Valkey, blow: str) -> None:
    pods = Pods(1)
    async with Fleet(valkey, 5, pods, QUEUED) as fleet:
        fleet.send_clients(4, SERVICE)
        await fleet.serves(20)
        for _ in range(3):
            await asyncio.to_thread(BLOWS[blow], valkey)
            await fleet.serves(20)
        assert pods.most == 1
        assert sum(each.metrics.ledger.local_decisions for each in fleet.proxies) == 0


@pytest.mark.parametrize("blow", ["a stall of 60 ms", "a stall of 300 ms", "CLIENT KILL TYPE normal"])
async def test_saturated_upstreams_never_have_more_than_their_cap(valkey: Valkey, blow: str) -> None:
    pods = Pods(12)
    async with Fleet(valkey, 5, pods, QUEUED) as fleet:
        fleet.send_clients(10, SERVICE)
        await fleet.serves(100)
        await asyncio.to_thread(BLOWS[blow], valkey)
        await fleet.serves(100)
        assert (pods.over, pods.most) == (0, 12)


@pytest.mark.parametrize("round_trip", [0.01, 0.04])
async def test_a_cold_start_far_from_redis_holds_the_cap_and_stays_shared(
    valkey: Valkey, round_trip: float
) -> None:
    pods, modes = Pods(1), set()
    slow = LaneTiming(budget=patience(0.05))  # a process that has to wait for a core finds Redis late
    async with Relay(valkey.process.socket, round_trip / 2) as relay:
        async with Fleet(valkey, 5, pods, QUEUED, timing=slow, url=relay.url, cold=True) as fleet:
            fleet.send_clients(4, SERVICE)
            for _ in range(20):
                await fleet.serves(1)
                modes |= {each.gate.mode for each in fleet.proxies}
        assert pods.most == 1
        assert modes == {"shared"}

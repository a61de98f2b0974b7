"""A request that failed at the upstream it had waited for: it waits again, and loses nothing by it."""

import asyncio

import pytest

from slb.admission.entry import Entry
from tests.proxy.harness import PATIENCE, MakeOrigin, Origin, Proxy, Reply, ask
from tests.proxy.slots_rig import Fleet, Pod, queued, scores
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

QUEUED = {"policy": "least_inflight", "max_inflight": "1", "when_full": "queue", "retries": "2"}
Asked = list["asyncio.Task[Reply]"]


def entries(*proxies: Proxy) -> dict[bytes, Entry]:
    """Of each path, that of the request which is under way."""
    exchanges = [each.exchange for proxy in proxies for each in proxy.server.clients.connections]
    return {each.request.line.path: each.entry for each in exchanges if each is not None and each.entry is not None}


async def in_a_queue(valkey: Valkey, instances: list[Proxy], count: int, first: int) -> Asked:
    """`/p/<first>` and so many more, one behind the other, at the instances by turns."""
    asked = []
    for number in range(first, first + count):
        before = queued(valkey)
        asked.append(ask(instances[number % len(instances)], f"/p/{number}"))
        await eventually(lambda before=before: queued(valkey) == before + 1)  # type: ignore[misc]
    return asked


async def both_busy(
    fleet: Fleet, origins: MakeOrigin, patience: float = PATIENCE, **settings: str
) -> tuple[Proxy, list[Pod], list[Origin], Asked]:
    """An instance whose two upstreams, each of one slot, run `/p/0` and `/p/1`."""
    pods = [Pod(), Pod()]
    made = [await origins(pod.handle) for pod in pods]
    (one,) = await fleet(1, *made, patience=patience, **QUEUED, **settings)
    asked = [ask(one, f"/p/{number}") for number in range(2)]
    await eventually(lambda: [len(pod.running) for pod in pods] == [1, 1])
    return one, pods, made, asked


@pytest.mark.parametrize("count", [1, 3])
async def test_a_request_that_is_sent_elsewhere_is_served_before_later_ones(
    fleet: Fleet, origins: MakeOrigin, valkey: Valkey, count: int
) -> None:
    """The upstream that dies takes the head of the queue with it, again and again, and the order is kept."""
    one, pods, (dying, good), asked = await both_busy(fleet, origins)
    instances = [one, *(await fleet(count - 1, dying, good, **QUEUED))]
    hit, runs = (pod.running[0].target for pod in pods)
    asked += await in_a_queue(valkey, instances, 8, 2)
    await dying.stop()
    await eventually(lambda: queued(valkey) == 9, what="all wait for the other")
    pods[1].go_on.set()
    assert [(await each).status for each in asked] == [200] * 10
    assert pods[1].served == [runs, hit, *(f"/p/{number}" for number in range(2, 10))]
    await eventually(lambda: scores(valkey) == {}, what="a slot was not given back")


async def test_what_it_has_waited_counts_and_its_time_at_the_upstream_does_not(
    fleet: Fleet, origins: MakeOrigin, valkey: Valkey
) -> None:
    one, pods, (dying, _), asked = await both_busy(fleet, origins, queue_timeout="60s")
    asked += await in_a_queue(valkey, [one], 1, 2)
    waits = entries(one)[b"/p/2"]
    assert waits.wait.timer is not None
    pods[0].go_on.set()
    pods[0].go_on.clear()  # for one
    await eventually(lambda: len(dying.requests) == 2)
    assert waits.chosen == dying.member
    assert 0 < waits.wait.left < 60
    left, waited, position = waits.wait.left, waits.wait.waited, waits.wait.position
    await dying.stop()
    await eventually(lambda: entries(one)[b"/p/2"] is not waits, what="it asks again")
    again = entries(one)[b"/p/2"]
    assert (again.wait.left, again.wait.waited, again.wait.position, again.number) == (
        left,
        waited,
        position,
        waits.number,
    )
    pods[1].go_on.set()
    assert [(await each).status for each in asked] == [200] * 3


async def test_a_request_that_has_waited_its_time_in_all_is_refused_by_name(
    fleet: Fleet, origins: MakeOrigin, valkey: Valkey
) -> None:
    """Without a request before it, and with the whole `queue_timeout` before it, were it a new one."""
    one, pods, (dying, _), asked = await both_busy(fleet, origins, queue_timeout="60s")
    hit, runs = (int(pod.running[0].target.rpartition("/")[2]) for pod in pods)
    entries(one)[b"/p/%d" % hit].wait.left = 0.05
    await dying.stop()
    assert (await asked[hit]).reason == "queue_timeout"
    pods[1].go_on.set()
    assert (await asked[runs]).status == 200
    assert queued(valkey) == 0


async def test_no_queue_is_full_for_it_without_redis_either(
    fleet: Fleet, origins: MakeOrigin, valkey: Valkey
) -> None:
    one, pods, (dying, _), asked = await both_busy(fleet, origins, patience=0.4, queue_limit="1")
    hit, runs = (pod.running[0].target for pod in pods)
    valkey.kill()
    await eventually(lambda: one.gates.modes() == [("/p", False)], what="decided here")
    asked.append(ask(one, "/p/2"))
    await eventually(lambda: sum(one.gates.of(one.mirror.table.routes["/p"]).waiting.values()) == 1)
    await dying.stop()
    await eventually(lambda: sum(one.gates.of(one.mirror.table.routes["/p"]).waiting.values()) == 2)
    pods[1].go_on.set()
    assert [(await each).status for each in asked] == [200] * 3
    assert pods[1].served == [runs, hit, "/p/2"]


async def test_a_request_waits_for_redis_itself_no_longer_than_it_may(
    fleet: Fleet, origins: MakeOrigin, valkey: Valkey
) -> None:
    """The budget is 10 s here."""
    pod = Pod()
    (one,) = await fleet(1, await origins(pod.handle), queue_timeout="50ms", **QUEUED)
    pod.go_on.set()
    assert (await one.get("/p")).status == 200
    valkey.freeze()
    try:
        assert (await one.get("/p")).reason == "queue_timeout"
        assert one.gates.modes() == [("/p", True)]
    finally:
        valkey.thaw()

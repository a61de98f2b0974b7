"""An upstream that refuses connections: the first attempt of the whole fleet shows it to all of it."""

import pytest

from slb.routing import passive
from tests.proxy.harness import MakeOrigin, Proxy, ask
from tests.proxy.slots_rig import Fleet, Pod, queued, scores, serving
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

QUEUED = {"policy": "least_inflight", "max_inflight": "1", "when_full": "queue", "retries": "2"}


def refusals(*proxies: Proxy) -> int:
    """Attempts without a listener."""
    return sum(proxy.metrics.retries["upstream_connect"] for proxy in proxies)


async def test_a_dead_upstream_fails_few_of_many_waiting_requests_and_none_loses_its_place(
    judging: Fleet, origins: MakeOrigin, valkey: Valkey
) -> None:
    pods = [Pod() for _ in range(3)]
    dying, *good = [await origins(pod.handle) for pod in pods]
    instances = await judging(3, dying, *good, **QUEUED)
    asked = [ask(instances[number], f"/p/{number}") for number in range(3)]
    await eventually(lambda: [len(pod.running) for pod in pods] == [1, 1, 1])
    for number in range(3, 29):
        before = queued(valkey)
        asked.append(ask(instances[number % 3], f"/p/{number}"))
        await eventually(lambda before=before: queued(valkey) == before + 1)  # type: ignore[misc]
    hit = pods[0].running[0].target
    await dying.stop()
    live = {each.member for each in good}
    await eventually(lambda: all(serving(proxy) == live for proxy in instances), what="out everywhere")
    await eventually(lambda: queued(valkey) == 27, what="all wait again")
    assert refusals(*instances) <= 2 * len(instances)
    pods[1].go_on.set()
    assert [(await each).status for each in asked[3:]] == [200] * 26
    pods[2].go_on.set()
    assert [(await each).status for each in asked] == [200] * 29
    order = [hit, *(f"/p/{number}" for number in range(3, 29))]
    assert [each for each in pods[1].served if each in order] == order
    await eventually(lambda: scores(valkey) == {}, what="a slot was not given back")


async def test_it_is_used_by_all_again_once_it_has_served_one(
    judging: Fleet, origins: MakeOrigin, valkey: Valkey
) -> None:
    origin, other = await origins(), await origins()
    instances = await judging(2, origin, other, policy="round_robin", retries="1")
    port = int(origin.member.rpartition(":")[2])
    await origin.stop()
    while all(origin.member in serving(proxy) for proxy in instances):
        assert (await instances[0].get("/p")).status == 200
    await eventually(lambda: not any(origin.member in serving(proxy) for proxy in instances), what="out everywhere")
    assert refusals(*instances) == 1
    await origin.start(port)
    await eventually(lambda: all(origin.member in serving(proxy) for proxy in instances), what="back everywhere")
    while not origin.requests:
        assert (await instances[1].get("/p")).status == 200
    assert refusals(*instances) == 1


async def test_one_that_is_out_for_long_serves_all_again_soon_after_it_listens(
    judging: Fleet, origins: MakeOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passive, "_REFUSED_FOR", 3600.0)
    monkeypatch.setattr(passive, "_CONNECT_AGAIN", 0.05)
    monkeypatch.setattr(passive, "_CONNECT_AT_LEAST", 0.05)
    origin, other = await origins(), await origins()
    settings = {"policy": "round_robin", "eject_time": "1h", "max_eject_time": "1h"}
    instances = await judging(2, origin, other, **settings)
    port = int(origin.member.rpartition(":")[2])
    await origin.stop()
    while any(origin.member in serving(proxy) for proxy in instances):
        assert (await instances[0].get("/p")).status == 200
    await origin.start(port)
    await eventually(lambda: all(origin.member in serving(proxy) for proxy in instances), what="it stays out")
    while not origin.requests:
        assert (await instances[1].get("/p")).status == 200
    assert refusals(*instances) == 1

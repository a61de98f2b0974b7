"""The ring where slots are counted by the whole fleet."""

from slb.model import RouteRecord
from tests.proxy.harness import MakeOrigin, MakeProxy
from tests.proxy.ring_rig import (
    BY_KEY_ALONE,
    PATHS,
    Pod,
    ask,
    clockwise,
    lead,
    owners,
    policy_of,
    three,
    who_serves,
)
from tests.support.valkey import Valkey
from tests.support.waiting import eventually


async def test_with_a_cap_each_request_of_a_key_goes_to_the_first_clockwise_that_has_room(
    proxies: MakeProxy, origins: MakeOrigin, valkey: Valkey
) -> None:
    pods = [Pod() for _ in range(3)]
    all_three = [await origins(pod.handle) for pod in pods]
    fleet = [await proxies(redis=valkey.url, name=f"i{number}") for number in range(2)]
    for proxy in fleet:
        await lead(proxy, all_three, path="/products", max_inflight="2")
    order = clockwise(all_three, PATHS[0])
    replies = []
    for number in range(6):  # whichever instance they come by: the count is the fleet's
        replies.append(ask(fleet[number % 2], PATHS[0]))
        await eventually(lambda number=number: len(order[number // 2].requests) == 1 + number % 2)  # type: ignore[misc]
    assert (await fleet[0].get(PATHS[0])).reason == "pool_saturated"
    for pod in pods:
        pod.go_on.set()
    assert [(await reply).status for reply in replies] == [200] * 6


async def test_with_a_cap_requests_one_at_a_time_stay_with_the_owner_of_their_key(
    proxies: MakeProxy, origins: MakeOrigin, valkey: Valkey
) -> None:
    proxy, all_three = await proxies(redis=valkey.url), await three(origins)
    await lead(proxy, all_three, path="/products", max_inflight="2")
    assert await who_serves(proxy, all_three) == owners(all_three)


async def test_with_a_cap_the_zone_is_used_as_soon_as_it_has_enough_upstreams(
    proxies: MakeProxy, origins: MakeOrigin, valkey: Valkey
) -> None:
    proxy, all_three = await proxies(redis=valkey.url, zone="a"), await three(origins)
    zones = {"zone_affinity": "true", "zone_min_upstreams": "2", "zone_delay": "0s"}
    settings = {**BY_KEY_ALONE, **zones, "max_inflight": "9", "ring_debounce": "0s", "fade_in": "0s"}

    async def zone_share(*zone: str) -> float:
        attributes = {each.member: {"zone": name} for each, name in zip(all_three, zone, strict=False)}
        proxy.mirror.update({"/": RouteRecord(frozenset(attributes), settings)}, attributes)
        await eventually(lambda: policy_of(proxy).wake > proxy.clock(), what="the rings are not in step")
        for _ in range(2):
            assert (await proxy.get("/")).status == 200
        return policy_of(proxy).zone_share.share

    assert await zone_share("a", "b") == 0.0
    assert await zone_share("a", "b", "a") > 0.0
    assert await zone_share("a", "b", "b") == 0.0

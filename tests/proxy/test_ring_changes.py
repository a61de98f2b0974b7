"""Which keys move when upstreams come, go or are ejected: through the whole proxy."""

import asyncio

import pytest

from tests.proxy.harness import MakeOrigin, MakeProxy, Request
from tests.proxy.ring_rig import (
    BY_KEY_ALONE,
    PATHS,
    ask,
    clockwise,
    ill,
    lead,
    owners,
    path_of,
    policy_of,
    three,
    who_serves,
)
from tests.support.waiting import eventually, soon

LONG = "10m"
LONG_SECONDS = 600.0


async def test_the_keys_of_an_ejected_upstream_go_to_the_next_ones_clockwise_and_come_back(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy, all_three = await proxies(), await three(origins)
    await lead(proxy, all_three)
    out = all_three[0]
    upstream = proxy.mirror.upstream(out.member)
    assert upstream is not None
    upstream.available = False
    proxy.mirror.refresh([out.member])
    assert await who_serves(proxy, all_three) == {
        path: next(origin for origin in clockwise(all_three, path) if origin is not out) for path in PATHS
    }
    upstream.available = True
    proxy.mirror.refresh([out.member])
    assert await who_serves(proxy, all_three) == owners(all_three)


async def test_an_upstream_that_leaves_loses_its_keys_at_once_and_no_other_key_moves(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy, all_three = await proxies(), await three(origins)
    await lead(proxy, all_three)
    proxy.route("/", *all_three[1:], **BY_KEY_ALONE)
    before, after = owners(all_three), await who_serves(proxy, all_three)
    assert after == owners(all_three[1:])
    assert {path for path in PATHS if before[path] is not after[path]} == {
        path for path in PATHS if before[path] is all_three[0]
    }


async def test_a_new_upstream_has_just_its_own_keys_once_it_has_faded_in(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy, all_three = await proxies(), await three(origins)
    old = all_three[:2]
    settings = {"fade_in": LONG, "ring_debounce": "0"}
    await lead(proxy, old, **settings)
    proxy.route("/", *all_three, **BY_KEY_ALONE, **settings)
    assert await who_serves(proxy, all_three) == owners(old)
    proxy.ahead += LONG_SECONDS
    proxy.route("/other", *all_three)  # a swap wakes what waits by another clock
    await eventually(lambda: policy_of(proxy).wake == float("inf"))
    assert await who_serves(proxy, all_three) == owners(all_three)


async def test_a_new_upstream_that_does_not_fade_in_has_its_keys_as_soon_as_the_ring_is_made(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy, all_three = await proxies(), await three(origins)
    await lead(proxy, all_three[:2], ring_debounce="0")
    proxy.route("/", *all_three, **BY_KEY_ALONE, ring_debounce="0")
    path = path_of(all_three[2], all_three)
    key = path.encode()
    route = proxy.mirror.table.routes["/"]
    await eventually(lambda: policy_of(proxy).pick(route.view, key).member == all_three[2].member)
    assert await who_serves(proxy, all_three) == owners(all_three)


@pytest.mark.parametrize("how", ["emptied", "by another policy", "gone"])
async def test_a_retry_by_a_route_that_is_no_more_is_answered(
    proxies: MakeProxy, origins: MakeOrigin, how: str
) -> None:
    gate = asyncio.Event()

    async def ill_later(request: Request) -> None:
        await gate.wait()
        await ill(request)

    proxy, two = await proxies(), [await origins(ill_later) for _ in range(2)]
    await lead(proxy, two, load_signal="effective")
    asked = ask(proxy, "/products/1")
    await eventually(lambda: sum(len(origin.requests) for origin in two) == 1)
    if how == "gone":
        proxy.mirror.update({"/": None}, {})
    elif how == "emptied":
        proxy.route("/", policy="consistent_hash")
    else:
        proxy.route("/", *two, policy="round_robin")
    proxy.ahead += 0.05  # longer than from one look at the pool to the next
    gate.set()
    assert (await soon(asked, 5)).status == 503
    assert sum(len(origin.requests) for origin in two) == 2

"""Rings that follow the table, driven by a task of the real event loop."""

import asyncio
import time
from collections.abc import AsyncIterator
from random import Random

import pytest_asyncio

from slb.balance.ring import Ring
from slb.config import Settings
from slb.model import RouteRecord
from slb.routing.mirror import Mirror
from slb.routing.rings import Rings
from tests.support.waiting import eventually

KEYS = [b"key-%d" % number for number in range(200)]
MEMBERS = [f"10.0.0.{number}:80" for number in range(1, 9)]


class Following:
    """A mirror, and its rings."""

    def __init__(self) -> None:
        self.mirror = Mirror(Settings().route_settings, Random(1))
        self.rings = Rings(self.mirror, time.monotonic)

    def route(self, path: str, *members: str, **settings: str) -> None:
        given = {"policy": "consistent_hash", "ring_debounce": "0s", "load_signal": "off", **settings}
        self.mirror.update({path: RouteRecord(frozenset(members), given)}, {})

    def picks(self, path: str) -> list[str]:
        route = self.mirror.table.routes[path]
        return [route.policy.pick(route.view, key).member for key in KEYS]

    def owners(self, path: str) -> list[str]:
        ring = Ring.of(self.mirror.table.routes[path].upstreams)
        return [ring.pick(key).member for key in KEYS]

    async def in_step(self, path: str) -> None:
        await eventually(lambda: self.picks(path) == self.owners(path), what="the ring does not follow")


@pytest_asyncio.fixture
async def following() -> AsyncIterator[Following]:
    made = Following()
    running = asyncio.create_task(made.rings.run())
    yield made
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()


async def test_a_route_that_comes_gets_its_ring(following: Following) -> None:
    following.route("/a", *MEMBERS[:4])
    assert following.picks("/a") != following.owners("/a")  # not at once: it is made beside the traffic
    await following.in_step("/a")


async def test_each_route_has_a_ring_of_its_own(following: Following) -> None:
    following.route("/a", *MEMBERS[:4])
    following.route("/b", *MEMBERS[4:])
    following.route("/c", *MEMBERS, policy="random")
    await following.in_step("/a")
    await following.in_step("/b")
    assert [route.path for route, _ in following.rings.routes()] == ["/a", "/b"]


async def test_an_upstream_that_leaves_gets_nothing_from_the_next_request_on(following: Following) -> None:
    following.route("/a", *MEMBERS)
    await following.in_step("/a")
    following.route("/a", *MEMBERS[:7])
    assert following.picks("/a") == following.owners("/a")


async def test_an_upstream_that_comes_is_taken_in(following: Following) -> None:
    following.route("/a", *MEMBERS[:4])
    await following.in_step("/a")
    following.route("/a", *MEMBERS)
    await following.in_step("/a")


async def test_an_upstream_that_comes_is_taken_in_after_the_debounce_without_a_call(following: Following) -> None:
    following.route("/a", *MEMBERS[:4], ring_debounce="50ms")
    await following.in_step("/a")
    following.route("/a", *MEMBERS, ring_debounce="50ms")
    assert set(following.picks("/a")) == set(MEMBERS[:4])
    await following.in_step("/a")


async def test_a_route_that_comes_to_go_by_a_key_gets_its_ring(following: Following) -> None:
    following.route("/a", *MEMBERS, policy="random")
    following.route("/a", *MEMBERS)
    await following.in_step("/a")


async def test_a_table_that_was_there_before_is_taken_up() -> None:
    mirror = Mirror(Settings().route_settings, Random(1))
    mirror.update({"/a": RouteRecord(frozenset(MEMBERS), {"policy": "consistent_hash", "ring_debounce": "0s"})}, {})
    running = asyncio.create_task(Rings(mirror, time.monotonic).run())
    ring = mirror.table.routes["/a"].policy.ring
    assert ring is not None
    await eventually(lambda: next(ring.loads(), None) is not None, what="no ring was made")
    running.cancel()
    await asyncio.wait([running])


async def test_a_route_that_goes_leaves_nothing_with_its_upstreams(following: Following) -> None:
    following.route("/stays", *MEMBERS)
    for _ in range(5):
        following.route("/goes", *MEMBERS)
        following.mirror.update({"/goes": None}, {})
        following.route("/turns", *MEMBERS)
        following.route("/turns", *MEMBERS, policy="random")
    load_stats = following.mirror.upstreams[MEMBERS[0]].load_stats
    assert load_stats is not None
    assert len(load_stats.watchers) == 1

"""Names in DNS in the sets of routes, and what becomes of their members in Redis."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from e2e.dns import NameServer
from slb.addresses import AddressRules
from slb.control import keys
from slb.discovery.dns_questions import Questions
from slb.discovery.pending import WriteTiming
from slb.discovery.registered import RegisteredNames
from slb.model import RouteRecord
from tests.redis.discovery_rig import QUICK, Instance, instance
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, settled

FLUX = "dns4://flux.test:8000"
A, B, HAND = "10.0.0.1:8000", "10.0.0.2:8000", "10.9.9.9:80"


@pytest.fixture
def names() -> Iterator[NameServer]:
    with NameServer("flux.test. 60 IN A 10.0.0.1", "flux.test. 60 IN A 10.0.0.2") as server:
        yield server


@asynccontextmanager
async def following(
    valkey: Valkey, names: NameServer, name: str = "one", timing: WriteTiming = QUICK
) -> AsyncIterator[Instance]:
    """An instance that resolves what is registered."""
    async with instance(valkey, name=name, timing=timing) as made:
        questions, rules = Questions([names.address]), AddressRules([], list)
        registered = RegisteredNames(made.follower.mirror, questions, rules)
        registered.on_change = lambda: made.writer.follow(registered.sources)
        registered.look()
        registered.adopt(await made.writers.known())
        yield made


def shown_members(one: Instance) -> list[frozenset[str]]:
    """What the route had, swap by swap, from now on."""
    seen: list[frozenset[str]] = []
    mirror, none = one.follower.mirror, RouteRecord()
    mirror.on_swap(lambda _: seen.append(mirror.records.get("/a", none).members))
    return seen


async def test_a_name_written_by_hand_is_resolved_and_what_is_set_on_it_reaches_its_members(
    valkey: Valkey, names: NameServer
) -> None:
    async with following(valkey, names) as one:
        await one.follower.registry.register("/a", FLUX, {"slots": "8"})
        await one.follower.shows("/a", [A, B])
        assert valkey.admin.hget(f"slb:upstream:{A}", "slots") == "8"
        assert one.source.source == FLUX
        assert one.follower.metrics.redis.skipped.get("member", 0) == 0


async def test_members_leave_with_their_name_and_others_stay(valkey: Valkey, names: NameServer) -> None:
    async with following(valkey, names) as one:
        valkey.admin.sadd("slb_a", FLUX, HAND)
        await one.follower.shows("/a", [A, B, HAND])
        await one.follower.registry.deregister("/a", FLUX)
        await one.follower.shows("/a", [HAND])


async def test_of_a_route_that_is_deleted_nothing_comes_back(valkey: Valkey, names: NameServer) -> None:
    slow = WriteTiming(debounce=0.3, drain=0.01, empty_grace=60.0)
    async with following(valkey, names, timing=slow) as one:
        await one.follower.registry.register("/a", FLUX, {})
        await one.follower.shows("/a", [A, B])
        seen = shown_members(one)
        await one.follower.registry.delete_route("/a")
        await one.follower.shows("/a", None)
        await eventually(lambda: one.source.members == 0, what="the writer knows")
        await settled(lambda: len(seen), still=1.5)
        assert set(seen) == {frozenset()}
        assert (one.counts.came, one.counts.went) == (2, 0)  # the deletion took them, and no write put them back


async def test_two_names_that_share_an_address_both_have_to_leave_before_it_does(
    valkey: Valkey, names: NameServer
) -> None:
    other = "dns4://alias.test:8000"
    names.zone.publish(
        "flux.test. 60 IN A 10.0.0.1", "alias.test. 60 IN A 10.0.0.1", "alias.test. 60 IN A 10.0.0.2"
    )
    async with following(valkey, names) as one:
        valkey.admin.sadd("slb_a", FLUX, other)
        await one.follower.shows("/a", [A, B])
        await eventually(lambda: all(each.members for each in one.writer.shown()), what="both are written")
        valkey.admin.srem("slb_a", other)
        await one.follower.shows("/a", [A])
        valkey.admin.srem("slb_a", FLUX)
        await one.follower.shows("/a", None)


async def test_a_redis_that_lost_its_data_gets_names_and_members_back(valkey: Valkey, names: NameServer) -> None:
    async with following(valkey, names) as one:
        await one.follower.registry.register("/a", FLUX, {})
        await one.follower.shows("/a", [A, B])
        valkey.kill()
        valkey.lose_data()
        valkey.start()
        await eventually(lambda: valkey.admin.smembers("slb_a") == {A, B, FLUX}, what="all is written back")
        await one.writes()
        valkey.admin.srem("slb_a", FLUX)
        await one.follower.shows("/a", None)


async def test_a_name_that_was_deregistered_while_no_instance_ran_takes_its_members_along(
    valkey: Valkey, names: NameServer
) -> None:
    async with following(valkey, names) as one:
        valkey.admin.sadd("slb_a", FLUX, HAND)
        await one.follower.shows("/a", [A, B, HAND])
    valkey.admin.srem("slb_a", FLUX)
    async with following(valkey, names, "two") as two:
        await two.follower.shows("/a", [HAND])
    assert valkey.admin.hexists(keys.DISCOVERY_WRITERS, f"/a {FLUX}")

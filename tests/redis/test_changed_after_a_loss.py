"""What is changed right after Redis has lost data, before any instance has written that back: all else holds."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from slb.control import keys
from slb.control.generation import RestoreTiming
from slb.control.registry import Registry
from slb.model import RouteRecord
from tests.redis.old_data_rig import known, members, numbered, snapshots
from tests.support.following import Follower, timing
from tests.support.relay import Relay
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

__all__ = ["snapshots"]

MEMBER, LOST = "10.1.1.1:1", "10.2.2.2:2"
SETTINGS, ATTRIBUTES = "slb:route:/a", f"slb:upstream:{MEMBER}"
CAP = {"max_inflight": "5", "policy": "least_inflight"}


@asynccontextmanager
async def after_loss(server: Valkey, loss: str) -> AsyncIterator[tuple[list[Follower], Follower]]:
    """Two instances that have a cap, a drain flag and a member; Redis has come back without, and neither of them
    has met it. And one that has just started, and has what Redis has. Then they all follow it."""
    async with (
        Relay(server.process.socket) as relay,
        Follower(relay.url) as one,
        Follower(relay.url) as other,
    ):
        await one.registry.register("/a", MEMBER, {"weight": "2"})
        await one.registry.put_settings("/a", {"hash_key": "ip"})
        for each in (one, other):
            await known(each, server)
            await numbered(each, server)
        server.admin.save()
        await one.registry.patch_settings("/a", {**CAP, "hash_key": None})
        await one.registry.patch_upstream(MEMBER, {"drain": "true"})
        await one.registry.register("/a", LOST, {})
        for each in (one, other):
            await each.shows("/a", [MEMBER, LOST])
            await eventually(lambda each=each: each.mirror.records["/a"].settings == CAP)  # type: ignore[misc]
            await eventually(lambda each=each: each.mirror.upstreams[MEMBER].spec.drain)  # type: ignore[misc]
            await numbered(each, server)
        relay.point_to(None)
        for each in (one, other):
            await each.up(False)
        server.kill()
        server.start()
        if loss == "all":
            server.admin.flushall()
        async with Follower(server.url, watch=timing(RestoreTiming())) as new:
            await new.synced()
            yield [one, other], new
            relay.point_to(server.process.socket)
            for each in (one, other):
                await each.up(True)
            await eventually(lambda: bool(server.admin.exists(keys.GENERATION)), timeout=5)
            await eventually(lambda: all(each.sync.recovery.is_settled for each in (one, other)), timeout=5)
            for each in (one, other):
                await eventually(lambda each=each: shown(each) == stored(server), what="Redis followed")  # type: ignore[misc]


def shown(follower: Follower) -> RouteRecord:
    return follower.mirror.records.get("/a", RouteRecord())


def stored(server: Valkey) -> RouteRecord:
    found: dict[str, str] = server.admin.hgetall(SETTINGS)  # type: ignore[assignment]
    return RouteRecord(frozenset(members(server, "slb_a")), found or None)


async def settings(registry: Registry) -> None:
    await registry.patch_settings("/a", {"retries": "2"})


async def no_policy(registry: Registry) -> None:
    await registry.patch_settings("/a", {"policy": None})


async def whole_settings(registry: Registry) -> None:
    await registry.put_settings("/a", {"retries": "2"})


async def no_settings(registry: Registry) -> None:
    await registry.put_settings("/a", {})


@pytest.mark.parametrize("loss", ["some", "all"])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (settings, {**CAP, "retries": "2"}),
        (no_policy, {"max_inflight": "5"}),
        (whole_settings, {"retries": "2"}),
        (no_settings, {}),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
async def test_a_change_of_settings_is_of_those_it_names(
    snapshots: Valkey, loss: str, change: Callable[[Registry], Awaitable[None]], expected: dict[str, str]
) -> None:
    async with after_loss(snapshots, loss) as (_, new):
        await change(new.registry)
    admin = snapshots.admin
    await eventually(lambda: admin.hgetall(SETTINGS) == expected, what="settings", timeout=5)
    assert admin.hget(ATTRIBUTES, "drain") == "true"
    assert members(snapshots, "slb_a") == {MEMBER, LOST}


@pytest.mark.parametrize("loss", ["some", "all"])
@pytest.mark.parametrize("ttl", [None, 60.0])
async def test_one_that_registers_again_stays_drained(snapshots: Valkey, loss: str, ttl: float | None) -> None:
    async with after_loss(snapshots, loss) as ((one, other), new):
        await new.registry.register_all([("/a", MEMBER, {"weight": "4"})], [ttl])
    admin = snapshots.admin
    await eventually(lambda: admin.hget(ATTRIBUTES, "drain") == "true", what="drain", timeout=5)
    assert admin.hget(ATTRIBUTES, "weight") == "4"
    assert admin.hgetall(SETTINGS) == CAP
    for each in (one, other):
        assert each.mirror.upstreams[MEMBER].spec.drain


@pytest.mark.parametrize("loss", ["some", "all"])
async def test_undrained_is_undrained(snapshots: Valkey, loss: str) -> None:
    async with after_loss(snapshots, loss) as (_, new):
        await new.registry.patch_upstream(MEMBER, {"drain": None})
    admin = snapshots.admin
    await eventually(lambda: admin.hget(ATTRIBUTES, "weight") == "2", what="the weight", timeout=5)
    assert admin.hget(ATTRIBUTES, "drain") is None


@pytest.mark.parametrize("loss", ["some", "all"])
async def test_a_field_set_by_hand_stays_beside_those_that_go_back(snapshots: Valkey, loss: str) -> None:
    async with after_loss(snapshots, loss):
        snapshots.admin.hset(SETTINGS, "retries", "2")
    expected = {**CAP, "retries": "2"}
    await eventually(lambda: snapshots.admin.hgetall(SETTINGS) == expected, what="settings", timeout=5)


@pytest.mark.parametrize("loss", ["some", "all"])
async def test_a_route_that_is_removed_is_removed_with_what_redis_had_lost_of_it(
    snapshots: Valkey, loss: str
) -> None:
    """Through an instance that has it."""
    async with after_loss(snapshots, loss) as ((one, _), new):
        holding = Registry(new.connection, one.mirror)
        assert await holding.delete_route("/a")
    await eventually(lambda: not snapshots.admin.exists("slb_a", SETTINGS), what="it gone", timeout=5)
    assert one.members("/a") is None


@pytest.mark.parametrize("loss", ["some", "all"])
async def test_a_reset_is_of_what_redis_had_lost_as_well(snapshots: Valkey, loss: str) -> None:
    async with after_loss(snapshots, loss) as (knowing, new):
        await new.registry.reset()
    assert [each.members("/a") for each in knowing] == [None, None]
    assert not snapshots.admin.exists("slb_a", SETTINGS, ATTRIBUTES)


@pytest.mark.parametrize("change", ["settings", "a renewal"])
async def test_a_change_that_is_the_first_to_meet_an_emptied_redis_loses_nothing(
    valkey: Valkey, change: str
) -> None:
    """No instance has looked yet: they notice it at the change."""
    async with Follower(valkey.url, watch=timing(look=30.0)) as follower:
        registry = follower.registry
        await registry.register_all([("/a", MEMBER, {"weight": "2"})], [60.0])
        await registry.put_settings("/a", CAP)
        await registry.patch_upstream(MEMBER, {"drain": "true"})
        await known(follower, valkey)
        await eventually(lambda: follower.mirror.upstreams[MEMBER].spec.drain)
        await eventually(lambda: follower.mirror.records["/a"].settings == CAP)
        valkey.admin.flushall()
        if change == "settings":
            await settings(registry)
        else:
            await registry.register_all([("/a", MEMBER, {"weight": "2"})], [60.0])
        expected = {**CAP, "retries": "2"} if change == "settings" else CAP
        await eventually(lambda: valkey.admin.hgetall(SETTINGS) == expected, what="settings", timeout=5)
        await eventually(lambda: valkey.admin.hget(ATTRIBUTES, "drain") == "true", what="drain", timeout=5)
        assert follower.mirror.upstreams[MEMBER].spec.drain

"""What sources of discovery say, written to a real Valkey by one instance of several."""

import pytest

from slb.control import keys
from slb.control.discovered import Fenced, Term
from slb.discovery.found import Member
from slb.discovery.pending import WriteTiming
from slb.discovery.writer import LeaseTiming
from tests.redis.discovery_rig import Told, instance
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

A, B, C = "10.1.1.1:1", "10.2.2.2:2", "10.3.3.3:3"


async def test_members_come_and_go_with_what_the_source_says(valkey: Valkey) -> None:
    source, admin = Told(), valkey.admin
    async with instance(valkey, source) as one:
        await source.say({A: Member(zone="z", node="n", weight=3, slots=2), B: Member()})
        await one.follower.shows("/a", [A, B])
        stored = admin.hgetall(f"slb:upstream:{A}")
        assert {name: stored[name] for name in ("zone", "node", "weight", "slots")} == {
            "zone": "z",
            "node": "n",
            "weight": "3",
            "slots": "2",
        }
        assert float(stored["joined"]) > 0
        await source.say([B, C])
        await one.follower.shows("/a", [B, C])
        assert not admin.exists(f"slb:upstream:{A}")
        assert (one.counts.came, one.counts.went) == (3, 1)


async def test_a_member_that_terminates_drains_and_one_that_stays_keeps_its_count(valkey: Valkey) -> None:
    source = Told()
    async with instance(valkey, source, timing=WriteTiming(debounce=60.0, drain=0.01)) as one:
        await source.say([A, B])
        await one.follower.shows("/a", [A, B])
        live = one.follower.mirror.upstream(A)
        assert live is not None
        live.inflight = 7
        await source.say({A: Member(), B: Member(is_draining=True), C: Member()})
        await eventually(lambda: one.follower.mirror.upstreams[B].spec.drain, what="B drains")
        assert one.follower.members("/a") == [A, B]  # what else has changed waits for the debounce
        assert one.follower.mirror.upstream(A) is live
        assert live.inflight == 7


async def test_what_others_registered_stays(valkey: Valkey) -> None:
    source, admin = Told(), valkey.admin
    async with instance(valkey, source) as one:
        registry = one.follower.registry
        await registry.register("/a", A, {"weight": "2"})  # before it is found
        await source.say([A, B, C])
        await one.follower.shows("/a", [A, B, C])
        await registry.register("/a", B, {"weight": "2"})  # after that
        await source.say([], is_gone=True)
        await one.follower.shows("/a", [A, B])
        assert not [field for field in admin.hkeys(keys.discovered_key("/a")) if str(field).startswith("is ")]
        await registry.deregister_all([("/a", A), ("/a", B)])
        await source.say([A, B])
        await one.follower.shows("/a", [A, B])
        await source.say([C])
        await one.follower.shows("/a", [C])


async def test_of_each_member_it_is_known_who_may_take_it_out(valkey: Valkey) -> None:
    source, other = Told("/a"), Told("/a", "dns://flux.internal:1")
    async with instance(valkey, source, other) as one:
        registry = one.follower.registry
        await registry.register("/a", A, {})  # before it is found
        await source.say([A, B, C])
        await other.say([C])
        await one.follower.shows("/a", [A, B, C])
        assert await registry.origins({"/a": [A, B, C]}) == {"/a": {A: "static", B: "discovered", C: "discovered"}}
        await registry.register_all([("/a", B, {}), ("/b", A, {}), ("/b", B, {})], [None, 60.0, None])
        assert await registry.origins({"/b": [A, B], "/a": [A, B, C], "/none": []}) == {
            "/a": {A: "static", B: "static", C: "discovered"},
            "/b": {A: "lease", B: "static"},
            "/none": {},
        }


async def test_a_drain_ends_with_the_source_where_others_registered_the_member(valkey: Valkey) -> None:
    source = Told()
    async with instance(valkey, source) as one:
        await one.follower.registry.register("/a", A, {"weight": "2"})
        await source.say({A: Member(is_draining=True), B: Member()})
        await eventually(lambda: (live := one.follower.mirror.upstream(A)) is not None and live.spec.drain)
        await source.say([B])
        await eventually(lambda: not one.follower.mirror.upstreams[A].spec.drain, what="A takes requests again")


async def test_two_sources_of_one_route_share_a_member(valkey: Valkey) -> None:
    one_source, other = Told(name="kubernetes/ml/flux:http"), Told(name="dns://flux.internal:1")
    async with instance(valkey, one_source, other) as one:
        await one_source.say([A, B])
        await other.say([A, C])
        await one.follower.shows("/a", [A, B, C])
        await one_source.say([B])
        await eventually(lambda: one.writer.shown()[0].members == 1)
        assert valkey.admin.smembers("slb_a") == {A, B, C}
        await other.say([C])
        await one.follower.shows("/a", [B, C])


async def test_attributes_that_an_operator_sets_stay(valkey: Valkey) -> None:
    source = Told()
    async with instance(valkey, source) as one:
        await source.say({A: Member(weight=2), B: Member()})
        await one.follower.shows("/a", [A, B])
        await one.follower.registry.patch_upstream(A, {"weight": "9", "drain": "true"})
        await source.say({A: Member(weight=2, zone="z"), B: Member()})
        await eventually(lambda: one.follower.mirror.upstreams[A].spec.zone == "z")
        spec = one.follower.mirror.upstreams[A].spec
        assert (spec.weight, spec.drain) == (9, True)


async def test_an_empty_answer_is_held_back_unless_the_source_is_gone(valkey: Valkey) -> None:
    source = Told()
    async with instance(valkey, source) as one:
        await source.say([A])
        await one.follower.shows("/a", [A])
        await source.say([])
        await eventually(lambda: one.source.held_back)
        await source.say([B])
        await one.follower.shows("/a", [B])
        assert not one.source.held_back
        await source.say([], is_gone=True)
        await one.follower.shows("/a", None)


async def test_the_last_set_holds_where_a_new_writer_begins_with_an_empty_answer(valkey: Valkey) -> None:
    source = Told()
    async with instance(valkey, source) as one:
        await source.say([A])
        await one.follower.shows("/a", [A])
    await source.say([])
    timing = WriteTiming(debounce=0.01, empty_grace=0.3)
    async with instance(valkey, source, name="two", timing=timing) as two:
        await eventually(lambda: two.source.held_back)
        assert valkey.admin.smembers("slb_a") == {A}
        await two.follower.shows("/a", None)  # once it has stood for the grace


async def test_one_of_two_writes_and_the_other_takes_over(valkey: Valkey) -> None:
    source, same = Told(), Told()
    async with instance(valkey, source) as one:
        await one.writes()
        async with instance(valkey, same, name="two") as two:
            await eventually(lambda: two.source.writer == "one")
            assert same.followers == 0
            await source.say([A])
            await same.say([A, B])
            await two.follower.shows("/a", [A])
            await one.stop()
            await two.follower.shows("/a", [A, B])
            assert two.source.writes


async def test_a_writer_that_leaves_gives_its_lease_back(valkey: Valkey) -> None:
    source, same = Told(), Told()
    forever = LeaseTiming(lease=50.0, beat=0.05, first=0.0)
    async with instance(valkey, source, lease=forever) as one:
        await one.writes()
        async with instance(valkey, same, name="two", lease=forever) as two:
            await one.stop()
            await one.writer.leave()
            await two.writes()


async def test_an_earlier_term_writes_nothing(valkey: Valkey) -> None:
    source = Told()
    async with instance(valkey, source) as one:
        await source.say([A])
        await one.follower.shows("/a", [A])
        await one.stop()
        term = Term("/a", source.name, 5)
        with pytest.raises(Fenced):
            await one.discovered.take(term)
        with pytest.raises(Fenced):
            await one.discovered.write(term, {}, {B: {"drain": "true"}})
        assert valkey.admin.smembers("slb_a") == {A}
        assert not valkey.admin.exists(f"slb:upstream:{B}")


async def test_a_fenced_writer_leaves_the_source_to_the_other(valkey: Valkey) -> None:
    source = Told()
    async with instance(valkey, source, lease=LeaseTiming(lease=50.0, beat=30.0, first=0.0)) as one:
        await source.say([A])
        await one.follower.shows("/a", [A])
        later = Term("/a", source.name, 2**52)
        assert await one.discovered.take(later) == {A: {}}
        await source.say([A, B])
        await eventually(lambda: one.counts.fenced == 1)
        await eventually(lambda: source.followers == 0)
        assert valkey.admin.smembers("slb_a") == {A}


async def test_what_is_removed_by_hand_is_written_again(valkey: Valkey) -> None:
    source = Told()
    async with instance(valkey, source) as one:
        await source.say([A, B])
        await one.follower.shows("/a", [A, B])
        valkey.admin.srem("slb_a", A)
        await one.follower.shows("/a", [B])
        await one.follower.shows("/a", [A, B])


async def test_a_redis_that_lost_everything_is_written_again_and_still_knows_whose_members_are(
    valkey: Valkey,
) -> None:
    source = Told()
    async with instance(valkey, source) as one, instance(valkey, source, name="two"):
        await source.say({A: Member(zone="z"), B: Member()})
        await one.follower.shows("/a", [A, B])
        valkey.kill()
        await one.follower.up(False)
        valkey.lose_data()
        valkey.start()
        admin = valkey.admin
        await eventually(lambda: f"is {A} {source.name}" in admin.hgetall(keys.discovered_key("/a")))
        await eventually(lambda: admin.smembers("slb_a") == {A, B})
        await source.say([B])
        await eventually(lambda: admin.smembers("slb_a") == {B}, what="A is not others'")


async def test_a_key_of_another_type_is_in_the_way_until_it_is_gone(valkey: Valkey) -> None:
    source, admin = Told(), valkey.admin
    admin.set("slb_a", "text")
    admin.set(keys.discovered_key("/a"), "text")
    admin.set(keys.DISCOVERY_WRITERS, "text")
    async with instance(valkey, source) as one:
        await source.say([A])
        await eventually(lambda: admin.type(keys.discovered_key("/a")) == "hash")
        admin.delete("slb_a")
        await one.follower.shows("/a", [A])


async def test_a_large_route_is_written_in_handfuls(valkey: Valkey) -> None:
    source = Told()
    members = [f"10.0.{number // 250}.{number % 250 + 1}:80" for number in range(1050)]
    async with instance(valkey, source) as one:
        await source.say(dict.fromkeys(members, Member(zone="z")))
        await eventually(lambda: len(one.follower.members("/a") or ()) == 1050)
        await source.say(members[:3])
        await eventually(lambda: len(one.follower.members("/a") or ()) == 3)


def test_the_keys_of_a_route_are_in_one_slot_of_a_cluster() -> None:
    from redis.crc import key_slot

    for path in ("/", "/p1", "/models/flux", "/%7Bx%7D"):
        assert key_slot(keys.discovered_key(path).encode()) == key_slot(keys.route_key(path).encode())

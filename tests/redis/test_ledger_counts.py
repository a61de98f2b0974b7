"""Who gets which slot: one count for the whole fleet."""

import asyncio
from collections import Counter

from slb.balance.asking import Candidate
from tests.redis.ledger_rig import PATIENT, SHORT, Books, Instance, upstreams
from tests.support.valkey import Valkey
from tests.support.waiting import eventually


async def test_the_upstream_with_the_least_score_of_all_instances_is_taken(
    valkey: Valkey,
) -> None:
    async with Instance(valkey, "a", PATIENT) as one, Instance(valkey, "b", PATIENT) as other:
        taken = [await (one, other)[turn % 2].get(upstreams(10)) for turn in range(10)]
        assert sorted(taken) == [f"u{index}" for index in range(10)]
        one.lane.release(taken[4])
        await one.sent_all()
        assert await other.get(upstreams(10)) == taken[4]


async def test_slots_divide_the_score(valkey: Valkey) -> None:
    pods = (Candidate("small", 0, 1), Candidate("large", 0, 8))
    async with Instance(valkey, "a", PATIENT) as one:
        taken = Counter([await one.get(pods) for _ in range(90)])
    assert taken == {"large": 80, "small": 10}


async def test_ties_rotate(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT) as one:
        taken = []
        for _ in range(4):
            taken.append(await one.get(upstreams(4)))
            one.lane.release(taken[-1])
            await one.sent_all()
    assert sorted(taken) == ["u0", "u1", "u2", "u3"]


async def test_ties_within_one_batch_rotate_too(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT) as one:
        asked = [one.ask(upstreams(8)) for _ in range(8)]
        assert len({await each.answer for each in asked}) == 8


async def test_what_a_request_avoids_it_does_not_get(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT) as one:
        assert {await one.get(upstreams(3), avoid=("u0", "u2")) for _ in range(6)} == {"u1"}


async def test_what_a_request_is_reluctant_to_use_it_gets_where_no_other_has_room(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT) as one:
        assert [await one.get(upstreams(2, 1), reluctant=("u0",)) for _ in range(2)] == ["u1", "u0"]


async def test_an_ordered_request_gets_the_first_with_room(valkey: Valkey) -> None:
    pods = upstreams(3, capacity=2)
    async with Instance(valkey, "a", PATIENT) as one:
        backwards = pods[::-1]
        one.lane.view("/p", pods)
        taken = [await one.get(backwards, ordered=True) for _ in range(6)]
        assert taken == ["u2", "u2", "u1", "u1", "u0", "u0"]
        assert await one.get(backwards, ordered=True) == "refused: pool_saturated"


async def test_score_and_held_are_the_same_sum_at_every_moment(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", PATIENT) as one, Instance(valkey, "b", PATIENT) as other:
        for turn in range(12):
            await (one, other)[turn % 2].get(upstreams(5))
            assert books.scores() == books.summed()
        for member in list(one.lane.held.elements()):
            one.lane.release(member)
            await one.sent_all()
            assert books.scores() == books.summed()
        assert sum(books.scores().values()) == 6


async def test_a_release_is_clamped_by_what_the_instance_itself_holds(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", PATIENT) as one, Instance(valkey, "b", PATIENT) as other:
        assert [await other.get(upstreams(1)) for _ in range(3)] == ["u0"] * 3
        await one.get(upstreams(1))
        for _ in range(5):
            one.lane.release("u0")
        await one.sent_all()
        assert books.scores() == {"u0": 3}
        assert books.held("b-1") == {"u0": 3}


async def test_scores_are_never_below_zero(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", PATIENT) as one:
        for _ in range(5):
            one.lane.release("u0")
        await one.sent_all()
        assert books.scores() == {}
        await one.get(upstreams(1))
        books.redis.zadd(books.key["inflight"], {"u0": -7})
        one.lane.release("u0")
        await one.sent_all()
        assert books.scores() == {}


async def test_a_removed_upstream_leaves_when_its_score_is_zero(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", PATIENT) as one:
        assert {await one.get(upstreams(2)) for _ in range(2)} == {"u0", "u1"}
        assert await one.get(upstreams(1)) == "u0"
        assert books.scores() == {"u0": 2, "u1": 1}
        one.lane.release("u1")
        await one.sent_all()
        assert books.scores() == {"u0": 2}


async def test_an_upstream_that_joins_starts_at_zero_and_the_others_keep_their_scores(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", PATIENT) as one:
        for _ in range(6):
            await one.get(upstreams(2))
        assert [await one.get(upstreams(3)) for _ in range(3)] == ["u2"] * 3
        assert books.scores() == {"u0": 3, "u1": 3, "u2": 3}


async def test_routes_of_one_pool_share_its_slots_each_by_its_own_candidates(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT) as one, Instance(valkey, "b", PATIENT) as other:
        assert await one.get(upstreams(2, 1), view="/x") != await other.get(upstreams(2, 1), view="/y")
        assert await one.get(upstreams(2, 1), view="/y") == "refused: pool_saturated"
        assert await one.get(upstreams(2, 2), view="/z") in {"u0", "u1"}


async def test_pools_know_nothing_of_each_other(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT) as one:
        await one.get(upstreams(1, 1))
        one.lane_of("/q")
        assert Books(valkey, "/q").scores() == {}
        assert Books(valkey).scores() == {"u0": 1}


async def test_a_cap_is_strict_whatever_the_number_of_instances(valkey: Valkey) -> None:
    pods = tuple(Candidate(f"u{index}", 2 + index, 1 + index % 2) for index in range(5))
    fleet = [Instance(valkey, f"i{index}", SHORT) for index in range(6)]
    await asyncio.gather(*(each.__aenter__() for each in fleet))
    asked = [each.ask(pods) for _ in range(10) for each in fleet]
    answers = Counter([await each.answer for each in asked])
    assert answers == {**{each.member: each.capacity for each in pods}, "refused: pool_saturated": 40}
    await asyncio.gather(*(each.die() for each in fleet))


async def test_one_in_one_out_never_passes_the_cap(valkey: Valkey) -> None:
    """Every slot that frees is asked for by all instances at once."""
    pods, books, running, most = upstreams(3, 1), Books(valkey), 0, 0
    fleet = [Instance(valkey, f"i{index}", SHORT) for index in range(4)]
    await asyncio.gather(*(each.__aenter__() for each in fleet))

    async def use(instance: Instance) -> None:
        nonlocal running, most
        for _ in range(50):
            member = await instance.get(pods)
            if not member.startswith("refused"):
                running += 1
                most = max(most, running)
                await asyncio.sleep(0)
                running -= 1
                instance.lane.release(member)

    await asyncio.gather(*(use(each) for each in fleet for _ in range(3)))
    assert most <= 3
    await eventually(lambda: not books.scores(), what="all given back")
    await asyncio.gather(*(each.die() for each in fleet))

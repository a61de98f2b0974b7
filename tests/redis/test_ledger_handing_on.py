"""A slot that comes back is handed on by the very call that brings it back: no instance looks, pushes or reaps here
unless the test does."""

import json
from contextlib import AsyncExitStack
from dataclasses import replace

from slb.balance.asking import Turn
from slb.control.lane_timing import LaneTiming
from slb.control.scripts import Reap
from tests.redis.ledger_rig import PATIENT, POOL, Books, Instance, upstreams
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

TURN = Turn("", 1, 100)
ONE = upstreams(1, 1)
DEAF = replace(PATIENT, look=60.0)
LONG = 60_000
"""Milliseconds: nothing ends by itself."""
EVER = 1 << 52


def alone(valkey: Valkey, name: str, timing: LaneTiming = DEAF) -> Instance:
    """One that neither reaps nor receives messages."""
    return Instance(valkey, name, timing, reaping=False)


async def test_what_a_reap_takes_from_dead_holders_goes_to_waiting_tickets(valkey: Valkey) -> None:
    books = Books(valkey)
    async with alone(valkey, "a") as one:
        async with alone(valkey, "b") as other:
            assert await other.get(ONE) == "u0"
            waits = await one.queue(ONE, TURN)
        books.redis.zadd(books.key["holders"], {"b-1": 1})
        assert (await Reap(one.connection)(POOL, LONG, reap_until=EVER, patience=LONG, period=1)).reaped == 1
        assert (books.grants(), books.scores()) == (["a-1/1"], {"u0": 1})
        one.lane.look()
        await eventually(waits.answer.done, what="handed on long before the next beat")


async def granted_to_a_frozen_one(valkey: Valkey, one: Instance, frozen: Instance) -> Books:
    """The slot of `one`, which it has given back, is granted to the first ticket of `frozen`."""
    books = Books(valkey)
    assert await one.get(ONE) == "u0"
    await frozen.queue(ONE, TURN)
    await one.queue(ONE, TURN)
    frozen.freeze()
    one.lane.release("u0")
    await eventually(lambda: books.grants() == ["b-1/1"], what="granted")
    return books


async def test_a_grant_that_a_reap_takes_back_goes_to_the_next(valkey: Valkey) -> None:
    async with alone(valkey, "a") as one, alone(valkey, "b") as other:
        books = await granted_to_a_frozen_one(valkey, one, other)
        await Reap(one.connection)(POOL, LONG, reap_until=0, patience=0, period=1)
        assert (books.grants(), books.tickets()) == (["a-1/2"], ["b-1/1"])


async def test_a_grant_that_has_lapsed_goes_to_the_next_as_soon_as_that_one_looks(valkey: Valkey) -> None:
    hasty = replace(DEAF, patience=0.0)
    async with alone(valkey, "a", hasty) as one, alone(valkey, "b") as other:
        books = await granted_to_a_frozen_one(valkey, one, other)
        one.lane.look()
        await eventually(lambda: books.held("a-1") == {"u0": 1}, what="handed on")
        assert (books.grants(), books.tickets()) == ([], ["b-1/1"])


async def test_a_holder_whose_grant_lapsed_gets_the_slot_that_is_still_free_with_its_next_batch(
    valkey: Valkey,
) -> None:
    books = Books(valkey)
    async with alone(valkey, "a") as one, alone(valkey, "b") as other:
        assert await one.get(ONE) == "u0"
        waits = await other.queue(ONE, TURN)
        other.freeze()
        one.lane.release("u0")
        await eventually(lambda: books.grants() == ["b-1/1"], what="granted")
        await Reap(one.connection)(POOL, LONG, reap_until=0, patience=0, period=1)
        assert (books.grants(), books.tickets(), books.scores()) == ([], ["b-1/1"], {})
        other.thaw()
        other.lane.look()
        await eventually(waits.answer.done, what="handed on long before the next beat")


async def test_a_ticket_that_redis_has_lost_gets_what_is_free_as_soon_as_it_is_sent_again(valkey: Valkey) -> None:
    books = Books(valkey)
    async with alone(valkey, "a") as one, alone(valkey, "b") as other:
        assert await other.get(ONE) == "u0"
        waits = await one.queue(ONE, TURN)
        books.redis.delete(*(books.key[name] for name in ("tickets", "class:", "classes", "views")))
        other.lane.release("u0")
        await books.score({})
        one.lane.send_all()
        await eventually(waits.answer.done, what="handed on long before the next beat")


async def silent_holder(valkey: Valkey, one: Instance, other: Instance, silent_for: float) -> Books:
    """`one` has given back a slot while a ticket of `other`, which gets no messages and has not beaten for so many
    seconds, was before one of its own."""
    books = Books(valkey)
    assert await one.get(ONE) == "u0"
    await other.queue(ONE, TURN)
    await one.queue(ONE, TURN)
    books.redis.zincrby(books.key["holders"], -1000 * silent_for, "b-1")
    one.lane.release("u0")
    await one.sent_all()
    return books


async def test_a_holder_without_messages_that_has_missed_a_beat_is_passed_over_at_once(valkey: Valkey) -> None:
    async with alone(valkey, "a") as one, alone(valkey, "b") as other:
        books = await silent_holder(valkey, one, other, silent_for=DEAF.lease / 2)
        assert (books.grants(), books.tickets(), books.held("a-1")) == ([], ["b-1/1"], {"u0": 1})
        other.lane.send_all()
        await other.sent_all()
        one.lane.release("u0")
        await eventually(lambda: books.grants() == ["b-1/1"], what="its turn, for a batch of it came")


async def test_a_holder_without_messages_whose_batch_just_came_has_half_the_time_to_look(valkey: Valkey) -> None:
    async with alone(valkey, "a") as one, alone(valkey, "b") as other:
        books = await silent_holder(valkey, one, other, silent_for=0.0)
        assert books.grants() == ["b-1/1"]
        granted_at = json.loads(books.redis.hget(books.key["grants"], "b-1/1"))[0]
        assert books.redis.zscore(books.key["granted"], "b-1/1") == granted_at - 500 * DEAF.patience


async def test_slots_whose_messages_reach_no_holder_are_passed_on_until_one_looks(valkey: Valkey) -> None:
    async with AsyncExitStack() as stack:
        names = "abcd"
        one, *others = [await stack.enter_async_context(alone(valkey, name)) for name in names]
        books, two = Books(valkey), upstreams(2, 1)
        assert {await one.get(two), await one.get(two)} == {"u0", "u1"}
        for each in (*others, one):
            await each.queue(two, TURN)
        for name in names[1:]:
            books.redis.zincrby(books.key["holders"], -500 * DEAF.lease, f"{name}-1")
        one.lane.release("u0")
        await one.sent_all()
        assert (books.tickets(), books.held("a-1")) == (["b-1/1", "c-1/1", "d-1/1"], {"u0": 1, "u1": 1})
        assert one.lane.held.total() == 2

"""The lane: one batch in flight, numbered, given up when Redis is slow."""

import asyncio
from dataclasses import replace
from typing import Any

import orjson

from slb.balance.asking import Turn
from slb.control import keys
from slb.control.scripts import ledger_source
from tests.redis.ledger_rig import PATIENT, POOL, SHORT, Books, Instance, batches, upstreams
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

HASTY = replace(SHORT, budget=0.1, deadline=0.5)
TURN = Turn("", 1, 100)


def run_again(valkey: Valkey, batch: dict[str, Any]) -> dict[str, Any]:
    """Have Redis run a batch of any holder."""
    pool_keys = keys.pool_keys(POOL)
    reply = valkey.admin.eval(
        ledger_source(), len(pool_keys), *pool_keys, orjson.dumps(batch), "slb:granted:", POOL
    )
    found: dict[str, Any] = orjson.loads(reply)
    return found


async def test_what_arrives_while_a_batch_is_in_flight_goes_together_with_the_next(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT) as one:
        before = len(batches(one))
        one.freeze()
        first = one.ask(upstreams(3))
        await eventually(lambda: one.lane.in_flight, what="in flight")
        asked = [one.ask(upstreams(3)) for _ in range(100)]
        one.lane.release("u2")
        one.thaw()
        await asyncio.gather(first.answer, *(each.answer for each in asked))
        assert [len(batch["asks"]) for batch in batches(one)[before:]] == [1, 100]


async def test_a_batch_carries_at_most_256_asks_in_the_order_they_came(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT) as one:
        before = len(batches(one))
        asked = [one.ask(upstreams(1, 300)) for _ in range(600)]
        answers = [await each.answer for each in asked]
        assert [len(batch["asks"]) for batch in batches(one)[before:]] == [256, 256, 88]
        assert answers == ["u0"] * 300 + ["refused: pool_saturated"] * 300


async def test_releases_of_a_batch_come_before_its_asks(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT) as one:
        assert await one.get(upstreams(1, 1)) == "u0"
        asked = one.ask(upstreams(1, 1))
        one.lane.release("u0")
        assert await asked.answer == "u0"
        assert batches(one)[-1]["release"] == {"u0": 1}


async def test_a_batch_with_a_lower_or_equal_number_is_rejected(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", PATIENT) as one:
        await one.get(upstreams(1))
        await one.get(upstreams(1))
        assert {batch["seq"] for batch in batches(one)} == {1, 2, 3}
        for batch in batches(one):
            assert run_again(valkey, batch)["stale"]
        assert books.scores() == {"u0": 2}


async def test_a_call_given_up_on_a_frozen_server_changes_nothing_in_the_end(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", HASTY) as one:
        assert await one.get(upstreams(2)) in {"u0", "u1"}
        valkey.freeze()
        for member in list(one.lane.held):
            one.lane.release(member)
        asked = [one.ask(upstreams(2)) for _ in range(20)]
        await eventually(lambda: len(one.undecided) == 20, what="given up")
        valkey.thaw()
        await eventually(lambda: one.lane.state.ready, what="ready")
        await books.score({})
        assert not any(each.answer.done() for each in asked)


async def test_with_a_frozen_server_asks_are_handed_back_while_it_is_still_frozen(valkey: Valkey) -> None:
    async with Instance(valkey, "a", HASTY) as one:
        valkey.freeze()
        one.ask(upstreams(2))
        one.ask(upstreams(2))
        await eventually(lambda: len(one.undecided) == 2, what="handed back")
        assert (one.lane.state.late, one.changes) == (True, [(True, False)])
        valkey.thaw()
        await eventually(lambda: not one.lane.state.late, what="in time again")


async def test_an_ask_joins_a_flying_batch_only_for_its_own_budget(valkey: Valkey) -> None:
    """One in flight without an ask has the longer deadline; the ask that finds it there does not wait for that."""
    async with Instance(valkey, "a", replace(HASTY, beat=60.0, deadline=60.0)) as one:
        assert await one.get(upstreams(1)) == "u0"
        valkey.freeze()
        one.lane.release("u0")
        await eventually(lambda: one.lane.in_flight, what="in flight")
        one.ask(upstreams(1))
        await eventually(lambda: len(one.undecided) == 1, what="handed back")
        valkey.thaw()


async def test_a_server_that_answers_again_is_sent_what_was_held_meanwhile(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", HASTY) as one:
        valkey.freeze()
        one.ask(upstreams(2))
        await eventually(lambda: not one.lane.state.ready, what="local")
        one.lane.held["u1"] += 3
        one.lane.send_all()
        valkey.thaw()
        await books.score({"u1": 3})
        await eventually(lambda: one.lane.state.ready, what="shared again")


async def test_tickets_that_wait_when_the_server_freezes_are_handed_back_in_order_and_leave_redis(
    valkey: Valkey,
) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", HASTY) as one:
        await one.get(upstreams(1, 1))
        waiting = [await one.queue(upstreams(1, 1), TURN) for _ in range(3)]
        valkey.freeze()
        await eventually(lambda: not one.lane.state.ready, what="local")
        assert one.undecided == waiting
        valkey.thaw()
        await eventually(lambda: one.lane.state.ready and not books.tickets(), what="no tickets")


async def test_a_forgotten_script_is_loaded_again(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT) as one:
        valkey.admin.script_flush()
        assert await one.get(upstreams(1)) == "u0"
        assert one.changes == []


async def test_a_grant_to_a_ticket_that_left_meanwhile_is_given_back_in_the_next_batch(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", PATIENT) as one:
        one.freeze()
        asked = one.ask(upstreams(1, 1))
        await eventually(lambda: asked in one.lane.slots.asks.flying, what="in flight")
        one.lane.leave(asked)
        one.thaw()
        await eventually(lambda: books.seq("a-1") == 3, what="the next batch")
        assert books.scores() == {}
        assert await one.get(upstreams(1, 1)) == "u0"
        assert not asked.answer.done()


async def test_candidates_of_a_route_that_is_none_any_more_are_kept_while_tickets_wait_there(
    valkey: Valkey,
) -> None:
    async with Instance(valkey, "a", PATIENT) as one:
        assert await one.get(upstreams(1, 1), view="/gone") == "u0"
        waits = await one.queue(upstreams(1, 1), TURN, view="/gone")
        one.lane.keep_views(())
        assert len(one.lane.slots.views) == 1
        one.lane.release("u0")
        assert await waits.answer == "u0"
        one.lane.keep_views(())
        assert len(one.lane.slots.views) == 0
        one.lane.release("u0")
        assert await one.get(upstreams(1)) == "u0"

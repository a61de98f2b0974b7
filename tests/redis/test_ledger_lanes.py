"""The lane: one batch in flight, numbered; what becomes of it when Redis freezes, forgets or goes back in time."""

import asyncio
import shutil
from dataclasses import replace
from typing import Any

import orjson

from slb.balance.asking import Turn
from slb.control import keys
from slb.control.scripts import ledger_source
from tests.redis.ledger_rig import PATIENT, POOL, SHORT, Books, Instance, upstreams
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

HASTY = replace(SHORT, budget=0.1, deadline=0.5)
TURN = Turn("", 1, 100)


def batches(instance: Instance) -> list[dict[str, Any]]:
    """What its lane has sent, as the script reads it."""
    calls = [command for command in instance.connection.sent if command[0] == "EVALSHA"]
    return [orjson.loads(command[-3]) for command in calls]


def run_again(valkey: Valkey, batch: dict[str, Any]) -> dict[str, Any]:
    """Have Redis run a batch, whoever's it is."""
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
        await eventually(lambda: one.lane._limit is not None, what="in flight")
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
            assert run_again(valkey, batch) == {"stale": True}
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
        await eventually(lambda: one.lane.ready, what="ready")
        await books.score({})
        assert not any(each.answer.done() for each in asked)


async def test_with_a_frozen_server_asks_are_handed_back_while_it_is_still_frozen(valkey: Valkey) -> None:
    async with Instance(valkey, "a", HASTY) as one:
        valkey.freeze()
        one.ask(upstreams(2))
        one.ask(upstreams(2))
        await eventually(lambda: len(one.undecided) == 2, what="handed back")
        assert one.changes == [(False, False)]
        valkey.thaw()


async def test_an_ask_joins_a_flying_batch_only_for_its_own_budget(valkey: Valkey) -> None:
    """One in flight without an ask has the longer deadline; the ask that finds it there does not wait for that."""
    async with Instance(valkey, "a", replace(HASTY, beat=60.0, deadline=60.0)) as one:
        assert await one.get(upstreams(1)) == "u0"
        valkey.freeze()
        one.lane.release("u0")
        await eventually(lambda: one.lane._limit is not None, what="in flight")
        one.ask(upstreams(1))
        await eventually(lambda: len(one.undecided) == 1, what="handed back")
        valkey.thaw()


async def test_a_server_that_answers_again_is_told_what_was_held_meanwhile(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", HASTY) as one:
        valkey.freeze()
        one.ask(upstreams(2))
        await eventually(lambda: not one.lane.ready, what="local")
        one.lane.held["u1"] += 3
        one.lane.say_all()
        valkey.thaw()
        await books.score({"u1": 3})
        assert one.lane.ready


async def test_who_waited_when_the_server_froze_is_handed_back_in_order_and_waits_no_more_in_redis(
    valkey: Valkey,
) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", HASTY) as one:
        await one.get(upstreams(1, 1))
        waiting = [await one.queue(upstreams(1, 1), TURN) for _ in range(3)]
        valkey.freeze()
        await eventually(lambda: not one.lane.ready, what="local")
        assert one.undecided == waiting
        valkey.thaw()
        await eventually(lambda: one.lane.ready and not books.tickets(), what="no tickets")


async def test_a_forgotten_script_is_loaded_again(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT) as one:
        valkey.admin.script_flush()
        assert await one.get(upstreams(1)) == "u0"
        assert one.changes == []


async def test_a_redis_that_is_emptied_is_rebuilt_from_what_is_held(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a") as one, Instance(valkey, "b") as other:
        for turn in range(6):
            await (one, other)[turn % 2].get(upstreams(2))
        valkey.admin.flushall()
        await books.score({"u0": 3, "u1": 3})
        assert sum(books.held("a-1").values()) == 3
        assert sum(books.held("b-1").values()) == 3


async def test_a_redis_that_restarts_empty_is_rebuilt_from_what_is_held(valkey: Valkey) -> None:
    async with Instance(valkey, "a") as one, Instance(valkey, "b") as other:
        for turn in range(6):
            await (one, other)[turn % 2].get(upstreams(2))
        valkey.kill()
        await eventually(lambda: not one.lane.ready and not other.lane.ready, what="local")
        valkey.lose_data()
        valkey.start()
        await Books(valkey).score({"u0": 3, "u1": 3})


async def test_a_redis_restored_with_old_data_is_put_right_by_what_is_held(valkey: Valkey) -> None:
    books = Books(valkey)
    valkey.admin.config_set("appendfsync", "always")
    saved = valkey.directory.with_name(valkey.directory.name + "-saved")
    async with Instance(valkey, "a") as one, Instance(valkey, "b") as other:
        old = [await (one, other)[turn % 2].get(upstreams(2)) for turn in range(8)]
        shutil.copytree(valkey.directory / "appendonlydir", saved)
        for turn, member in enumerate(old):
            (one, other)[turn % 2].lane.release(member)
        assert {await one.get(upstreams(1)) for _ in range(2)} == {"u0"}
        await books.score({"u0": 2})
        valkey.kill()
        await eventually(lambda: not one.lane.ready and not other.lane.ready, what="local")
        valkey.lose_data()
        shutil.move(saved, valkey.directory / "appendonlydir")
        valkey.start()
        await Books(valkey).score({"u0": 2})


async def test_after_a_loss_capped_pools_settle_until_every_known_holder_has_pushed(valkey: Valkey) -> None:
    patient = replace(SHORT, settle=60.0)
    async with Instance(valkey, "a", patient) as one, Instance(valkey, "b", patient) as other:
        await eventually(lambda: one.lane.holders == 2 and other.lane.holders == 2, what="two holders known")
        await other.get(upstreams(1))
        other.freeze()
        valkey.admin.flushall()
        await eventually(lambda: one.changes[-1:] == [(True, True)], what="settling")
        looks = len(one.connection.sent)
        await eventually(lambda: len(one.connection.sent) > looks + 5, what="looks")
        assert one.lane.settling
        other.thaw()
        await eventually(lambda: one.changes[-1] == (True, False), what="settled")
        assert Books(valkey).scores() == {"u0": 1}


async def test_who_does_not_come_back_is_waited_for_no_longer_than_the_settling_time(valkey: Valkey) -> None:
    brief = replace(SHORT, settle=0.3)
    async with Instance(valkey, "a", brief) as one:
        async with Instance(valkey, "b", brief):
            await eventually(lambda: one.lane.holders == 2, what="two holders known")
        valkey.admin.flushall()
        await eventually(lambda: one.changes[-2:] == [(True, True), (True, False)], what="settled")


async def test_a_loss_that_a_beat_is_the_first_to_meet_is_noticed_too(valkey: Valkey) -> None:
    """A beat says all that is held: it must not pass for the first word of a new instance."""
    async with Instance(valkey, "a", replace(SHORT, look=60.0, settle=60.0)) as one:
        await one.get(upstreams(1))
        await one.told()
        valkey.admin.flushall()
        one.lane.say_all()
        await eventually(lambda: (True, True) in one.changes, what="settling")
        await Books(valkey).score({"u0": 1})


async def test_what_is_granted_to_who_left_meanwhile_is_given_back_in_the_next_batch(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", PATIENT) as one:
        one.freeze()
        asked = one.ask(upstreams(1, 1))
        await eventually(lambda: asked in one.lane._flying, what="in flight")
        one.lane.leave(asked)
        one.thaw()
        await eventually(lambda: books.seq("a-1") == 3, what="the next batch")
        assert books.scores() == {}
        assert await one.get(upstreams(1, 1)) == "u0"
        assert not asked.answer.done()

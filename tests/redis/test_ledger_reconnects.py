"""A connection that is cut, a reply that is lost, a server that serves nothing for a moment: nothing is lost by it,
nothing given out twice, and each ticket keeps its place."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
import pytest
from redis.exceptions import ResponseError

from slb.balance.asking import Turn
from slb.control import parts
from slb.control.script_line import ScriptLine
from slb.control.wire import OnReply
from tests.redis.ledger_rig import PATIENT, POOL, Books, Instance, Request, batches, upstreams
from tests.support.relay import Relay
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, patience

TURN = Turn("", 1, 100)
ONE = upstreams(1, 1)
HASTY = replace(PATIENT, budget=0.1, silence=0.6, deadline=0.5)


def stand_still(seconds: float) -> None:
    """Nothing in this process runs for so long."""
    time.sleep(seconds)


async def test_what_was_granted_in_a_reply_that_was_lost_is_granted_once(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", PATIENT) as one:
        one.connection.loses_replies = True
        assert await one.get(upstreams(3, 1)) in {"u0", "u1", "u2"}
        await one.sent_all()
        assert sum(books.scores().values()) == one.lane.held.total() == 1
        assert one.changes == []


async def test_a_ticket_whose_place_was_in_a_lost_reply_waits_once(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", PATIENT) as one:
        assert await one.get(ONE) == "u0"
        one.connection.loses_replies = True
        waits = await one.queue(ONE, TURN)
        assert len(books.tickets()) == 1
        one.lane.release("u0")
        assert await waits.answer == "u0"
        await books.score({"u0": 1})


async def test_a_release_whose_reply_was_lost_is_counted_once(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", PATIENT) as one:
        for _ in range(2):
            await one.get(upstreams(1, 2))
        one.connection.loses_replies = True
        one.lane.release("u0")
        await books.score({"u0": 1})
        await one.sent_all()
        assert books.scores() == {"u0": 1}


async def test_a_grant_in_a_reply_that_was_lost_goes_to_its_ticket_and_to_none_behind_it(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", PATIENT) as one, Instance(valkey, "b", PATIENT) as other:
        assert await other.get(ONE) == "u0"
        first, second = await one.queue(ONE, TURN), await other.queue(ONE, TURN)
        one.freeze()
        other.lane.release("u0")
        await eventually(lambda: bool(books.grants()), what="granted")
        one.connection.loses_replies = True
        one.thaw()
        assert await first.answer == "u0"
        assert not second.answer.done()
        await books.score({"u0": 1})


@pytest.mark.parametrize("lost", [False, True])
async def test_a_long_queue_is_sent_again_in_parts_and_asks_that_come_meanwhile_stand_behind_it(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    monkeypatch.setattr(parts, "MOST_ASKS", 4)
    books = Books(valkey)
    async with Instance(valkey, "a", replace(PATIENT, look=600.0), reaping=False) as one:
        assert await one.get(ONE) == "u0"
        asked = [await one.queue(ONE, TURN) for _ in range(11)]
        one.lane.slots.asks.leave(asked.pop(5))  # as if the batch with its departure had been lost
        if lost:
            names = [f"queue:{name}" for name in ("tickets", "number", "line:*", "lines:*", "heads:*", "class:*")]
            books.redis.delete(*(key for name in names for key in books.redis.keys(f"slb:{{{POOL}}}:{name}")))
        before = len(batches(one))
        one.connection.loses_replies = True
        asked.append(await one.queue(ONE, TURN))
        sent = [(len(batch["waiting"]), len(batch["asks"])) for batch in batches(one)[before:]]
        assert sent == [(0, 1), (0, 0), (4, 0), (4, 0), (2, 1)]
        assert len(books.tickets()) == len(asked)
        for each in asked:
            one.lane.release("u0")
            assert await each.answer == "u0"
            assert sum(other.answer.done() for other in asked) == asked.index(each) + 1


async def test_a_ticket_keeps_its_place_when_all_connections_are_cut(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT) as one, Instance(valkey, "b", PATIENT) as other:
        pair = (one, other)
        assert await one.get(ONE) == "u0"
        waiting = [await pair[turn % 2].queue(ONE, TURN) for turn in range(4)]
        valkey.admin.client_kill_filter(_type="normal")
        one.lane.release("u0")
        for turn, each in enumerate(waiting):
            assert await each.answer == "u0"
            assert sum(other.answer.done() for other in waiting) == turn + 1
            pair[turn % 2].lane.release("u0")
        assert one.changes == other.changes == []


def restart(valkey: Valkey) -> None:
    valkey.kill()
    valkey.start()


@pytest.mark.parametrize("loss", [restart, lambda valkey: valkey.admin.flushall()])
async def test_a_ticket_keeps_its_place_over_a_restart_and_even_over_the_loss_of_all_data(
    valkey: Valkey, loss: Callable[[Valkey], object]
) -> None:
    valkey.admin.config_set("appendfsync", "always")
    async with Instance(valkey, "a", PATIENT) as one, Instance(valkey, "b", PATIENT) as other:
        pair = (one, other)
        assert await one.get(ONE) == "u0"
        waiting = [await pair[turn % 2].queue(ONE, TURN) for turn in range(4)]
        loss(valkey)
        late = other.ask(ONE, TURN, patient=True)
        await eventually(lambda: len(Books(valkey).tickets()) == 5, what="all wait again")
        for turn, each in enumerate(waiting):
            pair[(turn - 1) % 2 if turn else 0].lane.release("u0")
            assert await each.answer == "u0"
        assert not late.answer.done()
        assert one.lane.state.ready
        assert other.lane.state.ready


async def test_a_server_that_is_a_replica_for_a_moment_is_waited_for(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT) as one:
        valkey.admin.config_set("replica-serve-stale-data", "yes")
        valkey.admin.replicaof("127.0.0.1", "1")
        asked = one.ask(ONE, patient=True)
        sent = len(one.connection.sent)
        await eventually(lambda: len(one.connection.sent) > sent + 4, what="tried again")
        assert not asked.answer.done()
        valkey.admin.replicaof("NO", "ONE")
        assert await asked.answer == "u0"
        assert one.undecided == []


async def test_where_redis_refuses_for_good_no_request_waits(valkey: Valkey) -> None:
    command: Any = valkey.admin.execute_command
    command("ACL", "SETUSER", "slb", "on", ">secret", "~*", "&*", "+@all")
    async with Instance(valkey, "a", PATIENT, url=f"{valkey.url}?username=slb&password=secret") as one:
        command("ACL", "SETUSER", "slb", "-evalsha")
        asked = one.ask(ONE, TURN, patient=True)
        await eventually(lambda: one.undecided == [asked], what="handed back")
        assert not one.lane.state.ready
        command("ACL", "SETUSER", "slb", "+evalsha")
        await eventually(lambda: one.lane.state.ready, what="back")


async def test_each_answer_on_the_way_to_another_connection_ends_the_silence_of_a_distant_redis(
    valkey: Valkey,
) -> None:
    """It answers each step in time, and all of them together take longer than it may be silent."""
    round_trip = patience(0.2)
    timing = replace(PATIENT, budget=0.05, silence=2.5 * round_trip)
    async with (
        Relay(valkey.process.socket, round_trip / 2) as relay,
        Instance(valkey, "a", timing, reaping=False, url=relay.url) as one,
    ):
        asked = one.ask(ONE, TURN, patient=True)
        for cuts in range(4):
            says_all = partial(_full_batches, one, len(batches(one)))
            await eventually(says_all if cuts else lambda: one.lane.in_flight, what="a batch in flight")
            relay.point_to(valkey.process.socket)
        await eventually(lambda: asked.answer.done() or bool(one.undecided), what="decided")
        assert one.undecided == []


async def test_a_distant_redis_that_was_away_is_found_again(valkey: Valkey) -> None:
    round_trip = patience(0.2)
    timing = replace(PATIENT, budget=0.05, silence=1.4 * round_trip, deadline=1.4 * round_trip)
    async with (
        Relay(valkey.process.socket, round_trip / 2) as relay,
        Instance(valkey, "a", timing, reaping=False, url=relay.url) as one,
    ):
        relay.point_to(None)
        one.lane.send_all()
        await eventually(lambda: not one.lane.state.ready, what="alone")
        relay.point_to(valkey.process.socket)
        await eventually(lambda: one.lane.state.ready, what="back")


def _full_batches(instance: Instance, since: int) -> bool:
    return any(batch["full"] for batch in batches(instance)[since:])


async def test_a_redis_that_answers_and_never_serves_is_not_waited_for(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends its identity on each connection, and refuses what comes behind that."""
    async with Instance(valkey, "a", HASTY, reaping=False) as one:
        sent = ScriptLine.send

        def send(line: ScriptLine, keys: Sequence[str], args: Sequence[Any], on_reply: OnReply, *more: Any) -> None:
            if orjson.loads(args[0]).get("fresh"):
                sent(line, keys, args, on_reply, *more)
            else:
                on_reply(ResponseError("BUSY"))

        monkeypatch.setattr(ScriptLine, "send", send)
        asked = one.ask(ONE, TURN, patient=True)
        await eventually(lambda: one.undecided == [asked], what="handed back")


async def test_the_patient_are_handed_back_when_redis_has_not_answered_for_long(valkey: Valkey) -> None:
    async with Instance(valkey, "a", HASTY) as one:
        waits = (await one.get(ONE), await one.queue(ONE, TURN, patient=True))[1]
        valkey.freeze()
        hurried, patient = one.ask(ONE), one.ask(ONE, patient=True)
        await eventually(lambda: one.undecided == [hurried], what="the hurried first")
        assert (one.lane.state.ready, one.lane.state.late) == (True, True)
        await eventually(lambda: one.undecided == [hurried, waits, patient], what="all")
        assert one.changes == [(True, False), (False, False)]
        valkey.thaw()
        await eventually(lambda: one.lane.state.ready, what="back")


async def test_redis_that_refuses_connections_has_not_answered_for_long_either(valkey: Valkey) -> None:
    async with Instance(valkey, "a", HASTY) as one:
        valkey.kill()
        asked = one.ask(ONE, TURN, patient=True)
        await eventually(lambda: one.undecided == [asked], what="handed back")
        assert not one.lane.state.ready
        assert "valkey.sock" in one.lane.state.error
        valkey.start()
        await eventually(lambda: one.lane.state.ready, what="back")


async def test_time_in_which_this_process_stood_still_is_not_the_silence_of_redis(valkey: Valkey) -> None:
    """Stopped (SIGSTOP) while it reaches no Redis, it goes on when the time to wait for one has passed: by then
    Redis has long been there, and gives its slots to others."""
    async with Instance(valkey, "a", HASTY) as one:
        one.freeze()
        waits = one.ask(ONE, TURN, patient=True)
        await eventually(lambda: one.lane.in_flight, what="a batch under way")
        stand_still(2 * HASTY.silence)
        await asyncio.sleep(HASTY.silence / 4)
        one.thaw()
        assert await waits.answer == "u0"
        assert all(ready for ready, _ in one.changes)
        assert one.undecided == []


async def test_late_is_over_with_the_first_answer(valkey: Valkey) -> None:
    async with Instance(valkey, "a", replace(HASTY, silence=10.0)) as one:
        valkey.freeze()
        hurried, patient = one.ask(upstreams(1, 2)), one.ask(upstreams(1, 2), patient=True)
        await eventually(lambda: one.undecided == [hurried], what="handed back")
        assert not one.lane.takes(hurried)
        assert one.lane.takes(patient)
        valkey.thaw()
        assert await patient.answer == "u0"
        assert one.lane.takes(hurried)


async def test_while_holders_have_not_sent_what_they_hold_patient_asks_wait_and_then_are_decided(
    valkey: Valkey,
) -> None:
    settling = replace(PATIENT, settle=60.0)
    async with Instance(valkey, "a", settling) as one, Instance(valkey, "b", settling) as other:
        one.lane.send_all()
        await eventually(lambda: one.lane.epochs.holders == 2, what="both known")
        assert await other.get(ONE) == "u0"
        other.freeze()
        valkey.admin.flushall()
        one.lane.send_all()
        await eventually(lambda: one.changes == [(True, True)], what="settling")
        asked, hurried = one.ask(ONE, patient=True), Request(ONE)
        assert not one.lane.takes(hurried)
        assert await one.get(upstreams(1), view="/uncapped") == "u0"
        assert not asked.answer.done()
        other.thaw()
        other.lane.send_all()
        assert await asked.answer == "refused: pool_saturated"
        assert one.changes == [(True, True), (True, False)]


async def test_until_an_instance_decides_alone_it_asks_often_enough_to_see_a_refusal_end(valkey: Valkey) -> None:
    """With the pauses of one that decides alone it would ask again when its patience is over."""
    timing = replace(PATIENT, silence=120.0, backoff=600.0, longest_backoff=600.0, longest_retry=0.02)
    async with Instance(valkey, "a", timing) as one:
        valkey.kill()
        waits, failures = one.ask(ONE, TURN, patient=True), set[int]()

        def fails_again() -> bool:
            failures.add(id(one.lane.state._failure))
            return len(failures) > 4

        await eventually(fails_again, what="attempts that fail")
        valkey.start()
        assert await waits.answer == "u0"
        assert all(ready for ready, _ in one.changes)

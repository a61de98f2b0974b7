"""A grant in a message is used at once: whatever becomes of messages, replies and connections, no slot
is given twice, and none is lost."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random

import pytest
from structlog.testing import capture_logs

from slb.control import keys
from slb.control.lane_timing import SPARE
from slb.control.scripts import Reap
from tests.redis import ledger_rig
from tests.redis.ledger_rig import PATIENT, POOL, Books, upstreams
from tests.redis.stepped_lanes import TURN, Fleet, Instance
from tests.support.acl import acl_rules
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

STEPS = 500
IN_SCRIPTS = ("get", "time", "hget", "hmget", "hset", "hdel", "hlen", "hexists", "zadd", "zcard", "zscore", "zrem")
ACKNOWLEDGES = 13
"""Commands, at most, that acknowledge one grant."""
MOST_ASKED = 8
"""By one instance at once."""


async def step(fleet: Fleet, one: Instance, rng: Random) -> None:
    """Something happens to one of them that may."""
    number, call = rng.randrange(1 << 16), one.awaits
    may: dict[str, tuple[float, Callable[[], Awaitable[None]]]] = {
        "look": (0.2, lambda: fleet.look(one)),
        "beat": (0.2, lambda: fleet.beat(one, full=number % 3 == 0)),
        "lapse": (0.2, fleet.lapse),
    }
    if len(one.requests) + len(one.running) < MOST_ASKED:
        may["ask"] = 2, lambda: fleet.ask(one)
    if one.running:
        may["end"] = 2, lambda: fleet.end(one, number)
    if one.requests:
        may["leave"] = 0.2, lambda: fleet.leave(one, number)
    if call is not None:
        may["cut"] = 0.1, lambda: fleet.cut(one)
        may["call"] = 2, lambda: fleet.run(one) if call.reply is None else fleet.answer(one)
    if one.messages:
        may["receive"] = 4, lambda: fleet.receive(one, number, again=number % 3 == 0)
        may["lose"] = 0.2, lambda: fleet.lose(one, number)
    (what,) = rng.choices(list(may), [weight for weight, _ in may.values()])
    await may[what][1]()


@pytest.mark.parametrize("seed", range(8))
async def test_no_slot_is_given_twice_and_none_is_lost_whatever_becomes_of_messages(
    valkey: Valkey, seed: int
) -> None:
    rng = Random(seed)
    async with Fleet(valkey, count=3, members=3, capacity=1 + seed % 2) as fleet:
        for number in range(STEPS):
            await step(fleet, rng.choice(fleet.instances), rng)
            assert not fleet.held() or max(fleet.held().values()) <= fleet.capacity, f"step {number}"
            if number % 50 == 0:
                await fleet.have_all_looked()
                assert fleet.books.scores() == fleet.held()
        await drain(fleet)
        assert (fleet.books.scores(), fleet.books.tickets()) == ({}, [])
        assert sum(each.taken for each in fleet.instances) > STEPS / 50
        assert sum(each.late for each in fleet.instances) == 0


async def drain(fleet: Fleet) -> None:
    """All that is asked is served, by looking alone."""
    for each in fleet.instances:
        each.messages.clear()
    while any(each.requests or each.running for each in fleet.instances):
        for each in fleet.instances:
            while each.running:
                await fleet.end(each, 0)
        await fleet.have_all_looked()


async def granted_by_message(fleet: Fleet) -> Instance:
    """The first of two waits for the slot that the other gives back, and has been sent a message of it."""
    waits, other = fleet.instances
    for each in (other, waits):
        await fleet.ask(each)
        await fleet.come_to_rest()
    await fleet.end(other, 0)
    await fleet.come_to_rest()
    assert len(waits.messages) == len(waits.requests) == 1
    return waits


async def test_a_grant_is_used_before_redis_is_asked_and_acknowledged_by_the_next_batch(
    valkey: Valkey,
) -> None:
    async with Fleet(valkey, 2, 1, 1) as fleet:
        one = await granted_by_message(fleet)
        await fleet.receive(one, 0, again=True)
        assert ([member for _, member in one.running], fleet.books.grants()) == (["u0"], ["i0-1/1"])
        await fleet.come_to_rest()
        assert (fleet.books.grants(), fleet.books.scores(), one.lane.is_idle) == ([], {"u0": 1}, False)
        await fleet.receive(one, 0, again=False)
        await fleet.come_to_rest()
        assert (fleet.books.scores(), fleet.held()) == ({"u0": 1}, {"u0": 1})


async def taken_while_a_batch_is_in_flight(fleet: Fleet) -> Instance:
    """The same, and it has used it; its next batch waits for a reply."""
    one, other = fleet.instances
    for each in (other, one):
        await fleet.ask(each)
        await fleet.come_to_rest()
    await fleet.look(one)
    await fleet.run(one)
    await fleet.end(other, 0)
    await fleet.run(other)
    await fleet.answer(other)
    await fleet.receive(one, 0, again=False)
    assert one.running
    return one


async def test_what_was_taken_is_counted_once_by_a_batch_with_all_that_is_held(valkey: Valkey) -> None:
    async with Fleet(valkey, 2, 1, 1) as fleet:
        one = await taken_while_a_batch_is_in_flight(fleet)
        await fleet.beat(one, full=True)
        await fleet.come_to_rest()
        assert (fleet.books.grants(), fleet.books.scores(), fleet.held()) == ([], {"u0": 1}, {"u0": 1})


async def test_what_was_taken_is_counted_once_where_the_connection_breaks(valkey: Valkey) -> None:
    async with Fleet(valkey, 2, 1, 1) as fleet:
        one = await granted_by_message(fleet)
        await fleet.receive(one, 0, again=False)
        await fleet.run(one)
        await fleet.cut(one)
        await fleet.come_to_rest()
        assert (fleet.books.grants(), fleet.books.scores(), one.late) == ([], {"u0": 1}, 0)


async def test_a_ticket_that_leaves_while_its_message_is_on_the_way_gets_nothing(valkey: Valkey) -> None:
    async with Fleet(valkey, 2, 1, 1) as fleet:
        one = await granted_by_message(fleet)
        await fleet.leave(one, 0)
        await fleet.receive(one, 0, again=False)
        await fleet.come_to_rest()
        assert (fleet.held(), fleet.books.scores(), fleet.books.grants()) == ({}, {}, [])


async def test_a_grant_that_was_taken_back_before_it_is_acknowledged_counts_beside_the_next(valkey: Valkey) -> None:
    async with Fleet(valkey, 2, 1, 1) as fleet:
        one, other = await granted_by_message(fleet), fleet.instances[1]
        await fleet.ask(other)
        await fleet.come_to_rest()
        await fleet.receive(one, 0, again=False)
        await fleet.reap(patience=-1)
        await fleet.look(other)
        await fleet.run(other)
        await fleet.answer(other)
        await fleet.come_to_rest()
        assert (fleet.held(), fleet.books.scores(), one.late) == ({"u0": 2}, {"u0": 2}, 1)
        assert (fleet.books.tickets(), fleet.books.grants()) == ([], [])


async def test_a_grant_that_was_taken_back_and_has_ended_by_now_is_not_counted(valkey: Valkey) -> None:
    async with Fleet(valkey, 2, 1, 1) as fleet:
        one = await taken_while_a_batch_is_in_flight(fleet)
        await fleet.reap(patience=-1)
        await fleet.end(one, 0)
        await fleet.come_to_rest()
        assert (fleet.held(), fleet.books.scores(), one.late) == ({}, {}, 1)


async def used_and_taken_back_behind_a_look(fleet: Fleet) -> Instance:
    """The first uses u0, which Redis has taken back and given to the other, before it could acknowledge it: a look
    of before is still to be run. The other has u1 too."""
    one, other = fleet.instances
    for each in (other, other, one):
        await fleet.ask(each)
        await fleet.come_to_rest()
    await fleet.look(one)
    await fleet.end(other, [member for _, member in other.running].index("u0"))
    for _ in range(2):
        await fleet.run(other)
        await fleet.answer(other)
    await fleet.receive(one, 0, again=False)
    await fleet.reap(patience=-1)
    await fleet.ask(other)
    for _ in range(2):
        await fleet.run(other)
        await fleet.answer(other)
    assert (fleet.held(), fleet.books.scores()) == ({"u0": 2, "u1": 1}, {"u0": 1, "u1": 1})
    return one


@pytest.mark.parametrize("when", ["behind the look", "by the look"])
async def test_a_grant_that_was_taken_back_and_made_anew_elsewhere_before_it_is_acknowledged_counts_once(
    valkey: Valkey, when: str
) -> None:
    """The new one is given back: by the acknowledgement, or by the instance where the look's reply had it."""
    async with Fleet(valkey, 2, 2, 1) as fleet:
        one, other = await used_and_taken_back_behind_a_look(fleet), fleet.instances[1]
        if when == "behind the look":
            await fleet.run(one)
        await fleet.end(other, [member for _, member in other.running].index("u1"))
        await fleet.run(other)
        await fleet.answer(other)
        assert (fleet.books.grants(), fleet.books.scores()["u0"]) == (
            ["i0-1/1"] if when == "behind the look" else [],
            1,
        )
        await fleet.come_to_rest()
        assert (fleet.held(), fleet.books.scores(), one.late) == ({"u0": 2}, {"u0": 2}, 1)
        assert (fleet.books.tickets(), fleet.books.grants()) == ([], [])


async def test_a_grant_reaches_its_request_in_the_turn_that_reads_the_message_and_is_acknowledged_behind_that(
    valkey: Valkey,
) -> None:
    async with Fleet(valkey, 2, 1, 1) as fleet:
        one = await granted_by_message(fleet)
        (waits,) = one.requests
        one.lane.receive(one.messages.pop())
        assert (waits.answer.result(), one.awaits) == ("u0", None)
        await fleet.turn()
        assert one.awaits is not None


async def test_to_acknowledge_a_grant_costs_redis_few_commands(valkey: Valkey) -> None:
    async with Fleet(valkey, 2, 1, 1) as fleet:
        one = await granted_by_message(fleet)
        await fleet.receive(one, 0, again=False)
        valkey.admin.config_resetstat()
        await fleet.run(one)
        stats = valkey.admin.info("commandstats")
        assert sum(stats[name]["calls"] for name in stats if name.partition("_")[2] in IN_SCRIPTS) <= ACKNOWLEDGES
        assert (fleet.books.grants(), fleet.books.scores()) == ([], {"u0": 1})
        await fleet.come_to_rest()
        assert one.lane.in_flight is False
        assert one.late == 0


async def test_the_reply_to_an_acknowledgement_brings_a_grant_whose_message_was_lost(valkey: Valkey) -> None:
    async with Fleet(valkey, 2, 2, 1) as fleet:
        one, other = fleet.instances
        for each in (other, other, one, one):
            await fleet.ask(each)
            await fleet.come_to_rest()
        for _ in range(2):
            await fleet.end(other, 0)
            await fleet.come_to_rest()
        await fleet.lose(one, 1)
        await fleet.receive(one, 0, again=False)
        assert (len(one.running), len(one.requests)) == (1, 1)
        await fleet.run(one)
        await fleet.answer(one)
        assert (fleet.held(), fleet.books.grants(), one.requests) == ({"u0": 1, "u1": 1}, [], [])


async def test_a_message_of_another_epoch_is_not_used(valkey: Valkey) -> None:
    async with Fleet(valkey, 2, 1, 1) as fleet:
        one = await granted_by_message(fleet)
        one.messages[0] = one.messages[0]._replace(epoch="another 1")
        await fleet.receive(one, 0, again=False)
        assert one.running == []
        await fleet.come_to_rest()
        assert (len(one.running), one.taken) == (1, 0)


async def test_a_slot_counted_too_late_is_logged(valkey: Valkey) -> None:
    """The ledger's own listener receives it; its lane cannot answer before the grant is taken back."""
    books = Books(valkey)
    frozen = replace(PATIENT, look=60.0)
    async with ledger_rig.Instance(valkey, "a", frozen) as one, ledger_rig.Instance(valkey, "b", frozen) as other:
        channel = keys.GRANTED_CHANNEL + "b"
        await eventually(lambda: valkey.listeners(channel) == 1, what="subscribed")
        assert await one.get(upstreams(1, 1)) == "u0"
        waits = await other.queue(upstreams(1, 1), TURN)
        other.freeze()
        one.lane.release("u0")
        assert await waits.answer == "u0"
        assert books.grants() == ["b-1/1"]
        await Reap(one.connection)(POOL, 60_000, reap_until=0, patience=-1, period=1)
        assert await one.get(upstreams(1, 1)) == "u0"
        with capture_logs() as logs:
            other.thaw()
            await books.score({"u0": 2})
            await eventually(lambda: bool(logs), what="logged")
        assert logs == [{"event": "ledger_late", "log_level": "warning", "pool": POOL, "grants": 1}]
        assert other.metrics.ledger.local_grants == 1


async def test_a_grant_waits_for_longer_than_redis_may_take(valkey: Valkey) -> None:
    async with ledger_rig.Instance(valkey, "a", PATIENT) as one:
        one.ledger.set_patience(budget=0.1, silence=3.0)
        assert (one.lane.timing.silence, one.lane.timing.patience) == (3.0, 3.0 + SPARE)


@pytest.mark.parametrize(
    ("is_left", "reason"),
    [
        pytest.param(lambda rule: not rule.startswith("&"), "channel", id="no channel"),
        pytest.param(lambda rule: rule != "+publish", "command", id="not the command"),
    ],
)
async def test_where_an_acl_forbids_messages_grants_are_found_by_looks(
    valkey: Valkey, is_left: Callable[[str], bool], reason: str
) -> None:
    books, rules = Books(valkey), filter(is_left, acl_rules())
    books.redis.execute_command("ACL", "SETUSER", "slb", "reset", "on", ">secret", *rules)
    url = f"{valkey.url}?username=slb&password=secret"
    fleet = ledger_rig.Instance(valkey, "a", PATIENT, url=url), ledger_rig.Instance(valkey, "b", PATIENT, url=url)
    async with fleet[0] as one, fleet[1] as other:
        assert await one.get(upstreams(1, 1)) == "u0"
        waiting = [await each.queue(upstreams(1, 1), TURN) for each in (other, one, other)]
        for holder, waits in zip((one, other, one), waiting, strict=True):
            holder.lane.release("u0")
            assert await waits.answer == "u0"
            await books.score({"u0": 1})
        assert [each.changes for each in fleet] == [[], []], "each lane is shared all along"
        refused = {(entry["reason"], entry["object"]) for entry in books.redis.acl_log()}
        assert any(why == reason and what.startswith(("slb:granted:", "publish")) for why, what in refused)

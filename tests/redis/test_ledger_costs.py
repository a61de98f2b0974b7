"""What a call costs Redis and the wire does not grow with the upstreams, nor with the queue."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slb.balance.asking import Candidate, Turn
from slb.control import explained, ledger, parts
from slb.control.scripts import Reap
from tests.redis.ledger_rig import PATIENT, POOL, SHORT, Books, Instance, Request, batches, upstreams
from tests.redis.test_ledger_twin import Twins
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

TURN = Turn("", 1, 100_000)
ONE = upstreams(1, 1)
EVER = 1 << 52


def commands(valkey: Valkey) -> int:
    """That Redis has run, those of scripts among them."""
    return sum(each["calls"] for each in valkey.admin.info("commandstats").values())


async def asked_for(one: Instance, count: int, ordered: bool) -> int:
    """Bytes of the second ask of a route with so many upstreams."""
    await one.get(upstreams(count, 3), view=f"/{count}", ordered=ordered)
    await one.get(upstreams(count, 3), view=f"/{count}", ordered=ordered)
    return len(one.connection.sent[-1][-3])


@pytest.mark.parametrize("ordered", [False, True])
async def test_an_ask_is_as_long_whatever_the_number_of_upstreams(valkey: Valkey, ordered: bool) -> None:
    async with Instance(valkey, "a", PATIENT) as one:
        few, many = [await asked_for(one, count, ordered) for count in (10, 1000)]
        assert many < few + 20


async def waiting(one: Instance, count: int) -> list[Request]:
    asked = [one.ask(ONE, TURN) for _ in range(count)]
    await eventually(lambda: all(each.position is not None for each in asked), what="in the queue")
    return asked


async def test_a_beat_and_a_reap_run_as_many_commands_however_many_wait(valkey: Valkey) -> None:
    """A part of the queue is looked at, another one each time."""
    async with Instance(valkey, "a", PATIENT, reaping=False) as one:
        assert await one.get(ONE) == "u0"
        costs = []
        for more in (150, 1350):
            await waiting(one, more)
            valkey.admin.config_resetstat()
            one.lane.slots.builder.beat_due = 0.0
            one.lane.look()
            await one.sent_all()
            await Reap(one.connection)(POOL, 60_000, reap_until=EVER, patience=60_000, period=1)
            costs.append(commands(valkey))
        assert costs[1] < costs[0] * 1.5


PLAIN = {"release": 16, "ask": 22, "look": 9}
WITH_A_QUEUE = {"release": 28, "ask": 23, "look": 10}
"""Commands of one call, at most: each costs Redis about a microsecond, and what is made to call it another."""


async def commands_of(one: Instance, valkey: Valkey, action: Callable[[], object]) -> float:
    """Commands of the call that follows it, the mean of five."""
    valkey.admin.config_resetstat()
    for _ in range(5):
        seq = one.lane.slots.builder._seq
        action()
        one.lane.slots.builder.hurry()
        one.lane.wake()
        await eventually(lambda seq=seq: one.lane.slots.builder._seq > seq)  # type: ignore[misc]
        await one.sent_all()
    stats = valkey.admin.info("commandstats")
    for own in ("cmdstat_config|resetstat", "cmdstat_client|setinfo"):
        stats.pop(own, None)
    calls = int(stats.pop("cmdstat_evalsha")["calls"])
    return float(sum(each["calls"] for each in stats.values())) / calls


@pytest.mark.parametrize("queued", [0, 1000])
@pytest.mark.parametrize("count", [20, 1000])
async def test_a_plain_call_runs_few_commands_however_many_upstreams_there_are_and_wait(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch, count: int, queued: int
) -> None:
    monkeypatch.setattr(explained, "_EVERY", 1e9)
    pods = upstreams(count, 1)
    async with Instance(valkey, "a", replace(PATIENT, look=600.0), reaping=False) as one:
        asked = [one.ask(pods, TURN) for _ in range(count + queued if queued else 10)]
        await eventually(lambda: all(each.answer.done() or each.position is not None for each in asked))
        held = (each.answer.result() for each in asked if each.answer.done())

        found = {
            "release": await commands_of(one, valkey, lambda: one.lane.release(next(held))),
            "ask": await commands_of(one, valkey, lambda: one.ask(pods, TURN)),
            "look": await commands_of(one, valkey, lambda: None),
        }
        most = WITH_A_QUEUE if queued else PLAIN
        assert {name: cost for name, cost in found.items() if cost > most[name]} == {}


async def test_of_many_asks_few_cost_redis_the_telling_of_all_scores(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Instance(valkey, "a", PATIENT, reaping=False) as one:
        for _ in range(explained._BURST):
            await one.get(upstreams(3))
        kept = one.lane.explained.seen[POOL]
        assert kept.scores is not None
        assert sum(kept.scores.values()) == explained._BURST - 1
        monkeypatch.setattr(explained, "_EVERY", 1e9)
        for _ in range(5):
            await one.get(upstreams(3))
        assert not any(batch["explain"] for batch in batches(one)[-5:])
        assert one.lane.explained.seen[POOL] is kept


async def test_candidates_that_were_replaced_cost_redis_nothing_any_more(valkey: Valkey) -> None:
    """Upstreams that come one after another would leave a view each, and each score that changes changes in all."""
    books = Books(valkey)
    async with Instance(valkey, "a", PATIENT, reaping=False) as one, Instance(valkey, "b", PATIENT) as other:
        for count in range(1, 12):
            await one.get(upstreams(count))
        (live,) = books.redis.zrange(books.key["live"], 0, -1)
        assert live.startswith("11-")
        await other.get(upstreams(5))
        await one.get(upstreams(6))
        assert await other.get(upstreams(5)) in {each.member for each in upstreams(5)}
        assert len(books.redis.zrange(books.key["live"], 0, -1)) == 2
        assert books.redis.keys(books.key["view:"] + "11-*") == []


@pytest.mark.parametrize("granted", [1, 15])
async def test_grants_that_others_have_not_taken_up_yet_cost_a_call_two_commands(
    valkey: Valkey, granted: int
) -> None:
    timing, pods = replace(PATIENT, look=600.0, patience=60.0), upstreams(15, 1)
    async with (
        Instance(valkey, "a", timing, reaping=False) as one,
        Instance(valkey, "b", timing, reaping=False) as other,
    ):
        for _ in pods:
            await one.get(pods)
        for _ in range(60):
            await other.queue(pods, TURN)
        for each in pods[:granted]:
            one.lane.release(each.member)
            await one.sent_all()
        assert len(Books(valkey).grants()) == granted
        assert await commands_of(one, valkey, lambda: None) <= WITH_A_QUEUE["look"] + 2
        assert len(Books(valkey).grants()) == granted


async def five_busy(instance: Instance, count: int) -> list[Request]:
    """It holds five upstreams of one slot each, and so many requests wait there."""
    for _ in range(5):
        await instance.get(upstreams(5, 1))
    return [await instance.queue(upstreams(5, 1), TURN) for _ in range(count)]


async def test_with_its_beats_an_instance_sends_all_it_holds_and_its_tickets_in_parts(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "MOST_HELD", 2)
    monkeypatch.setattr(parts, "MOST_WAITING", 2)
    books = Books(valkey)
    async with Instance(valkey, "a", SHORT, reaping=False) as one:
        asked = await five_busy(one, 5)
        books.redis.hset(books.key["held:"] + "a-1", mapping={"u0": 0, "u4": 0})
        books.redis.hset(books.key["tickets"], "a-1/8", "nonsense")
        await eventually(lambda: books.held("a-1") == {f"u{each}": 1 for each in range(5)}, what="put right")
        await eventually(lambda: books.redis.hget(books.key["tickets"], "a-1/8") != "nonsense", what="sent again")
        assert not any(batch["full"] for batch in batches(one)[-2:])
        one.lane.release("u1")
        await eventually(asked[0].answer.done, what="served")
        beats = len(batches(one))
        await eventually(lambda: len(batches(one)) > beats + 20, what="some beats")
        assert not any(batch["full"] for batch in batches(one)[beats:])


@pytest.mark.parametrize("lost", ["tickets", "held"])
async def test_what_a_beat_finds_to_differ_is_sent_whole(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    monkeypatch.setattr(parts, "MOST_WAITING", 2)
    monkeypatch.setattr(parts, "MOST_HELD", 2)
    books = Books(valkey)
    async with Instance(valkey, "a", SHORT, reaping=False) as one:
        asked = await five_busy(one, 9)
        assert len(books.tickets()) == len(asked)
        if lost == "tickets":
            for line in [key for key in books.redis.keys("slb:{/p}:queue:line:*") if "lines" not in key]:
                books.redis.delete(line)
            books.redis.delete(books.key["tickets"])
            await eventually(lambda: len(books.tickets()) == len(asked), what="sent again")
        else:
            books.redis.hset(books.key["held:"] + "a-1", mapping={f"x{each}": 3 for each in range(9)})
            await eventually(lambda: books.held("a-1") == {f"u{each}": 1 for each in range(5)}, what="put right")


async def test_a_dead_holder_of_much_is_taken_apart_in_several_calls_and_nothing_is_left(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_REAP_PERIOD", 0.1)
    books, pods = Books(valkey), upstreams(250, 1)
    async with Instance(valkey, "a") as one, Instance(valkey, "b", reaping=False) as other:
        for each in [other.ask(pods) for _ in range(250)]:
            assert (await each.answer).startswith("u")
        asked = [other.ask(pods, TURN) for _ in range(150)]
        await eventually(lambda: all(each.position is not None for each in asked), what="in the queue")
        mine = await one.queue(pods, TURN)
        await other.die()
        assert (await mine.answer).startswith("u")
        await eventually(lambda: sum(books.scores().values()) == 1, what="all given back")
        await eventually(lambda: not books.tickets(), what="nothing waits")
        await eventually(lambda: not books.redis.exists(books.key["dying"]), what="all gone")
        assert (one.metrics.ledger.reaped, one.metrics.ledger.drift) == (1, 0)


async def test_where_more_can_be_served_than_one_call_serves_the_next_go_on(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT, reaping=False) as one:
        assert await one.get(ONE) == "u0"
        asked = await waiting(one, 700)
        one.lane.view(POOL, upstreams(1, 701))
        await eventually(lambda: all(each.answer.done() for each in asked), what="served")
        assert Books(valkey).scores() == {"u0": 701}


@pytest.mark.parametrize("lost", ["loads:", "places:"])
async def test_an_order_of_candidates_that_redis_has_lost_is_made_anew(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    monkeypatch.setattr(ledger, "_REAP_PERIOD", 0.1)
    books = Books(valkey)
    async with Instance(valkey, "a") as one:
        assert await one.get(ONE) == "u0"
        asked = await one.queue(ONE, TURN)
        books.redis.delete(books.key[lost] + books.redis.zrange(books.key["live"], 0, 0)[0])
        one.lane.release("u0")
        await eventually(asked.answer.done, what="served")
        await eventually(lambda: one.metrics.ledger.repaired == 1, what="counted as repaired")


async def test_a_candidate_that_is_not_to_be_read_is_stored_anew_with_all_others(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_REAP_PERIOD", 0.1)
    books = Books(valkey)
    async with Instance(valkey, "a") as one:
        assert await one.get(ONE) == "u0"
        asked = await one.queue(ONE, TURN)
        books.redis.hset(books.key["view:"] + books.redis.zrange(books.key["live"], 0, 0)[0], "u0", "nonsense")
        await eventually(lambda: one.metrics.ledger.repaired >= 1, what="counted as repaired")
        one.lane.release("u0")
        await eventually(asked.answer.done, what="served")


@pytest.mark.parametrize("lost", ["view:", "live"])
async def test_candidates_that_redis_has_lost_are_sent_again_without_failures(valkey: Valkey, lost: str) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", PATIENT, reaping=False) as one:
        assert await one.get(upstreams(3)) in {"u0", "u1", "u2"}
        for key in [key for key in books.redis.keys("slb:{/p}:*") if key.startswith(books.key[lost])]:
            books.redis.delete(key)
        assert await one.get(upstreams(3)) in {"u0", "u1", "u2"}
        assert one.changes == []


async def test_an_order_longer_than_what_is_sent_goes_on_in_the_order_of_the_route(valkey: Valkey) -> None:
    pods = upstreams(30, 1)
    async with Instance(valkey, "a", PATIENT) as one:
        one.lane.view(POOL, pods)
        rotated = (*pods[25:], *pods[:25])
        taken = []
        for _ in range(30):
            request = Request(rotated, ordered=True)
            one.lane.ask(request)
            await request.answer
            taken.append(request)
        assert [each.answer.result() for each in taken] == [each.member for each in rotated]


PODS = [Candidate(f"u{index:02}", index % 4 * 2, 1 + index % 3) for index in range(70)]
STEPS = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 60), st.integers(0, 3)), max_size=12)


@settings(max_examples=60)
@given(STEPS, st.randoms(use_true_random=False))
def test_every_ask_gets_one_of_the_least_loaded_with_room(
    valkey: Valkey, steps: list[tuple[int, int, int]], rng: Random
) -> None:
    known = getattr(valkey, "_clients", None)
    twins = Twins(known[0] if known else valkey.admin)
    name, rows = f"{len(PODS)}-1", [list(each) for each in PODS]
    held: dict[str, int] = {}
    for asks, releases, avoids in steps:
        freed: dict[str, int] = {}
        for member in rng.sample(sorted(held), min(releases, len(held))):
            freed[member] = 1
            held[member] -= 1
        held = {member: count for member, count in held.items() if count}
        avoid = [each.member for each in rng.sample(PODS, avoids)]
        row: list[Any] = ["", "/x", False, avoid, "", 1, 0, 0, []]
        candidates = {"views": {"/x": name}, "contents": {name: rows}}
        reply = twins.send("w", release=freed, asks=[row] * asks, start=rng.randrange(99), **candidates)
        for answer in reply["answers"]:
            loads = {
                each.member: held.get(each.member, 0) / each.slots
                for each in PODS
                if each.member not in avoid and (not each.capacity or held.get(each.member, 0) < each.capacity)
            }
            assert loads[answer] == min(loads.values())
            held[answer] = held.get(answer, 0) + 1

"""One queue for all instances: a free slot goes to the ticket that waits longest, at whichever instance."""

from dataclasses import replace

import orjson
import pytest

from slb.balance.asking import Candidate, Turn
from slb.control import keys
from slb.control.scripts import ledger_source
from slb.job import CLASS
from tests.redis.ledger_rig import PATIENT, POOL, Books, Instance, Request, upstreams
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

TURN = Turn("", 1, 100)
ONE = upstreams(1, 1)
PUSHED = replace(PATIENT, look=60.0)
"""No instance looks by itself: grants come with a message or a reply."""


pytestmark = pytest.mark.usefixtures("often_reaping")


def answered(requests: list[Request]) -> list[Request]:
    return [each for each in requests if each.answer.done()]


async def subscribed(valkey: Valkey, *fleet: Instance) -> None:
    channels = [keys.GRANTED_CHANNEL + each.name for each in fleet]
    await eventually(lambda: all(count for _, count in valkey.admin.pubsub_numsub(*channels)), what="subscribed")


async def test_first_come_is_first_served_across_instances_and_a_message_grants_the_next(
    valkey: Valkey,
) -> None:
    async with Instance(valkey, "a", PUSHED) as one, Instance(valkey, "b", PUSHED) as other:
        await subscribed(valkey, one, other)
        pair = (one, other)
        assert await one.get(ONE) == "u0"
        waiting = [await pair[turn % 2].queue(ONE, TURN) for turn in range(6)]
        assert [each.position for each in waiting] == [0, 1, 2, 3, 4, 5]
        one.lane.release("u0")
        for turn, each in enumerate(waiting):
            assert await each.answer == "u0"
            assert len(answered(waiting)) == turn + 1
            pair[turn % 2].lane.release("u0")


async def test_a_push_that_is_lost_costs_no_more_than_a_look(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT, reaping=False) as one, Instance(valkey, "b", PATIENT) as other:
        assert await other.get(ONE) == "u0"
        waits = await one.queue(ONE, TURN)  # its grant comes without a message
        other.lane.release("u0")
        assert await waits.answer == "u0"


async def test_a_later_request_does_not_take_a_slot_that_a_waiting_ticket_can_use(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT) as one, Instance(valkey, "b", PATIENT) as other:
        assert await one.get(ONE) == "u0"
        waits = await other.queue(ONE, TURN)
        one.lane.release("u0")
        late = one.ask(ONE)
        assert await late.answer == "refused: pool_saturated"
        assert await waits.answer == "u0"


async def test_the_grant_of_a_ticket_that_has_left_goes_to_the_next(valkey: Valkey) -> None:
    books = Books(valkey)
    async with (
        Instance(valkey, "a", PATIENT, reaping=False) as one,
        Instance(valkey, "b", PUSHED, reaping=False) as deaf,
    ):
        assert await one.get(ONE) == "u0"
        leaves, next_one = await deaf.queue(ONE, TURN), await one.queue(ONE, TURN)
        one.lane.release("u0")
        await eventually(lambda: books.grants() == ["b-1/1"], what="granted")
        deaf.lane.leave(leaves)
        await eventually(next_one.answer.done, what="served, though nothing reaps")
        assert not leaves.answer.done()
        assert books.scores() == {"u0": 1}


async def test_a_grant_not_taken_up_goes_to_the_next_and_its_ticket_keeps_its_place(valkey: Valkey) -> None:
    books, timing = Books(valkey), replace(PUSHED, patience=0.2)
    async with Instance(valkey, "a", timing) as one, Instance(valkey, "b", timing, reaping=False) as slow:
        await subscribed(valkey, one)
        assert await one.get(ONE) == "u0"
        first = await slow.queue(ONE, TURN)
        second, third = await one.queue(ONE, TURN), await one.queue(ONE, TURN)
        slow.freeze()
        one.lane.release("u0")
        assert await second.answer == "u0"
        assert (books.tickets(), books.grants()) == (["a-1/3", "b-1/1"], [])
        slow.thaw()
        slow.lane.look()
        await eventually(lambda: books.seq("b-1") > 2 and not slow.lane.in_flight, what="its next batch")
        one.lane.release("u0")
        await eventually(lambda: books.grants() == ["b-1/1"], what="its turn")
        slow.lane.look()
        assert await first.answer == "u0"
        assert not third.answer.done()


async def test_a_ticket_sent_twice_is_one_ticket_and_keeps_its_number(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", replace(PATIENT, look=60.0)) as one:
        assert await one.get(ONE) == "u0"
        waiting = [await one.queue(ONE, TURN) for _ in range(3)]
        before = books.redis.hgetall(books.key["tickets"])
        seq = books.seq("a-1")
        one.lane.send_all()
        await eventually(lambda: books.seq("a-1") > seq, what="sent again")
        assert books.redis.hgetall(books.key["tickets"]) == before
        assert len(before) == len(waiting)


async def test_tickets_that_redis_has_lost_come_back_with_their_numbers(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", PATIENT) as one, Instance(valkey, "b", PATIENT) as other:
        assert await one.get(ONE) == "u0"
        waiting = [await (one, other)[turn % 2].queue(ONE, TURN) for turn in range(4)]
        books.redis.delete(*(books.key[name] for name in ("tickets", "class:", "classes", "views", "number")))
        other.lane.send_all()
        one.lane.send_all()
        await eventually(lambda: len(books.tickets()) == 4, what="back")
        assert int(books.redis.get(books.key["number"])) == 2 * 4
        one.lane.release("u0")
        assert await waiting[0].answer == "u0"
        assert answered(waiting) == waiting[:1]


async def test_a_second_attempt_has_the_place_of_the_first_among_all_tickets(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT) as one, Instance(valkey, "b", PATIENT) as other:
        assert await one.get(ONE) == "u0"
        first, second, third = [await each.queue(ONE, TURN) for each in (one, other, other)]
        assert first.number < second.number < third.number
        one.lane.release("u0")
        assert await first.answer == "u0"
        again = await one.queue(ONE, TURN, number=first.number)
        assert (again.position, again.number) == (0, first.number)
        one.lane.release("u0")
        assert await again.answer == "u0"
        assert answered([second, third]) == []


async def test_a_grant_at_once_shows_which_place_was_the_last_before_it(valkey: Valkey) -> None:
    pods = upstreams(2, 1)
    async with Instance(valkey, "a", PATIENT) as one:
        assert {await one.get(pods) for _ in range(2)} == {"u0", "u1"}
        picky = await one.queue(pods, TURN, avoid=("u0",))
        one.lane.release("u0")
        assert await one.get(pods, TURN) == "u0"
        assert one.lane.state.number == picky.number
        assert (await one.queue(pods, TURN)).number > picky.number + 1


async def test_no_queue_is_full_for_a_second_attempt(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT) as one:
        assert await one.get(ONE, Turn("", 1, 1)) == "u0"
        waits = await one.queue(ONE, Turn("", 1, 1))
        again = await one.queue(ONE, Turn("", 1, 1), number=1)
        assert await one.get(ONE, Turn("", 1, 1)) == "refused: queue_full"
        one.lane.release("u0")
        assert await again.answer == "u0"
        one.lane.release("u0")
        assert await waits.answer == "u0"


async def test_a_place_that_redis_has_lost_with_its_count_is_the_last_one_again(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT) as one:
        assert await one.get(ONE) == "u0"
        again = await one.queue(ONE, TURN, number=7)
        late = await one.queue(ONE, TURN)
        assert (again.number, late.number) == (7, 9)


async def test_a_ticket_that_leaves_frees_its_place(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", PATIENT) as one, Instance(valkey, "b", PATIENT) as other:
        assert await one.get(ONE) == "u0"
        leaves, stays = await one.queue(ONE, Turn("", 1, 2)), await other.queue(ONE, Turn("", 1, 2))
        assert await other.get(ONE, Turn("", 1, 2)) == "refused: queue_full"
        one.lane.leave(leaves)
        await eventually(lambda: books.tickets() == ["b-1/1"], what="gone")
        last = await one.queue(ONE, Turn("", 1, 2))
        assert last.position == 1
        one.lane.release("u0")
        assert await stays.answer == "u0"


async def test_a_ticket_that_leaves_on_its_way_into_the_queue_keeps_no_place_there(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", PATIENT) as one:
        assert await one.get(ONE) == "u0"
        one.freeze()
        leaves = one.ask(ONE, TURN)
        await eventually(lambda: leaves in one.lane.slots.asks.flying, what="in flight")
        one.lane.leave(leaves)
        one.thaw()
        stays = await one.queue(ONE, TURN)
        await one.sent_all()
        assert books.tickets() == ["a-1/3"]
        one.lane.release("u0")
        assert await stays.answer == "u0"
        assert leaves.position is None


async def test_what_was_granted_to_an_instance_that_stops_goes_on_to_the_next(valkey: Valkey) -> None:
    books = Books(valkey)
    async with (
        Instance(valkey, "a", PATIENT, reaping=False) as one,
        Instance(valkey, "b", PATIENT, reaping=False) as other,
    ):
        assert await other.get(ONE) == "u0"
        await one.queue(ONE, TURN)
        next_one = await other.queue(ONE, TURN)
        one.freeze()
        other.lane.release("u0")
        await eventually(lambda: books.grants() == ["a-1/1"], what="granted")
        one.thaw()
        await one.ledger.leave()
        await eventually(next_one.answer.done, what="the next is served, though nothing reaps")
        await books.score({"u0": 1})


async def test_the_limit_counts_the_tickets_of_all_instances(valkey: Valkey) -> None:
    limit = Turn("", 1, 3)
    async with Instance(valkey, "a", PATIENT) as one, Instance(valkey, "b", PATIENT) as other:
        asked = [(one, other)[turn % 2].ask(ONE, limit) for turn in range(8)]
        await eventually(lambda: len(answered(asked)) == 5, what="all but three answered")
        answers = sorted(each.answer.result() for each in asked if each.answer.done())
        assert answers == ["refused: queue_full"] * 4 + ["u0"]


async def test_a_dead_instance_frees_all_of_its_places(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a") as one:
        async with Instance(valkey, "b") as other:
            assert await one.get(ONE) == "u0"
            for _ in range(5):
                await other.queue(ONE, TURN)
            waits = await one.queue(ONE, TURN)
            assert waits.position == 5
        await eventually(lambda: books.tickets() == ["a-1/2"], what="only the living wait")
        one.lane.release("u0")
        assert await waits.answer == "u0"
        assert books.redis.hkeys(books.key["views"]) == ["a-1 /p"]


async def test_what_a_dead_holder_held_goes_to_waiting_tickets(valkey: Valkey) -> None:
    async with Instance(valkey, "a") as one:
        async with Instance(valkey, "b") as other:
            assert await other.get(ONE) == "u0"
            waits = await one.queue(ONE, TURN)
        assert await waits.answer == "u0"


async def test_a_waiting_ticket_may_use_an_upstream_that_joins(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT, reaping=False) as one:
        assert await one.get(ONE) == "u0"
        waits = await one.queue(ONE, TURN)
        one.lane.view(POOL, upstreams(2, 1))
        await eventually(waits.answer.done, what="served, though nothing reaps")
        assert await waits.answer == "u1"


async def test_a_raised_cap_is_used_at_once(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT, reaping=False) as one:
        assert await one.get(ONE) == "u0"
        waiting = [await one.queue(ONE, TURN) for _ in range(3)]
        one.lane.view(POOL, upstreams(1, 3))
        await eventually(lambda: len(answered(waiting)) == 2, what="served, though nothing reaps")
        assert [await each.answer for each in waiting[:2]] == ["u0", "u0"]
        assert answered(waiting) == waiting[:2]


async def test_candidates_that_change_while_an_ask_is_on_its_way_count_for_it(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT) as one:
        assert await one.get(ONE) == "u0"
        one.freeze()
        waits = one.ask(ONE, TURN)
        await eventually(lambda: waits in one.lane.slots.asks.flying, what="in flight")
        one.lane.view(POOL, upstreams(2, 1))
        one.thaw()
        assert await waits.answer == "u1"


async def test_a_ticket_that_cannot_use_the_slot_is_passed_over_and_keeps_its_place(valkey: Valkey) -> None:
    pods = upstreams(2, 1)
    async with Instance(valkey, "a", PATIENT) as one:
        assert {await one.get(pods) for _ in range(2)} == {"u0", "u1"}
        picky = await one.queue(pods, TURN, avoid=("u0",))
        easy, last = await one.queue(pods, TURN), await one.queue(pods, TURN)
        one.lane.release("u0")
        assert await easy.answer == "u0"
        one.lane.release("u1")
        assert await picky.answer == "u1"
        assert not last.answer.done()


async def test_a_ticket_gets_the_least_loaded_of_what_it_can_use(valkey: Valkey) -> None:
    pods = (Candidate("small", 1, 1), Candidate("large", 4, 4))
    async with Instance(valkey, "a", PATIENT) as one:
        for _ in range(5):
            assert not (await one.get(pods)).startswith("refused")
        waits = await one.queue(pods, TURN)
        one.lane.release("large")
        one.lane.release("small")
        assert await waits.answer == "small"


async def test_classes_are_served_by_weight(valkey: Valkey) -> None:
    weights = {"critical": 8, "normal": 3, "batch": 1}
    async with Instance(valkey, "a", PATIENT) as one, Instance(valkey, "b", PATIENT) as other:
        assert await one.get(ONE) == "u0"
        lines = {name: [] for name in weights}  # type: dict[str, list[Request]]
        for _ in range(9):
            for turn, (name, weight) in enumerate(weights.items()):
                lines[name].append(await (one, other)[turn % 2].queue(ONE, Turn(name, weight, 100)))
        one.lane.release("u0")
        served = ""
        for _ in range(12):
            heads = {name[0]: line[0] for name, line in lines.items()}
            await eventually(lambda heads=heads: bool(answered(list(heads.values()))), what="one more")  # type: ignore[misc]
            (name,) = [name for name, line in lines.items() if line[0].answer.done()]
            served += name[0]
            del lines[name][0]
            (one, other)[list(weights).index(name) % 2].lane.release("u0")
        assert served == "bcnccncccncc"


async def test_a_grant_is_given_once_and_never_lost(valkey: Valkey) -> None:
    """Two readers of one holder's grants: the batch that takes them out is numbered like any other."""
    books = Books(valkey)
    async with Instance(valkey, "a", PUSHED, reaping=False) as one:
        assert await one.get(ONE) == "u0"
        waits = await one.queue(ONE, TURN)
        one.lane.release("u0")
        assert await waits.answer == "u0"
        pool_keys = keys.pool_keys(POOL)
        again = orjson.loads(one.connection.sent[-1][-3])
        reply = books.redis.eval(ledger_source(), len(pool_keys), *pool_keys, orjson.dumps(again), "c:", POOL)
        assert orjson.loads(reply)["stale"]
        assert books.held("a-1") == {"u0": 1}


async def test_who_asks_for_a_job_learns_how_many_others_wait(valkey: Valkey) -> None:
    async with Instance(valkey, "a", PATIENT) as one, Instance(valkey, "b", PATIENT) as other:
        state, jobs = other.lane.state, Turn(CLASS, 0.125, 100)
        assert await one.get(ONE) == "u0"
        await one.queue(ONE, jobs)
        await other.queue(ONE, jobs)
        assert (state.queued, state.others) == (2, 0)
        told = state.told
        await one.queue(ONE, TURN)
        await other.queue(ONE, TURN)
        assert (state.queued, state.others, state.told) == (4, 0, told), "counted only where a job asks"
        await other.queue(ONE, jobs)
        assert (state.queued, state.others, state.told > told) == (5, 2, True)

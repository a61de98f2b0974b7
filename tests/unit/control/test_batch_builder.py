"""What the next batch of a lane has."""

from collections.abc import Callable

import pytest

from slb.balance.asking import Candidate
from slb.control.asks import Asks
from slb.control.batch import MOST_ASKS, Batch, Ticket
from slb.control.batch_builder import BatchBuilder
from slb.control.views import Views
from tests.unit.control.asked import Asked

BEAT = 2.0


class Lane:
    """What is outgoing of a lane that has sent all there is to send, at second 0, and has been answered."""

    def __init__(self) -> None:
        self.now = 0.0
        self.held = {"u0": 2}
        self.asks = Asks()
        self.views = Views()
        self.builder = BatchBuilder(self.held, self.asks, self.views)
        for name in ("/a", "/b", "/c"):
            self.views.put(name, (Candidate("u0", 1, 1),))
        self.first = self.batch()
        self.builder.ran(self.first)

    def batch(self, settling: bool = False) -> Batch:
        return self.builder.batch(self.now, BEAT, settling)

    def reconnects(self) -> Batch:
        """The first batch on another connection, and it has run."""
        self.builder.failed()
        batch = self.batch()
        self.builder.ran(batch)
        return batch

    def is_due(self) -> bool:
        return self.builder.is_due(self.now)

    def ask(self, name: str) -> Asked:
        asked = Asked(name)
        self.asks.bring(asked)
        return asked

    def waits(self, name: str) -> Ticket:
        """An ask with a place in the queue."""
        self.ask(name)
        self.batch()
        ((ticket, _),) = self.asks.land()
        self.asks.queue(ticket)
        return ticket


def test_the_first_batch_sends_all_and_asks_nothing() -> None:
    asks = Asks()
    asks.bring(Asked("a"))
    batch = BatchBuilder({"u0": 2}, asks, Views()).batch(5.0, BEAT, settling=False)
    assert (batch.join, batch.fresh, batch.full, batch.beat) == (True, True, True, True)
    assert (batch.held, batch.asks) == ({"u0": 2}, [])
    assert len(asks.pending) == 1


def test_where_nothing_has_happened_nothing_is_due_before_the_beat() -> None:
    lane = Lane()
    lane.now = 1.9
    assert not lane.is_due()
    lane.now = 2.0
    assert lane.is_due()
    beat = lane.batch()
    assert (beat.beat, beat.full, beat.join, beat.fresh) == (True, True, False, False)
    assert (beat.held, beat.seq) == ({"u0": 2}, lane.first.seq + 1)
    assert not lane.is_due()
    assert lane.builder.beat_due == 4.0


def test_a_release_waits_for_another_reason_to_send_or_for_a_hurry() -> None:
    lane = Lane()
    lane.builder.release("u0")
    lane.builder.release("u0")
    assert not lane.is_due()
    was_idle = lane.builder.is_idle
    lane.builder.hurry()
    assert lane.is_due()
    batch = lane.batch()
    assert (batch.full, batch.release, batch.held) == (False, {"u0": 2}, {})
    assert (was_idle, lane.builder.is_idle) == (False, True)
    assert not lane.is_due()


def test_what_has_changed_is_sent_once() -> None:
    lane = Lane()
    lane.waits("a")
    lane.builder.leave(7)
    lane.builder.change("/b")
    lane.builder.release("u0")
    batch = lane.batch()
    assert batch.waiting == []
    assert (list(batch.leave), batch.changed, batch.release) == ([7], ("/b",), {"u0": 1})
    assert set(batch.views) == {"/b"}
    empty = lane.batch()
    assert (list(empty.leave), empty.changed, empty.release, empty.views) == ([], (), {}, {})


@pytest.mark.parametrize("why", ["beat", "send_all", "reconnects"])
def test_a_full_batch_sends_what_is_and_not_what_has_changed(why: str) -> None:
    lane = Lane()
    ticket = lane.waits("a")
    lane.builder.leave(7)
    lane.builder.release("u0")
    lane.held["u0"] = 1
    if why == "beat":
        lane.now = BEAT
    elif why == "send_all":
        lane.builder.send_all()
    else:
        lane.reconnects()
    batch = lane.batch()
    assert (batch.full, batch.beat, batch.fresh) == (True, why == "beat", False)
    assert (batch.held, batch.waiting, batch.release, batch.leave) == ({"u0": 1}, [ticket], {}, ())
    assert set(batch.views) == {"/a"}
    lane.builder.ran(batch)
    after = lane.batch()
    assert (after.full, after.fresh, after.release, after.leave) == (False, False, {}, [])


def test_asks_go_in_order_and_at_most_so_many_at_once() -> None:
    lane = Lane()
    asked = [lane.ask("abc"[number % 3]) for number in range(MOST_ASKS + 2)]
    assert lane.is_due()
    batch = lane.batch()
    assert [ticket.ask for ticket in batch.asks] == asked[:MOST_ASKS]
    assert set(batch.views) == {"/a", "/b", "/c"}
    assert lane.is_due()
    list(lane.asks.land())
    assert [ticket.ask for ticket in lane.batch().asks] == asked[MOST_ASKS:]
    assert not lane.is_due()


def test_on_another_connection_it_looks_first_which_redis_that_is_and_asks_when_all_is_sent() -> None:
    lane = Lane()
    ticket = lane.waits("a")
    lane.builder.release("u0")
    asked = lane.ask("b")
    look = lane.reconnects()
    assert (look.fresh, look.full, look.asks, look.release) == (True, False, (), {})
    full = lane.batch()
    assert (full.full, full.held, full.waiting, full.asks) == (True, {"u0": 2}, [ticket], [])
    lane.builder.ran(full)
    assert [each.ask for each in lane.batch().asks] == [asked]


def test_a_long_queue_is_sent_in_its_order_over_several_batches_and_no_ask_goes_before_its_end() -> None:
    lane = Lane()
    tickets = [lane.waits("a") for _ in range(2 * MOST_ASKS + 2)]
    for place, ticket in enumerate(tickets):
        ticket.number = 2 * (len(tickets) - place)
    first, *behind = reversed(tickets)
    lane.builder.send_all()
    asked = lane.ask("b")
    full = lane.batch()
    assert (full.full, full.tickets) == (True, [ticket.key for ticket in tickets])
    assert (full.waiting, full.asks) == ([first, *behind[: MOST_ASKS - 1]], [])
    lane.builder.differs()
    assert lane.is_due()
    lane.asks.take(behind[MOST_ASKS - 1].key)
    lane.now = BEAT
    middle = lane.batch()
    assert (middle.full, middle.beat, middle.tickets, middle.asks) == (False, True, (), [])
    assert middle.waiting == behind[MOST_ASKS : 2 * MOST_ASKS]
    last = lane.batch()
    assert (last.waiting, [ticket.ask for ticket in last.asks]) == (behind[2 * MOST_ASKS :], [asked])
    lane.builder.differs()
    assert lane.batch().full


def test_a_queue_that_was_sent_in_part_on_a_connection_that_broke_is_sent_from_its_beginning() -> None:
    lane = Lane()
    tickets = [lane.waits("a") for _ in range(MOST_ASKS + 1)]
    lane.builder.send_all()
    lane.batch()
    lane.reconnects()
    assert lane.batch().waiting == tickets[:MOST_ASKS]
    assert lane.batch().waiting == tickets[MOST_ASKS:]
    assert not lane.is_due()


def test_of_many_that_leave_at_once_so_many_are_sent_in_a_batch() -> None:
    lane = Lane()
    for key in range(MOST_ASKS + 1):
        lane.builder.leave(key)
    assert lane.batch().leave == list(range(MOST_ASKS))
    assert lane.is_due()
    assert lane.batch().leave == [MOST_ASKS]
    assert not lane.is_due()


def test_a_look_whose_reply_was_lost_is_had_again() -> None:
    lane = Lane()
    lane.builder.failed()
    lane.batch()
    assert lane.reconnects().fresh
    assert lane.batch().full


def test_tickets_are_not_sent_while_others_have_yet_to_send_what_they_hold() -> None:
    lane = Lane()
    ticket = lane.waits("a")
    lane.builder.send_all()
    assert lane.batch(settling=True).waiting == ()
    assert not lane.is_due()
    lane.builder.settled()
    assert lane.batch().waiting == [ticket]
    lane.builder.settled()
    assert not lane.is_due()


def test_a_look_makes_an_empty_batch_due() -> None:
    lane = Lane()
    lane.builder.look()
    assert lane.is_due()
    assert not lane.batch().full
    assert not lane.is_due()


def test_a_holder_that_redis_does_not_know_joins_again_with_all_it_has_and_asks_nothing_yet() -> None:
    lane = Lane()
    ticket = lane.waits("b")
    lane.builder.begin_anew()
    lane.ask("a")
    batch = lane.batch()
    assert (batch.join, batch.fresh, batch.full, batch.held) == (True, True, True, {"u0": 2})
    assert (batch.asks, batch.waiting) == ([], ())
    lane.builder.ran(batch)
    lane.builder.settled()
    after = lane.batch()
    assert (after.full, after.waiting, len(after.asks)) == (True, [ticket], 1)


def test_numbers_only_rise_whatever_becomes_of_the_batches() -> None:
    lane = Lane()
    numbers = [lane.first.seq, lane.batch().seq]
    lane.builder.failed()
    numbers.append(lane.batch().seq)
    lane.builder.begin_anew()
    numbers.append(lane.batch().seq)
    bye = lane.builder.goodbye()
    assert (bye.bye, bye.full, bye.held) == (True, True, {})
    assert [*numbers, bye.seq] == [1, 2, 3, 4, 5]


def test_the_routes_of_asks_and_of_what_is_yet_to_be_sent_are_kept() -> None:
    lane = Lane()
    lane.waits("a")
    lane.builder.change("/b")
    lane.ask("c")
    assert lane.builder.keeps() == {"/a", "/b", "/c"}
    lane.batch()
    assert lane.builder.keeps() == {"/a", "/c"}


@pytest.mark.parametrize("full", [True, False])
def test_a_grant_that_was_taken_is_acknowledged_until_a_batch_that_does_has_run(full: bool) -> None:
    lane = Lane()
    lane.builder.take(7, "u0")
    assert lane.is_due()
    assert not lane.builder.is_idle
    lane.batch()
    assert lane.reconnects().took == {}
    if not full:
        lane.builder.ran(lane.batch())
        lane.builder.take(8, "u1")
    batch = lane.batch()
    assert (batch.full, batch.took) == (full, {7: "u0"} if full else {8: "u1"})
    lane.builder.ran(batch)
    assert (lane.batch().took, lane.builder.is_idle) == ({}, True)


def test_a_grant_in_a_reply_need_not_be_acknowledged() -> None:
    lane = Lane()
    lane.builder.take(7, "u0")
    assert not lane.builder.was_taken(7, "u1")
    assert not lane.builder.was_taken(8, "u0")
    assert lane.builder.was_taken(7, "u0")
    assert not lane.builder.was_taken(7, "u0")
    assert lane.batch().took == {}


@pytest.mark.parametrize("more", ["nothing", "ask", "leave", "release", "look", "change", "send_all"])
def test_a_batch_that_only_acknowledges_grants_is_known_as_such(more: str) -> None:
    lane = Lane()
    lane.waits("a")
    lane.builder.take(8, "u1")
    says_more: dict[str, Callable[[], object]] = {
        "nothing": lambda: None,
        "ask": lambda: lane.ask("b"),
        "leave": lambda: lane.builder.leave(9),
        "release": lambda: lane.builder.release("u2"),
        "look": lane.builder.look,
        "change": lambda: lane.builder.change("/a"),
        "send_all": lane.builder.send_all,
    }
    says_more[more]()
    batch = lane.batch()
    assert batch.took[8] == "u1"
    assert batch.only_took is (more == "nothing")

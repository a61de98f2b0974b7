"""Who has asked in one lane, from step to step."""

import asyncio

from slb.balance.asking import Ask
from slb.control.asks import Answers, Asks
from tests.unit.control.asked import Asked

A, B, C, D = (Asked(name) for name in "abcd")


def flying(*pending: Ask) -> Asks:
    asks = Asks()
    for ask in pending:
        asks.bring(ask)
    asks.board()
    return asks


def test_an_ask_that_left_in_flight_is_distinguished_when_the_batch_is_answered() -> None:
    asks = flying(A, B)
    assert asks.leave(A) is None
    assert [(ticket.ask, left) for ticket, left in asks.land()] == [(A, True), (B, False)]
    assert not asks


def test_asks_that_are_turned_back_go_before_those_that_came_meanwhile() -> None:
    asks = flying(A, B)
    asks.bring(C)
    asks.leave(B)
    asks.turn_back()
    assert list(asks.pending) == [A, C]


def test_all_are_handed_back_in_order_but_for_those_that_left() -> None:
    asks = flying(D, B)
    for (ticket, _), number in zip(asks.land(), (7, 3), strict=True):
        ticket.number = number
        asks.queue(ticket)
    asks.bring(A)
    asks.bring(C)
    asks.board()
    asks.leave(C)
    asks.bring(C)
    assert asks.views() == {"/a", "/b", "/c", "/d"}
    assert asks.hand_back() == [B, D, A, C]
    assert not asks


def test_a_ticket_that_leaves_the_queue_is_sent_to_redis_and_its_grant_finds_no_request() -> None:
    asks = flying(A)
    ((ticket, _),) = asks.land()
    asks.queue(ticket)
    assert asks.leave(A) == ticket.key
    assert asks.take(ticket.key) is None
    assert asks.leave(A) is None


def test_asks_that_do_not_wait_for_a_late_redis_are_handed_back_and_patient_ones_stay() -> None:
    patient, also = Asked("patient", patient=True), Asked("also", patient=True)
    asks = flying(A, patient, B)
    asks.bring(also)
    asks.bring(C)
    asks.leave(B)
    assert asks.hand_back_hurried() == [A, C]
    assert asks.hand_back_hurried() == []
    assert [(ticket.ask, left) for ticket, left in asks.land()] == [(A, True), (patient, False), (B, True)]
    assert list(asks.pending) == [also]


def test_while_redis_does_not_have_what_is_free_capped_asks_wait_apart_and_then_go_first() -> None:
    first, second = Asked("first", capacity=1, patient=True), Asked("second", capacity=1, patient=True)
    hurried, gone = Asked("hurried", capacity=1), Asked("gone", capacity=1, patient=True)
    asks = flying()
    for ask in (A, first, hurried):
        asks.bring(ask)
    assert asks.park() == [hurried]
    for ask in (B, second, gone):
        asks.bring(ask)
    assert (list(asks.pending), list(asks.parked)) == ([A, B], [first, second, gone])
    assert asks.leave(gone) is None
    assert asks.views() == {"/a", "/b", "/first", "/second"}
    asks.unpark()
    assert (list(asks.pending), list(asks.parked)) == ([first, second, A, B], [])
    asks.park()
    assert asks.hand_back() == [first, second, A, B]
    assert not asks


async def test_answers_are_given_in_order_though_one_of_them_breaks() -> None:
    given: list[str] = []
    broke: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: broke.append(str(context["exception"])))
    answers = Answers()
    answers.add(given.append, "first")
    answers.add(given.remove, "nothing there")
    answers.add(lambda: answers.add(given.append, "of the next step"))
    answers.add(given.append, "last")
    answers.give()
    assert (given, len(broke), bool(answers)) == (["first", "last"], 1, True)
    answers.give()
    assert (given[-1], bool(answers)) == ("of the next step", False)

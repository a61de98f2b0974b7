"""Who has asked in one lane, from step to step."""

from slb.balance.asking import Ask
from slb.control.asks import Asks
from tests.unit.control.asked import Asked

A, B, C, D = (Asked(name) for name in "abcd")


def flying(*pending: Ask) -> Asks:
    asks = Asks()
    asks.pending |= dict.fromkeys(pending, 1.0)
    asks.board()
    return asks


def test_who_left_in_flight_is_told_apart_when_the_batch_lands() -> None:
    asks = flying(A, B)
    assert asks.leave(A) is None
    assert [(ticket.ask, left) for ticket, left in asks.land()] == [(A, True), (B, False)]
    assert not asks


def test_who_is_turned_back_goes_before_those_who_came_meanwhile_and_keeps_its_time() -> None:
    asks = flying(A, B)
    asks.pending[C] = 2.0
    asks.leave(B)
    asks.turn_back()
    assert list(asks.pending.items()) == [(A, 1.0), (C, 2.0)]
    assert asks.oldest == 1.0


def test_all_are_handed_back_in_order_but_for_those_who_left() -> None:
    asks = flying(D, B)
    for (ticket, _), number in zip(asks.land(), (7, 3), strict=True):
        ticket.number = number
        asks.queue(ticket)
    asks.pending |= {A: 1.0, C: 2.0}
    asks.board()
    asks.leave(C)
    asks.pending[C] = 3.0
    assert asks.views() == {"/a", "/b", "/c", "/d"}
    assert asks.hand_back() == [B, D, A, C]
    assert not asks


def test_redis_is_told_of_who_leaves_the_queue_and_its_grant_finds_nobody() -> None:
    asks = flying(A)
    ((ticket, _),) = asks.land()
    asks.queue(ticket)
    assert asks.leave(A) == ticket.key
    assert asks.take(ticket.key) is None
    assert asks.leave(A) is None

"""The fair queue: order within a class, shares across classes, none forgotten."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from slb.admission.fair_queue import FairQueue

WEIGHTS = {"critical": 8, "normal": 3, "batch": 1}
CLASSES = st.sampled_from(sorted(WEIGHTS))


def anything(ticket: object) -> str:
    return "slot"


def only(*tickets: str) -> Callable[[str], str | None]:
    return lambda ticket: "slot" if ticket in tickets else None


def popped(queue: FairQueue[Any], usable: Callable[[Any], str | None] = anything) -> Any:
    """The ticket alone, or None."""
    found = queue.pop(usable)
    return found and found[0]


def filled(*tickets: str) -> FairQueue[str]:
    """`filled("n1", "b1")`: a ticket each, its class by its first letter, in this order."""
    queue: FairQueue[str] = FairQueue()
    for number, ticket in enumerate(tickets):
        push(queue, ticket, number)
    return queue


def push(queue: FairQueue[str], ticket: str, number: int) -> None:
    priority = next(name for name in WEIGHTS if name[0] == ticket[0])
    queue.push(ticket, priority, WEIGHTS[priority], number)


def backlog(each: int) -> FairQueue[str]:
    return filled(*(f"{letter}{number}" for number in range(each) for letter in "cnb"))


def test_first_come_first_served_within_a_class() -> None:
    queue = filled("n1", "n2", "n3")
    assert [popped(queue) for _ in range(4)] == ["n1", "n2", "n3", None]


def test_the_order_is_that_of_the_numbers_not_of_the_pushes() -> None:
    queue: FairQueue[str] = FairQueue()
    for ticket, number in [("n2", 2), ("n3", 3), ("n1", 1)]:
        push(queue, ticket, number)
    assert [popped(queue) for _ in range(3)] == ["n1", "n2", "n3"]


def test_what_was_found_for_the_ticket_comes_with_it() -> None:
    assert filled("n1").pop(lambda ticket: f"a slot for {ticket}") == ("n1", "a slot for n1")


def test_classes_are_served_by_weight_and_ties_go_by_name() -> None:
    queue = backlog(12)
    assert "".join(popped(queue)[0] for _ in range(12)) == "bcnccncccncc"


def test_each_backlogged_class_gets_its_share() -> None:
    queue = backlog(400)
    served = Counter(popped(queue)[0] for _ in range(12 * 40))
    assert {letter: round(served[letter] / 40) for letter in "cnb"} == {"c": 8, "n": 3, "b": 1}


def test_a_share_that_is_not_used_is_lent() -> None:
    queue = filled("b1", "b2", "b3")
    assert [popped(queue) for _ in range(3)] == ["b1", "b2", "b3"]


def test_a_class_that_paused_has_saved_nothing_up() -> None:
    queue = backlog(100)
    for number in range(0, 300, 3):  # critical leaves
        queue.remove(f"c{number // 3}")
    for _ in range(40):
        popped(queue)
    for number in range(300, 400):
        push(queue, f"c{number}", number)
    served = Counter(popped(queue)[0] for _ in range(12))
    assert served["c"] <= 9


def test_a_class_that_could_use_nothing_for_long_has_lent_its_share_and_not_saved_it() -> None:
    queue = filled(*(f"{letter}{number}" for number in range(20) for letter in "bc"))
    batch = only(*(f"b{number}" for number in range(20)))
    assert [popped(queue, batch) for _ in range(5)] == ["b0", "b1", "b2", "b3", "b4"]
    assert "".join(popped(queue)[0] for _ in range(12)) == "ccccccccbccc"


def test_a_class_that_comes_back_at_once_does_not_skip_what_it_owes() -> None:
    queue = filled("b1", "n1", "n2", "n3", "n4", "n5")
    assert popped(queue) == "b1"
    push(queue, "b2", 9)
    assert [popped(queue) for _ in range(5)] == ["n1", "n2", "n3", "b2", "n4"]


def test_a_queue_that_was_empty_forgets_which_classes_were_served() -> None:
    queue = filled("b1")
    assert popped(queue) == "b1"
    push(queue, "n2", 2)
    push(queue, "b2", 3)
    assert popped(queue) == "b2"


def test_a_ticket_that_cannot_use_the_slot_is_passed_over_and_keeps_its_place() -> None:
    queue = filled("n1", "n2", "n3")
    assert popped(queue, only("n2", "n3")) == "n2"
    assert queue.position("n1") == 0
    assert popped(queue) == "n1"


def test_a_class_in_which_none_can_use_the_slot_is_not_charged() -> None:
    queue = filled("b1", "c1", "c2", "c3")
    assert [popped(queue, only("c1", "c2")) for _ in range(2)] == ["c1", "c2"]
    assert popped(queue) == "b1"


def test_nothing_is_taken_where_none_can_use_anything() -> None:
    queue = filled("n1", "b1")
    assert queue.pop(only()) is None
    assert len(queue) == 2


def test_a_ticket_put_back_keeps_its_place_and_its_class_is_not_refunded() -> None:
    queue = filled("b1", "n1", "n2", "b2")
    assert popped(queue) == "b1"
    push(queue, "b1", 0)
    assert queue.position("b1") == 0
    assert queue.position("b2") == 1
    assert [popped(queue) for _ in range(4)] == ["n1", "n2", "b1", "b2"]


def test_a_ticket_that_left_is_not_served_and_those_behind_move_up() -> None:
    queue = filled("n1", "n2", "n3")
    assert queue.position("n3") == 2
    assert queue.remove("n1")
    assert not queue.remove("n1")
    assert queue.position("n3") == 1
    assert popped(queue) == "n2"


def test_a_ticket_pushed_twice_waits_once() -> None:
    queue = filled("n1", "n2")
    push(queue, "n1", 7)
    assert len(queue) == 2
    assert queue.position("n1") == 0


def test_positions_are_counted_within_the_class() -> None:
    queue = filled("n1", "n2", "b1", "c1", "b2")
    assert [queue.position(ticket) for ticket in ("n1", "n2", "b1", "c1", "b2")] == [0, 1, 0, 0, 1]


def test_an_entry_that_does_not_wait_has_no_position() -> None:
    with pytest.raises(KeyError):
        filled("n1").position("n2")


def test_it_has_how_many_wait_and_which() -> None:
    queue = filled("n1", "b1", "n2")
    assert (len(queue), list(queue)) == (3, ["n1", "b1", "n2"])
    queue.remove("b1")
    assert (len(queue), list(queue)) == (2, ["n1", "n2"])


@given(st.dictionaries(st.sampled_from("abcde"), st.integers(1, 20), min_size=1))
def test_over_a_long_run_backlogged_classes_are_served_as_their_weights(weights: dict[str, int]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    rounds = 5
    for priority, weight in weights.items():
        for number in range(weight * rounds + 1):
            queue.push((priority, number), priority, weight, number)
    served = Counter(popped(queue)[0] for _ in range(rounds * sum(weights.values())))
    assert all(abs(served[priority] - rounds * weight) <= 1 for priority, weight in weights.items())


@given(st.lists(CLASSES, max_size=15), CLASSES, st.lists(CLASSES, max_size=40))
def test_none_starves_whatever_comes_later(before: list[str], mine: str, later: list[str]) -> None:
    queue: FairQueue[int] = FairQueue()
    for number, priority in enumerate([*before, mine]):
        queue.push(number, priority, WEIGHTS[priority], number)
    ticket, served = len(before), 0
    # Each of mine takes 1/weight of virtual time: another class is served its weight in it at most, and once more.
    patience = (before.count(mine) + 1) / WEIGHTS[mine]
    bound = 1 + before.count(mine) + sum(patience * weight + 1 for name, weight in WEIGHTS.items() if name != mine)
    while ticket in queue:
        popped(queue)
        served += 1
        if served <= len(later):
            queue.push(ticket + served, later[served - 1], WEIGHTS[later[served - 1]], ticket + served)
    assert served <= bound


class Operations(RuleBasedStateMachine):
    """Whatever is done to it, it holds what waits and serves the first of a class that can be served."""

    waiting = Bundle("waiting")

    def __init__(self) -> None:
        super().__init__()
        self.queue: FairQueue[int] = FairQueue()
        self.truth: dict[int, str] = {}
        self.next = 0

    @rule(target=waiting, priority=CLASSES)
    def push(self, priority: str) -> int:
        self.next += 1
        self.queue.push(self.next, priority, WEIGHTS[priority], self.next)
        self.truth[self.next] = priority
        return self.next

    @rule(ticket=consumes(waiting))
    def remove(self, ticket: int) -> None:
        assert self.queue.remove(ticket) == (self.truth.pop(ticket, None) is not None)

    @rule(modulus=st.integers(1, 4))
    def pop(self, modulus: int) -> None:
        able = [ticket for ticket in self.truth if ticket % modulus == 0]
        taken = popped(self.queue, lambda ticket: "slot" if ticket % modulus == 0 else None)
        assert (taken is None) == (not able)  # work conserving
        if taken is not None:
            priority = self.truth.pop(taken)
            assert not [each for each in able if each < taken and self.truth.get(each) == priority]

    @rule(modulus=st.integers(1, 4))
    def pop_and_put_back(self, modulus: int) -> None:
        taken = popped(self.queue, lambda ticket: "slot" if ticket % modulus == 0 else None)
        if taken is not None:
            priority = self.truth[taken]
            self.queue.push(taken, priority, WEIGHTS[priority], taken)

    @invariant()
    def it_holds_what_waits_where_it_waits(self) -> None:
        assert list(self.queue) == sorted(self.truth)
        assert len(self.queue) == len(self.truth)
        for ticket, priority in self.truth.items():
            before = [each for each in self.truth if each < ticket and self.truth[each] == priority]
            assert self.queue.position(ticket) == len(before)


TestOperations = Operations.TestCase

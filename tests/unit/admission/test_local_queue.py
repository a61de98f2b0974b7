"""The queue where one instance decides: in what order it is served, and what its requests are answered."""

from collections import Counter

import pytest

from slb.balance.asking import Candidate, Turn
from tests.unit.admission.local_pool_rig import Request, Setup, some


@pytest.mark.parametrize(("candidates", "avoid"), [((), ()), (some("a"), ("a",))])
def test_a_request_that_can_use_nothing_at_all_does_not_wait(
    candidates: tuple[Candidate, ...], avoid: tuple[str, ...]
) -> None:
    assert Setup().ask(candidates, avoid=avoid).answers == ["no_upstream"]


def test_where_all_is_full_it_waits_and_gets_how_many_are_before_it() -> None:
    setup = Setup()
    answers = [setup.ask(some("a")).answers for _ in range(4)]
    assert answers == [["a"], [0], [1], [2]]
    batch = setup.ask(some("a"), Turn("batch", 1, 1000))
    assert batch.answers == [0]
    assert len(setup.pool) == 4


def test_where_enough_wait_it_is_refused() -> None:
    setup = Setup()
    limited = Turn("normal", 3, 2)
    answers = [setup.ask(some("a"), limited).answers for _ in range(4)]
    assert answers == [["a"], [0], [1], ["queue_full"]]


def test_a_second_attempt_has_the_place_of_the_first_and_no_queue_is_full_for_it() -> None:
    setup = Setup()
    limited = Turn("normal", 3, 2)
    both = some("a", "b")
    first, _ = setup.ask(both, limited), setup.ask(both, limited)
    waiting = [setup.ask(both, limited) for _ in range(2)]
    again = setup.bring(Request(both, limited, avoid=("a",), like=first))
    assert again.answers == [0]
    assert setup.ask(both, limited).answers == ["queue_full"]
    setup.release("b")
    assert again.answers == [0, "b"]
    setup.release("a")
    assert [each.answers for each in waiting] == [[0, "a"], [1]]


def test_a_slot_that_frees_goes_to_the_first_request() -> None:
    setup = Setup()
    first, second, third = (setup.ask(some("a")) for _ in range(3))
    setup.release("a")
    assert (first.answers, second.answers, third.answers) == (["a"], [0, "a"], [1])
    assert setup.held == {"a": 1}
    assert setup.ask(some("a")).answers == [1], "and one is before it"


def test_a_heavier_class_is_served_more_often() -> None:
    setup = Setup()
    setup.ask(some("a"))
    waiting = [setup.ask(some("a"), Turn(*turn)) for turn in [("batch", 1, 99), ("critical", 8, 99)] * 8]
    for _ in range(9):
        setup.release("a")
    assert Counter(ask.turn.priority for ask in waiting if ask.answers[-1] == "a" and ask.turn) == {
        "batch": 1,
        "critical": 8,
    }


def test_a_request_that_cannot_use_the_slot_is_passed_over_and_keeps_its_place() -> None:
    setup = Setup()
    setup.granted(some("a", "b"), 2)
    wants_b = setup.ask(some("a", "b"), avoid=("a",))
    any_will_do = setup.ask(some("a", "b"))
    setup.release("a")
    assert (wants_b.answers, any_will_do.answers) == ([0], [1, "a"])
    setup.release("b")
    assert wants_b.answers == [0, "b"]


def test_routes_share_the_slots_of_a_pool_and_its_queue() -> None:
    setup = Setup()
    setup.granted(some("a", "b"), 2)
    one = setup.bring(Request(some("a"), view="/one"))
    both = setup.bring(Request(some("a", "b"), view="/both"))
    setup.release("b")
    assert (one.answers, both.answers) == ([0], [1, "b"])
    assert setup.pool.drain_waiting() == [one]


def test_a_request_that_leaves_frees_its_place() -> None:
    setup = Setup()
    _, second, third = (setup.ask(some("a")) for _ in range(3))
    assert setup.pool.leave(second)
    assert setup.ask(some("a")).answers == [1], "and one is before it"
    setup.release("a")
    assert (second.answers, third.answers) == ([0], [1, "a"])


def test_an_answered_request_has_nothing_to_leave() -> None:
    setup = Setup()
    served, refused = setup.ask(some("a")), setup.ask(some("a"), turn=None)
    assert not setup.pool.leave(served)
    assert not setup.pool.leave(refused)
    assert setup.held == {"a": 1}


def test_candidates_that_changed_serve_waiting_requests() -> None:
    setup = Setup()
    _, second, third = (setup.ask(some("a")) for _ in range(3))
    setup.pool.views("/p", some("a", "b"))
    assert (second.answers, third.answers) == ([0, "b"], [1])
    setup.pool.views("/p", some("c"))
    assert third.answers == [1, "c"]
    assert setup.held == {"a": 1, "b": 1, "c": 1}


def test_a_capacity_that_was_raised_serves_waiting_requests() -> None:
    setup = Setup()
    requests = [setup.ask(some("a")) for _ in range(4)]
    setup.pool.views("/p", some("a", capacity=3))
    assert [request.answers[-1] for request in requests] == ["a", "a", "a", 2]


def test_a_waiting_request_is_refused_once_there_is_nothing_it_can_use() -> None:
    setup = Setup()
    setup.granted(some("a", "b"), 2)
    choosy, other = setup.ask(some("a", "b"), avoid=("a",)), setup.ask(some("a", "b"))
    elsewhere = setup.bring(Request(some("b"), view="/other"))
    setup.pool.views("/p", some("a"))
    assert (choosy.answers, other.answers, elsewhere.answers) == ([0, "no_upstream"], [1], [2])
    setup.pool.views("/p", ())
    assert other.answers == [1, "no_upstream"]
    assert len(setup.pool) == 1


def test_a_waiting_request_is_not_bound_to_the_fewer_candidates_a_second_attempt_came_with() -> None:
    setup = Setup()
    setup.granted(some("a", "b"), 2)
    second_attempt = setup.ask(some("b"), avoid=("a",))
    first_attempt = setup.ask(some("a", "b"))
    setup.release("a")
    assert (second_attempt.answers, first_attempt.answers) == ([0], [1, "a"])


def test_candidates_that_came_later_are_for_a_waiting_request_too() -> None:
    setup = Setup()
    setup.granted(some("a"), 1)
    waiting = setup.ask(some("a"))
    late = setup.ask(some("a", "b"), avoid=("b",))
    assert (waiting.answers, late.answers) == ([0, "b"], [0])


def test_fewer_instances_leave_more_for_each() -> None:
    setup = Setup(instances=4)
    requests = [setup.ask(some("a", capacity=4)) for _ in range(5)]
    setup.instances = 2
    setup.pool.freed()
    assert [request.answers[-1] for request in requests] == ["a", "a", 1, 2, 3]
    setup.instances = 1
    late = setup.ask(some("a", capacity=4))  # without a call of `views`; it still does not go before waiting ones
    assert [request.answers[-1] for request in (*requests, late)] == ["a", "a", "a", "a", 3, 1]


def test_more_instances_take_nothing_away_but_grant_nothing_more() -> None:
    setup = Setup()
    assert setup.granted(some("a", capacity=4), 4) == ["a"] * 4
    setup.instances = 2
    waiting = setup.ask(some("a", capacity=4))
    setup.release("a")
    setup.release("a")
    assert waiting.answers == [0]
    setup.release("a")
    assert waiting.answers == [0, "a"]


def test_waiting_requests_are_handed_over_in_the_order_they_came() -> None:
    setup = Setup()
    setup.ask(some("a"))
    waiting = [setup.ask(some("a"), Turn(name, 1, 99)) for name in ("b", "a", "c", "a")]
    assert setup.pool.drain_waiting() == waiting
    assert len(setup.pool) == 0
    setup.release("a")
    assert [request.answers[-1] for request in waiting] == [0, 0, 0, 1]
    assert setup.ask(some("a")).answers == ["a"]


def test_a_grant_that_ends_at_once_serves_the_next_without_growing_the_stack() -> None:
    setup = Setup()
    requests = [
        Request(some("a"), Turn("n", 1, 9999), when_granted=lambda: setup.release("a")) for _ in range(5000)
    ]
    setup.held["a"] = 1
    for request in requests:
        setup.bring(request)
    setup.release("a")
    assert all(request.answers[1:] == ["a"] for request in requests)
    assert setup.held["a"] == 0


def test_a_request_that_leaves_before_its_grant_was_passed_on_gets_none_and_the_next_gets_it() -> None:
    setup = Setup()
    setup.granted(some("a", "b"), 2)
    leaver, third = Request(some("a", "b")), Request(some("a", "b"))
    first = Request(some("a", "b"), when_granted=lambda: setup.pool.leave(leaver))
    for request in (first, leaver, third):
        setup.bring(request)
    setup.held.clear()
    setup.pool.freed()
    assert leaver.answers == [1]
    assert sorted(map(str, [first.answers[-1], third.answers[-1]])) == ["a", "b"]
    assert setup.held == {"a": 1, "b": 1}


def test_an_asker_that_fails_costs_no_other_its_answer() -> None:
    def fail() -> None:
        raise ValueError("broken")

    setup = Setup()
    setup.granted(some("a", "b"), 2)
    broken, next_one = setup.bring(Request(some("a", "b"), when_granted=fail)), setup.ask(some("a", "b"))
    setup.held.clear()
    with pytest.raises(ValueError, match="broken"):
        setup.pool.freed()
    setup.pool.freed()
    assert broken.answers[-1] in ("a", "b")
    assert next_one.answers[-1] in ("a", "b")

"""A pool decided by what one instance holds: whose turn it is, and what part of a capacity is its own."""

import pytest

from tests.unit.admission.local_pool_rig import Request, Setup, some


@pytest.mark.parametrize(
    ("capacity", "instances", "share"),
    [(1, 1, 1), (8, 1, 8), (8, 3, 2), (8, 8, 1), (2, 5, 1), (1, 100, 1), (4, 0, 4)],
)
def test_each_instance_may_use_its_part_of_a_capacity_and_one_at_least(
    capacity: int, instances: int, share: int
) -> None:
    setup = Setup(instances)
    answers = setup.granted(some("a", capacity=capacity), share + 2)
    assert answers == ["a"] * share + ["pool_saturated"] * 2
    assert setup.held == {"a": share}


def test_without_a_capacity_there_is_always_room() -> None:
    assert Setup(9).granted(some("a", capacity=0), 50) == ["a"] * 50


def test_what_others_granted_counts_too() -> None:
    setup = Setup()
    setup.held["a"] = 2
    assert setup.granted(some("a", capacity=3), 2) == ["a", "pool_saturated"]


def test_the_least_held_gets_it() -> None:
    setup = Setup()
    setup.held.update({"a": 2, "b": 1, "c": 3})
    assert setup.granted(some("a", "b", "c", capacity=9), 1) == ["b"]


def test_slots_divide_what_is_held() -> None:
    setup = Setup()
    setup.held.update({"big": 3, "small": 1})
    candidates = (*some("big", capacity=0, slots=4), *some("small", capacity=0))
    assert setup.granted(candidates, 1) == ["big"]


def test_ties_rotate() -> None:
    setup, candidates = Setup(), some("a", "b", "c", capacity=0)
    seen = []
    for _ in range(6):
        seen += setup.granted(candidates, 1)
        setup.held.clear()
    assert seen == ["a", "b", "c", "a", "b", "c"]


def test_instances_may_begin_at_different_places() -> None:
    candidates = some("a", "b", "c", capacity=0)
    assert [Setup(start=start).granted(candidates, 1) for start in range(4)] == [["a"], ["b"], ["c"], ["a"]]


def test_the_first_with_room_gets_it_where_a_policy_has_put_them_in_order() -> None:
    setup, candidates = Setup(), some("c", "a", capacity=2)
    setup.held["a"] = 0
    answers = [setup.bring(Request(candidates, None, ordered=True)).answers[0] for _ in range(5)]
    assert answers == ["c", "c", "a", "a", "pool_saturated"]


def test_an_upstream_it_failed_at_is_not_used_again() -> None:
    setup = Setup()
    assert setup.ask(some("a", "b"), avoid=("a",)).answers == ["b"]
    assert setup.ask(some("a", "b"), turn=None, avoid=("a",)).answers == ["pool_saturated"]


@pytest.mark.parametrize("ordered", [True, False])
def test_an_upstream_it_is_reluctant_to_use_is_taken_where_no_other_has_room(ordered: bool) -> None:
    setup = Setup()
    answers = [setup.bring(Request(some("a", "b"), ordered=ordered, reluctant=("a",))).answers for _ in range(3)]
    assert answers == [["b"], ["a"], [0]]
    setup.release("a")
    assert answers[2] == [0, "a"]

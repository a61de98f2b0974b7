"""Round-robin: exact, whichever upstreams come and go."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.balance.round_robin import RoundRobin
from slb.balance.upstream import LiveUpstream
from slb.balance.view import RouteView
from tests.unit.balance.upstreams import name, picks, upstreams

ALL = upstreams("abcdef")


def some(names: str) -> tuple[LiveUpstream, ...]:
    return tuple(live for live in ALL if name(live) in names)


def served_last(letter: str) -> RoundRobin:
    """A round whose last pick was `letter`."""
    policy = RoundRobin(Random(1))
    policy.pick(RouteView(some(letter)))
    return policy


@pytest.mark.parametrize("seed", range(5))
def test_each_is_served_in_its_turn_from_a_random_place_on(seed: int) -> None:
    found = picks(RoundRobin(Random(seed)), some("abc"), 9)
    assert found in "abc" * 5
    assert Counter(found) == {"a": 3, "b": 3, "c": 3}


def test_instances_start_at_different_places() -> None:
    starts = Counter(picks(RoundRobin(Random(seed)), some("abc"), 1) for seed in range(300))
    assert all(60 <= starts[each] <= 140 for each in "abc")  # a third of 300, within 5 standard deviations


@pytest.mark.parametrize(
    ("last", "then", "expected"),
    [
        ("a", "abc", "bca"),
        ("b", "abcd", "cda"),
        ("c", "abcd", "dab"),
        ("b", "acd", "cda"),
        ("b", "a", "aaa"),
        ("d", "abc", "abc"),
        ("c", "abdef", "def"),
        ("a", "bcdef", "bcd"),
        ("b", "abc", "cab"),
    ],
)
def test_the_round_goes_on_with_the_next_in_order_when_the_set_changes(last: str, then: str, expected: str) -> None:
    assert picks(served_last(last), some(then), 3) == expected


def test_an_attempt_elsewhere_takes_its_own_turn_and_no_other_s() -> None:
    policy, view = served_last("a"), RouteView(some("abc"))
    assert name(policy.pick(view)) == "b"
    assert name(policy.pick(view, without=some("b"))) == "c"
    assert "".join(name(policy.pick(view)) for _ in range(3)) == "abc"


@given(st.lists(st.sets(st.sampled_from("abcdef"), min_size=1), min_size=1, max_size=30), st.integers(0, 99))
def test_each_pick_is_the_successor_of_the_one_before_whatever_the_set(sets: list[set[str]], seed: int) -> None:
    policy, last = RoundRobin(Random(seed)), ""
    for names in sets:
        picked = picks(policy, some("".join(names)), 1)
        if last:
            assert picked == min((each for each in names if each > last), default=min(names))
        last = picked


@given(st.sets(st.sampled_from("abcdef"), min_size=2), st.lists(st.sets(st.sampled_from("abcdef")), max_size=25))
def test_while_upstreams_come_and_go_those_that_stay_are_served_once_a_round(
    stay: set[str], come_and_go: list[set[str]]
) -> None:
    """Between two turns of one that stays, every other that stays has exactly one."""
    policy = RoundRobin(Random(0))
    seen = "".join(picks(policy, some("".join(stay | here)), 1) for here in come_and_go)
    turns = "".join(each for each in seen if each in stay)
    assert turns in "".join(sorted(stay)) * 26

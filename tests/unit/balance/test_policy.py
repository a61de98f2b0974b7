"""What holds for every policy."""

from collections import Counter
from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.balance.policy import POLICIES
from slb.balance.upstream import LiveUpstream
from slb.balance.view import RouteView
from slb.model import PolicyName
from tests.unit.balance.upstreams import made_policy, name, upstream, upstreams

NAMES = sorted(POLICIES)


def test_every_name_a_user_may_type_has_its_policy() -> None:
    assert set(POLICIES) == set(get_args(PolicyName))


@pytest.mark.parametrize("policy", NAMES)
@given(sets=st.lists(st.sets(st.sampled_from("abcdef"), min_size=1), max_size=15), seed=st.integers(0, 99))
def test_each_pick_was_eligible(policy: PolicyName, sets: list[set[str]], seed: int) -> None:
    made = made_policy(policy, seed)
    for names in sets:
        eligible = upstreams("".join(sorted(names)))
        assert made.pick(RouteView(eligible)) in eligible


@pytest.mark.parametrize("policy", NAMES)
def test_everyone_gets_something(policy: PolicyName) -> None:
    view, made = RouteView(upstreams("abc")), made_policy(policy, 1)
    assert {made.pick(view) for _ in range(60)} == set(view.upstreams)


@pytest.mark.parametrize("policy", NAMES)
@given(sets=st.lists(st.sets(st.sampled_from("abcdef"), min_size=1), max_size=15), seed=st.integers(0, 99))
def test_an_order_has_every_eligible_one_once(policy: PolicyName, sets: list[set[str]], seed: int) -> None:
    made = made_policy(policy, seed)
    for names in sets:
        view = RouteView(upstreams("".join(sorted(names))))
        assert sorted(name(live) for live in made.order(view)) == sorted(names)


@pytest.mark.parametrize("policy", NAMES)
@given(loads=st.lists(st.integers(0, 3), min_size=1, max_size=6), before=st.integers(0, 7), seed=st.integers(0, 99))
def test_first_in_the_order_is_what_pick_would_have_returned(
    policy: PolicyName, loads: list[int], before: int, seed: int
) -> None:
    view = RouteView(tuple(upstream("abcdef"[at], weight=at + 1, inflight=load) for at, load in enumerate(loads)))
    orders, picks = made_policy(policy, seed), made_policy(policy, seed)
    for made in (orders, picks):
        for _ in range(before):
            made.pick(view)
    assert orders.order(view)[0] is picks.pick(view)


@pytest.mark.parametrize("policy", NAMES)
@given(
    sets=st.lists(st.sets(st.sampled_from("abcdef"), max_size=5), max_size=15),
    orders=st.booleans(),
    seed=st.integers(0, 99),
)
def test_what_a_request_leaves_out_is_left_out_and_nothing_else_is(
    policy: PolicyName, sets: list[set[str]], orders: bool, seed: int
) -> None:
    """Between requests that leave out nothing, by one view."""
    made, view = made_policy(policy, seed), RouteView(upstreams("abcdef"))
    for names in sets:
        without = [live for live in view.upstreams if name(live) in names]
        left = set("abcdef") - names
        if orders:
            assert sorted(name(live) for live in made.order(view, without=without)) == sorted(left)
        else:
            assert name(made.pick(view, without=without)) in left
        assert set(made.order(view)) == set(view.upstreams)


@pytest.mark.parametrize("policy", sorted(set(NAMES) - {"random"}))
def test_an_order_counts_as_one_pick(policy: PolicyName) -> None:
    view = RouteView(upstreams("abcd"))
    orders, picks = made_policy(policy, 1), made_policy(policy, 1)
    assert [orders.order(view)[0] for _ in range(20)] == [picks.pick(view) for _ in range(20)]


def ordered(policy: PolicyName, eligible: tuple[LiveUpstream, ...], times: int = 1) -> list[str]:
    made, view = made_policy(policy, 1), RouteView(eligible)
    return ["".join(map(name, made.order(view))) for _ in range(times)]


def test_round_robins_order_is_the_round_from_the_next_one_on() -> None:
    first, second, third, again = ordered("round_robin", upstreams("abc"), 4)
    assert {first, second, third} == {"abc", "bca", "cab"}
    assert first[1:] + first[0] == second
    assert again == first


def test_in_a_weighted_order_those_come_first_whose_turn_is_next() -> None:
    eligible = (upstream("a", weight=5), upstream("b", weight=1), upstream("c", weight=3))
    found = ordered("weighted_round_robin", eligible, 900)
    assert Counter(each[0] for each in found) == {"a": 500, "b": 100, "c": 300}
    for now, then in pairwise(found):
        assert then[0] in now[:2]


def test_in_a_random_order_each_is_second_as_often() -> None:
    seconds = Counter(each[1] for each in ordered("random", upstreams("abc"), 900))
    assert all(240 <= seconds[each] <= 360 for each in "abc")  # a third, within 4 standard deviations


def test_after_the_better_of_two_the_others_are_ordered_by_load() -> None:
    eligible = tuple(upstream(each, inflight=load) for each, load in zip("abcde", (4, 3, 2, 1, 0), strict=True))
    for each in ordered("p2c", eligible, 20):
        assert each[1:] == "edcba".replace(each[0], "")


@pytest.mark.parametrize("policy", ["least_local", "least_inflight"])
def test_the_least_loaded_come_first_and_ties_rotate(policy: PolicyName) -> None:
    eligible = (upstream("a", inflight=2), upstream("b", slots=4, inflight=2), upstream("c"), upstream("d"))
    found = ordered(policy, eligible, 8)
    assert {each[:2] for each in found} == {"cd", "dc"}
    assert {each[2:] for each in found} == {"ba"}


@pytest.mark.parametrize("policy", NAMES)
@given(
    loads=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(0, 5)), min_size=1, max_size=6),
    before=st.integers(0, 7),
    seed=st.integers(0, 99),
)
def test_its_standing_says_where_the_next_pick_goes_and_changes_nothing(
    policy: PolicyName, loads: list[tuple[int, int, int]], before: int, seed: int
) -> None:
    view = RouteView(tuple(upstream(letter, *load) for letter, load in zip("abcdef", loads, strict=False)))
    made, twin = made_policy(policy, seed), made_policy(policy, seed)
    for _ in range(before):
        made.pick(view)
        twin.pick(view)
    standing = made.standing(view)
    assert standing == made.standing(view)
    picked = made.pick(view)
    assert picked is twin.pick(view)
    assert standing.by
    assert set(standing.scores) in (set(), set(view.upstreams))
    assert not standing.ranked or standing.ranked[0] is picked
    is_drawn = policy in ("random", "p2c") and len(loads) > 1
    begins_anywhere = policy in ("round_robin", "weighted_round_robin", "consistent_hash") and not before
    assert bool(standing.ranked) is not (is_drawn or begins_anywhere)

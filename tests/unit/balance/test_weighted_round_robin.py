"""Smooth weighted round-robin: shares exact, turns spread."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.balance.upstream import LiveUpstream
from slb.balance.weighted_round_robin import WeightedRoundRobin
from slb.model import Upstream
from tests.support.memory import kept_of
from tests.unit.balance.upstreams import picks, upstream


class NoHeadStart(Random):
    def random(self) -> float:
        return 0.0


def weighted(weights: dict[str, int]) -> tuple[LiveUpstream, ...]:
    return tuple(upstream(each, weight=weight) for each, weight in sorted(weights.items()))


def longest_wait(found: str, letter: str) -> int:
    return max(len(others) for others in "".join(each if each == letter else "." for each in found).split(letter))


@pytest.mark.parametrize(
    ("weights", "expected"),
    [({"a": 5, "b": 1, "c": 1}, "aabacaa"), ({"a": 1, "b": 1}, "ab"), ({"a": 2, "b": 1}, "aba"), ({"a": 9}, "a")],
)
def test_turns_are_spread_over_the_round(weights: dict[str, int], expected: str) -> None:
    policy = WeightedRoundRobin(NoHeadStart())
    assert picks(policy, weighted(weights), 3 * len(expected)) == expected * 3


_weights = st.dictionaries(st.sampled_from("abcde"), st.integers(1, 9), min_size=1)


@given(_weights, st.integers(0, 9999))
def test_in_every_round_each_is_picked_exactly_as_often_as_it_weighs(weights: dict[str, int], seed: int) -> None:
    policy, eligible = WeightedRoundRobin(Random(seed)), weighted(weights)
    total = sum(weights.values())
    for _ in range(3):
        assert Counter(picks(policy, eligible, total)) == weights


def test_instances_do_not_all_begin_with_the_same_upstream() -> None:
    eligible = weighted({"a": 1, "b": 1, "c": 1})
    first = Counter(picks(WeightedRoundRobin(Random(seed)), eligible, 1) for seed in range(300))
    assert all(60 <= first[each] <= 140 for each in "abc")  # a third of 300, within 5 standard deviations


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("before", [1, 500, 1003])
def test_a_weight_that_was_lowered_leaves_no_debt_behind(seed: int, before: int) -> None:
    eligible = weighted({"a": 1000, "b": 1, "c": 1, "d": 1})
    policy = WeightedRoundRobin(Random(seed))
    picks(policy, eligible, before)
    for live in eligible:
        live.spec = Upstream.of(live.member)
    found = picks(policy, eligible, 100)
    assert max(longest_wait(found, each) for each in "abcd") <= 8


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("before", [1, 500, 1003])
def test_none_waits_longer_than_two_rounds_once_a_heavy_one_has_left(seed: int, before: int) -> None:
    eligible = weighted({"a": 1000, "b": 1, "c": 1, "d": 1})
    policy = WeightedRoundRobin(Random(seed))
    picks(policy, eligible, before)
    found = picks(policy, eligible[1:], 100)
    assert max(longest_wait(found, each) for each in "bcd") <= 6


@given(st.lists(st.sets(st.sampled_from("abcdefgh"), min_size=1), max_size=20))
def test_it_remembers_no_more_than_twice_those_it_picks_from(sets: list[set[str]]) -> None:
    policy = WeightedRoundRobin(Random(1))
    for names in sets:
        eligible = weighted(dict.fromkeys(names, 2))
        assert picks(policy, eligible, 1) in names
        remembered = {each for each in kept_of(policy, str) if each.endswith(":80")}
        assert len(remembered) <= 2 * len(eligible) + len(eligible)

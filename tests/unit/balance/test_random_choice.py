"""Uniformly random."""

from collections import Counter
from random import Random

from slb.balance.random_choice import RandomChoice
from slb.balance.view import RouteView
from tests.unit.balance.upstreams import name, upstreams


def test_everyone_has_the_same_share() -> None:
    eligible, policy = upstreams("abcd"), RandomChoice(Random(1))
    found = Counter(name(policy.pick(RouteView(eligible))) for _ in range(4000))
    assert all(850 <= found[each] <= 1150 for each in "abcd")  # 1000, within 5 standard deviations


def test_the_same_seed_makes_the_same_choices() -> None:
    eligible = upstreams("abcd")
    one, other = RandomChoice(Random(7)), RandomChoice(Random(7))
    assert [one.pick(RouteView(eligible)) for _ in range(20)] == [
        other.pick(RouteView(eligible)) for _ in range(20)
    ]

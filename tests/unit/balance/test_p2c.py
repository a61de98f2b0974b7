"""The power of two choices."""

from collections import Counter
from random import Random

from slb.balance.p2c import PowerOfTwoChoices
from slb.balance.upstream import Handle
from slb.balance.view import RouteView
from tests.unit.balance.upstreams import name, upstream, upstreams


def test_among_equals_everyone_has_the_same_share() -> None:
    eligible, policy = upstreams("abcd"), PowerOfTwoChoices(Random(1))
    found = Counter(name(policy.pick(RouteView(eligible))) for _ in range(4000))
    assert all(850 <= found[each] <= 1150 for each in "abcd")  # 1000, within 5 standard deviations


def test_the_most_loaded_is_never_picked_while_another_can_be() -> None:
    eligible = (upstream("a", inflight=9), upstream("b", inflight=1), upstream("c", inflight=2))
    policy = PowerOfTwoChoices(Random(1))
    found = Counter(name(policy.pick(RouteView(eligible))) for _ in range(3000))
    assert found["a"] == 0
    assert 1850 <= found["b"] <= 2150  # two of the three pairs


def test_load_is_counted_per_slot() -> None:
    eligible = (upstream("a", slots=4, inflight=3), upstream("b", inflight=1))
    policy = PowerOfTwoChoices(Random(1))
    assert {name(policy.pick(RouteView(eligible))) for _ in range(50)} == {"a"}


def test_two_choices_keep_the_fullest_close_to_the_mean() -> None:
    """A thousand requests on a hundred upstreams: one random choice leaves a maximum near 20, two near 12."""
    eligible = tuple(upstream(f"u{number:02}") for number in range(100))
    policy = PowerOfTwoChoices(Random(1))
    for _ in range(1000):
        Handle(policy.pick(RouteView(eligible)))
    assert max(live.inflight for live in eligible) <= 13


def test_one_alone_is_always_picked() -> None:
    (only,) = eligible = upstreams("a")
    assert PowerOfTwoChoices(Random(1)).pick(RouteView(eligible)) is only

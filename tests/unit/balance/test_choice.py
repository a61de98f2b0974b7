"""Which upstream an attempt goes to."""

from random import Random

import pytest

from slb.balance.choice import choose
from slb.balance.policy import POLICIES
from slb.balance.upstream import LiveUpstream
from slb.balance.view import RouteView
from slb.model import PolicyName
from tests.unit.balance.hashed_route import Route
from tests.unit.balance.rings import fleet
from tests.unit.balance.upstreams import made_policy, name, upstream, upstreams

NONE: frozenset[LiveUpstream] = frozenset()


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_further_attempt_without_a_key_goes_to_the_least_loaded_of_the_others(policy: PolicyName) -> None:
    view = RouteView((upstream("a"), upstream("b", inflight=2), upstream("c", inflight=1)))
    without, made, rng = frozenset(view.upstreams[:1]), made_policy(policy, 1), Random(1)
    assert {name(choose(made, view, b"", without, float, rng)) for _ in range(20)} == {"c"}


def test_a_further_attempt_takes_no_turn_from_the_round() -> None:
    view, made, rng = RouteView(upstreams("abc")), made_policy("round_robin", 1), Random(1)
    turns = []
    for _ in range(6):
        turns.append(name(choose(made, view, b"", NONE, float, rng)))
        choose(made, view, b"", frozenset(view.upstreams[:1]), float, rng)
    assert "".join(turns) in "abc" * 3


def test_a_further_attempt_with_a_key_goes_to_the_next_on_the_ring() -> None:
    route, rng = Route(fleet(9), load_signal="off"), Random(1)
    owner, second, *_ = route.policy.order(route.view, b"key")
    second.inflight = 9
    assert choose(route.policy, route.view, b"key", frozenset((owner,)), float, rng) is second


def test_a_first_attempt_leaves_out_those_that_fade_in_and_may_all_be_in() -> None:
    view = RouteView((upstream("a"), upstream("b", seen=0.0)), fade_in=10.0)
    made, rng = made_policy("round_robin", 1), Random(1)
    assert {name(choose(made, view, b"", NONE, lambda: 0.0, rng)) for _ in range(4)} == {"a"}
    assert {name(choose(made, view, b"", NONE, lambda: 10.0, rng)) for _ in range(4)} == {"a", "b"}

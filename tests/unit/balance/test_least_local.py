"""The least loaded as far as this instance can see."""

from random import Random

import pytest

from slb.balance.least_local import LeastLocal
from slb.balance.upstream import Handle
from slb.balance.view import RouteView
from tests.unit.balance.upstreams import name, upstream, upstreams


def test_the_one_with_the_fewest_requests_in_flight_is_picked() -> None:
    eligible = (upstream("a", inflight=3), upstream("b", inflight=1), upstream("c", inflight=2))
    policy = LeastLocal(Random(1))
    assert [name(policy.pick(RouteView(eligible))) for _ in range(6)] == ["b"] * 6


def test_load_is_counted_per_slot() -> None:
    eligible = (upstream("a", slots=4, inflight=3), upstream("b", slots=1, inflight=1))
    policy = LeastLocal(Random(1))
    assert [name(policy.pick(RouteView(eligible))) for _ in range(4)] == ["a"] * 4


@pytest.mark.parametrize("seed", range(4))
def test_ties_rotate(seed: int) -> None:
    eligible = upstreams("abc")
    policy = LeastLocal(Random(seed))
    assert "".join(name(policy.pick(RouteView(eligible))) for _ in range(6)) in "abc" * 4


def test_ties_among_some_rotate_too() -> None:
    eligible = (upstream("a"), upstream("b", inflight=1), upstream("c"))
    policy = LeastLocal(Random(1))
    assert {name(policy.pick(RouteView(eligible))) for _ in range(6)} == {"a", "c"}


@pytest.mark.parametrize("loads", [(0, 0, 0), (0, 1, 0), (1, 0, 0), (2, 1, 1)])
def test_the_one_that_is_picked_is_the_first_of_the_order(loads: tuple[int, int, int]) -> None:
    view = RouteView(tuple(upstream(name, inflight=load) for name, load in zip("abc", loads, strict=True)))
    picking, ordering = LeastLocal(Random(1)), LeastLocal(Random(1))
    assert [picking.pick(view) for _ in range(6)] == [ordering.order(view)[0] for _ in range(6)]


def test_requests_that_stay_fill_everyone_alike() -> None:
    eligible = (upstream("a", slots=2), upstream("b", slots=1), upstream("c", slots=3))
    policy = LeastLocal(Random(1))
    for _ in range(12):
        Handle(policy.pick(RouteView(eligible)))
    assert [live.inflight for live in eligible] == [4, 2, 6]


def test_one_alone_is_always_picked() -> None:
    (only,) = eligible = upstreams("a")
    assert LeastLocal(Random(1)).pick(RouteView(eligible)) is only

"""Policies in a simulated fleet, and the wrong ones beside them."""

from collections import Counter

import pytest

from bench.lab.fleet import Fleet, Shape, view
from bench.lab.policies import ByThroughput, MakePolicy, NaiveThreshold, add_policy, furthest, walked
from slb.balance.consistent_hash import ConsistentHash
from slb.balance.view import RouteView
from slb.model import RouteSettings

SHAPE = Shape(upstreams=4, clients=1, rate=400.0, fan_out=1, keys=200, exponent=1.0, cache=200)
KEY = b"/products/1"


def policy(make: MakePolicy, seed: int = 1) -> tuple[Fleet, ConsistentHash, RouteView]:
    """A fleet with one client, that client's policy, and the upstreams as it sees them."""
    fleet = Fleet(SHAPE, seed)
    fleet.add_servers(range(SHAPE.upstreams))
    upstreams = view(range(SHAPE.upstreams))
    settings = RouteSettings(policy="consistent_hash", balance_factor=1.25)
    return fleet, add_policy(fleet, make, upstreams, settings, "client"), RouteView(upstreams)


def test_a_policy_in_the_lab_sends_a_key_to_its_owner() -> None:
    _, made, seen = policy(ConsistentHash)
    assert len({made.pick(seen, KEY).member for _ in range(20)}) == 1


def test_throughput_passes_over_whoever_was_sent_much_of_late_though_none_of_it_is_in_flight() -> None:
    fleet, made, seen = policy(ByThroughput)
    sent = Counter(made.pick(seen, KEY).member for _ in range(40))
    assert len(sent) == SHAPE.upstreams
    assert max(sent.values()) <= 1.25 * 41 / 4 + 1
    fleet.schedule.run(1.0)
    assert made.pick(seen, KEY).member == sent.most_common(1)[0][0], "what was sent long ago is forgotten"


def test_the_naive_threshold_is_the_same_for_every_upstream() -> None:
    _, made, seen = policy(NaiveThreshold)
    made.pick(seen, KEY)
    assert len({made._threshold_of(upstream) for upstream in seen.upstreams}) == 1


def test_the_same_seed_gives_the_same_figures_with_the_whole_policy() -> None:
    runs = []
    for seed in (1, 1, 2):
        fleet, made, _ = policy(ConsistentHash, seed)
        fleet.begin(5.0)
        fleet.schedule.run(5.0)
        runs.append(([fleet.measures.second(number) for number in range(5)], made.distances))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_distances_say_how_many_walked_and_how_far() -> None:
    since = Counter({0: 90, 1: 8, 4: 2})
    assert walked(since) == pytest.approx(0.1)
    assert (furthest(since, 0.9), furthest(since, 0.98), furthest(since, 0.99)) == (0, 1, 4)
    assert walked(Counter()) == furthest(Counter(), 0.99) == 0

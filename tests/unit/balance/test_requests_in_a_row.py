"""Requests by one and the same view, as a route has it until something changes, and retries
between them. The clock stands still unless a test moves it, so that what is known from the last look is gone by.
"""

from collections import Counter
from random import Random

import pytest

from slb.balance.consistent_hash import ConsistentHash
from slb.balance.ring import Ring
from slb.balance.upstream import Handle, LiveUpstream
from slb.balance.view import RouteView
from slb.model import RouteSettings
from tests.unit.balance.hashed_route import Route
from tests.unit.balance.rings import KEYS, fleet

KEY = b"key"


def pick(route: Route, key: bytes = KEY) -> LiveUpstream:
    return route.pick(key)


def clockwise(route: Route) -> list[LiveUpstream]:
    return list(Ring.of(route.upstreams).walk(KEY))


def hold(upstream: LiveUpstream, count: int) -> list[Handle]:
    return [Handle(upstream) for _ in range(count)]


@pytest.mark.parametrize("moves", [0.0, 1.0])
def test_an_upstream_that_a_retry_leaves_out_the_next_request_may_have(moves: float) -> None:
    route = Route(fleet(5))
    owner, second, *_ = clockwise(route)
    assert pick(route) is owner
    held = hold(owner, 10)
    assert route.pick(KEY, without=[second]) not in (owner, second)
    route.now += moves
    assert pick(route) is second
    assert len(held) == 10


def test_an_upstream_that_the_order_of_a_retry_leaves_out_the_next_order_has_in_its_place() -> None:
    route = Route(fleet(5))
    pick(route)
    order = clockwise(route)
    again = route.policy.order(route.view, KEY, [order[1]])
    assert list(again) == [order[0], *order[2:]]
    assert list(route.policy.order(route.view, KEY)) == order


def test_requests_without_a_key_go_round_between_those_that_have_one() -> None:
    route = Route(fleet(3))
    owner, found = pick(route), Counter[LiveUpstream]()
    for _ in range(30):
        found[pick(route, b"")] += 1
        assert pick(route) is owner
    assert set(found.values()) == {10}
    assert route.policy.counts.keyless == 30


def test_by_skippers_rule_one_in_flight_of_few_is_too_much_for_the_very_next_request() -> None:
    route = Route(fleet(3), load_signal="inflight")
    owner, second, _ = clockwise(route)
    assert pick(route) is owner
    held = hold(owner, 1)
    assert pick(route) is second
    assert held[0].upstream is owner


def test_what_begins_counts_for_the_very_next_request() -> None:
    route = Route(fleet(3))
    owner = clockwise(route)[0]
    found = [Handle(pick(route)).upstream for _ in range(12)]
    assert found[:2] == [owner, owner]
    assert found.count(owner) <= 1.25 * (1 + 13 / 3) + 1


def test_settings_that_change_hold_for_the_next_request_by_the_same_upstreams() -> None:
    route = Route(fleet(3), load_signal="off")
    owner = pick(route)
    held = hold(owner, 20)
    assert pick(route) is owner
    route.policy.follow(route.upstreams, RouteSettings(ring_debounce=0.0))
    assert pick(route) is not owner
    assert len(held) == 20


def test_the_first_ring_decides_from_the_very_request_after_it_was_made() -> None:
    policy, upstreams = ConsistentHash(Random(1), lambda: 1000.0), tuple(fleet(10))
    policy.follow(upstreams, RouteSettings(ring_debounce=0.0, load_signal="off"))
    view = RouteView(upstreams)
    policy.pick(view, KEY)
    assert policy.counts.unready == 1
    for _ in policy.steps():
        pass
    ring = Ring.of(upstreams)
    assert [policy.pick(view, key) for key in KEYS] == [ring.pick(key) for key in KEYS]
    assert policy.counts.unready == 1


def test_a_ring_that_a_newcomer_joins_decides_from_the_very_request_after_it_was_made() -> None:
    route = Route(fleet(4), load_signal="off")
    pick(route)
    route.serves([*route.upstreams, *fleet(4, net=1)])
    route.policy.follow(route.upstreams, route.settings)
    ring = Ring.of(route.upstreams)
    before = [pick(route, key) for key in KEYS]
    route.step()
    assert before != [pick(route, key) for key in KEYS] == [ring.pick(key) for key in KEYS]


def test_upstreams_that_are_left_are_each_expected_to_have_more() -> None:
    """Two of eight have all there is to do: by an eighth part each would be far above what it may have."""
    route = Route(fleet(8))
    pick(route)
    owner, second, *_ = clockwise(route)
    route.serves([owner, second])
    pick(route)
    held = hold(owner, 11) + hold(second, 9)
    assert pick(route) is owner
    assert len(held) == 20


# -- where no upstream of the ring that was drawn is left


def in_its_zone(local: list[LiveUpstream], far: list[LiveUpstream]) -> Route:
    """One whose ramp is at its top."""
    route = Route([*local, *far], "a", zone_affinity=True, zone_delay="0s", zone_min_upstreams=1, load_signal="off")
    pick(route)
    route.after(1000.0)
    assert pick(route) in local
    return route


def test_a_retry_of_what_the_whole_zone_has_failed_goes_round_the_other_zones() -> None:
    local, far = fleet(2, zone="a"), fleet(4, net=1, zone="b")
    route = in_its_zone(local, far)
    found = Counter(route.pick(KEY, without=local) for _ in range(40))
    assert set(found) == set(far)
    assert min(found.values()) >= 8  # but for the few that the ring of all zones decides
    assert route.policy.zone_share.share > 0.9
    assert pick(route) in local


def test_the_order_of_such_a_retry_goes_round_them_too_and_has_each_once() -> None:
    local, far = fleet(2, zone="a"), fleet(4, net=1, zone="b")
    route = in_its_zone(local, far)
    orders = [route.policy.order(route.view, KEY, local) for _ in range(8)]
    assert all(sorted(each.member for each in order) == [each.member for each in far] for order in orders)
    assert len({order[0] for order in orders}) == 4

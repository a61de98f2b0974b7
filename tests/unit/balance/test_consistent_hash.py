"""The policy as a route uses it: ring, load, zone and fade-in together, at times the test sets."""

from collections import Counter
from random import Random

import pytest

from slb.balance.consistent_hash import ConsistentHash
from slb.balance.ring import Ring
from slb.balance.upstream import Handle, LiveUpstream
from slb.balance.view import RouteView
from slb.balance.zone import FLOOR
from slb.model import RouteSettings
from tests.unit.balance.hashed_route import Route
from tests.unit.balance.rings import KEYS, fleet


def agree(picks: list[LiveUpstream], ring: Ring) -> float:
    """How many of KEYS, in parts of all, went to their owner in `ring`."""
    return sum(ring.pick(key) is picked for key, picked in zip(KEYS, picks, strict=True)) / len(KEYS)


def test_while_no_upstream_is_busy_a_key_goes_to_its_owner() -> None:
    route = Route(fleet(10))
    assert route.picks() == [Ring.of(route.upstreams).pick(key) for key in KEYS]
    assert route.policy.counts.distances == {0: len(KEYS)}


def test_a_request_without_a_key_goes_round_and_is_counted() -> None:
    route = Route(fleet(3))
    assert Counter(route.pick(b"").member for _ in range(300)) == {each.member: 100 for each in route.upstreams}
    assert route.policy.counts.keyless == 300
    assert route.policy.counts.unready == 0


def test_before_there_is_a_ring_requests_go_round_and_are_counted() -> None:
    policy, upstreams = ConsistentHash(Random(1), lambda: 0.0), tuple(fleet(3))
    policy.follow(upstreams, RouteSettings())
    view = RouteView(upstreams)
    assert len({policy.pick(view, b"x") for _ in range(3)}) == 3
    assert policy.counts.unready == 3


def test_an_upstream_that_can_take_nothing_is_passed_over_and_no_other_key_moves() -> None:
    route = Route(fleet(10))
    before, out = route.picks(), route.upstreams[3:5]
    after = route.picks(without=out)
    ring = Ring.of(route.upstreams)
    for key, was, now in zip(KEYS, before, after, strict=True):
        assert now is (next(each for each in ring.walk(key) if each not in out) if was in out else was)
    assert route.picks() == before


def test_where_only_those_can_that_are_in_no_ring_yet_requests_go_round() -> None:
    route = Route(fleet(3), ring_debounce="2s")
    new = fleet(2, net=1)
    route.has([*route.upstreams, *new])
    route.serves(new)
    assert set(route.picks()[:4]) == set(new)
    assert route.policy.counts.unready == len(KEYS)


def test_a_key_of_a_megabyte_is_a_key() -> None:
    route, key = Route(fleet(10)), b"k" * (1 << 20)
    assert len({route.pick(key) for _ in range(10)}) == 1


# -- load


def test_a_hot_key_spreads_to_those_behind_its_owner() -> None:
    route = Route(fleet(10))
    held = [Handle(route.pick(b"hot")) for _ in range(100)]
    loads = Counter(each.upstream for each in held)
    assert max(loads.values()) <= 1.25 * (1 + 101 / 10) + 1
    assert len(loads) >= 8


def test_a_lone_request_at_an_upstream_is_not_too_much_for_its_keys() -> None:
    """Of ten in flight at fifty upstreams each is far more than its share: that is how few they are, not load."""
    route = Route(fleet(50))
    ring = Ring.of(route.upstreams)
    keys = list({ring.pick(key): key for key in KEYS}.values())[:5]
    held = [Handle(route.pick(key)) for key in keys]
    assert all(route.pick(key) is ring.pick(key) for key in keys)
    held += [Handle(route.pick(key)) for key in keys]
    assert all(route.pick(key) is not ring.pick(key) for key in keys)
    assert len(held) == 10


def test_rounding_does_not_make_a_lone_request_too_much() -> None:
    """All latency of the pool is one upstream's own."""
    route = Route(fleet(3))
    owner = route.pick(b"key")
    for _ in range(20):
        handle = Handle(route.pick(b"key"))
        assert route.pick(b"key") is handle.upstream is owner
        route.after(0.01)
        handle.release()
        route.after(1.0)


@pytest.mark.parametrize("count", [2, 3, 10])
def test_one_request_that_is_stuck_keeps_its_upstreams_keys_away_but_for_one_each_window(count: int) -> None:
    route = Route(fleet(count))
    owner = route.pick(b"key")
    held = [Handle(owner)]
    assert route.pick(b"key") is owner
    for window in (0.16, 0.31, 0.46):  # the longer the more of them wait
        route.after(window - 0.05)
        assert len(held) == 1 or route.pick(b"key") is not owner
        route.after(0.05)
        assert route.pick(b"key") is owner
        held.append(Handle(owner))
        assert route.pick(b"key") is not owner
    for each in held:
        each.release()
    route.after(1.0)
    assert route.pick(b"key") is owner


def test_one_long_request_does_not_keep_its_upstreams_keys_away() -> None:
    """All others take a millisecond, and come less often than once in the time after which nothing ends there."""
    route = Route(fleet(24))
    owner = route.pick(b"key")
    long = Handle(owner)
    kept = 0
    for _ in range(50):
        route.after(0.2)
        handle = Handle(route.pick(b"key"))
        kept += handle.upstream is owner
        route.after(0.001)
        handle.release()
    assert kept == 50
    long.release()


def test_an_upstream_that_was_slow_is_found_to_be_quick_again_though_streams_are_open_there() -> None:
    route = Route(fleet(6))
    others = [key for key in KEYS if route.pick(key) is not route.pick(KEYS[0])]
    slow = route.pick(KEYS[0])
    streams = [Handle(slow) for _ in range(3)]
    route.after(2.0)
    for each in streams:
        each.lasts()
    kept = 0
    for number in range(2000):
        handle = Handle(route.pick(others[number % len(others)]))
        route.after(0.001)
        handle.release()
        handle = Handle(route.pick(KEYS[0]))
        kept += handle.upstream is slow
        route.after(0.001)
        handle.release()
    assert kept > 20, "one in 150 ms of these 4 s, until its figures are what they were"
    for each in streams:
        each.release()


@pytest.mark.parametrize("took", [0.002, 0.020])
def test_of_a_batch_at_one_instant_no_key_leaves_an_owner_that_was_idle(took: float) -> None:
    route = Route(fleet(24))
    ring, rng = Ring.of(route.upstreams), Random(1)
    for key in KEYS:  # how long requests take is known
        handle = Handle(route.pick(key))
        route.after(took)
        handle.release()
    for _ in range(40):
        route.after(0.5)
        held = []
        for key in rng.sample(KEYS, 50):
            held.append(Handle(route.pick(key)))
            assert held[-1].upstream is ring.pick(key)
        route.after(took)
        for each in held:
            each.release()


def test_what_is_late_is_no_batch() -> None:
    route = Route(fleet(24))
    for key in KEYS:
        handle = Handle(route.pick(key))
        route.after(0.002)
        handle.release()
    route.after(0.5)
    owner = route.pick(b"key")
    held = [Handle(route.pick(b"key")) for _ in range(5)]
    assert {each.upstream for each in held} == {owner}
    route.after(0.005)
    assert route.pick(b"key") is not owner, "each should have ended after 2 ms"


def test_a_retry_does_not_change_by_which_upstreams_the_others_are_judged() -> None:
    local, far = fleet(3, net=0, zone="a"), fleet(4, net=1, zone="b")
    route = Route([*local, *far], "a", zone_affinity=True, zone_delay="0s", load_signal="off")
    route.pick(b"first")
    route.after(1000.0)
    route.pick(b"second")
    for _ in range(3):
        route.now += 1.0
        assert route.pick(b"key", without=local[:1]) is not local[0]
        assert route.policy.zone_share.share > 0.9


def test_an_upstream_that_is_really_out_is_counted_out() -> None:
    local, far = fleet(3, net=0, zone="a"), fleet(4, net=1, zone="b")
    route = Route([*local, *far], "a", zone_affinity=True, zone_delay="0s", load_signal="off")
    route.pick(b"first")
    route.after(1000.0)
    route.pick(b"second")
    assert route.policy.zone_share.share > 0.9
    route.serves([*local[1:], *far])
    route.pick(b"key")
    assert route.policy.zone_share.share == 0.0


def test_nor_does_a_retry_that_comes_with_the_view_of_before() -> None:
    local, far = fleet(3, net=0, zone="a"), fleet(4, net=1, zone="b")
    route = Route([*local, *far], "a", zone_affinity=True, zone_delay="0s", load_signal="off")
    route.pick(b"first")
    route.after(1000.0)
    before = route.view
    route.serves([*local[1:], *far])
    route.pick(b"key")
    for failed in far:
        route.now += 1.0
        assert route.policy.pick(before, b"key", [failed]) is not failed
        assert route.policy.zone_share.share == 0.0


def test_a_zone_that_has_frozen_whole_is_left_for_all_zones() -> None:
    local, far = fleet(3, net=0, zone="a"), fleet(4, net=1, zone="b")
    route = Route([*local, *far], "a", zone_affinity=True, zone_delay="0s")
    route.pick(b"first")
    route.after(1000.0)
    held = [Handle(each) for each in local]
    route.after(1.0)
    route.pick(b"key")
    assert route.policy.zone_share.share == 0.0
    held[0].release()
    route.after(1.0)
    route.pick(b"key")
    assert route.policy.zone_share.share > 0.9


def test_a_policy_that_is_left_costs_its_upstreams_nothing_more() -> None:
    route = Route(fleet(2))
    other = Route(route.upstreams)
    other.policy.leave()
    load_stats = route.upstreams[0].load_stats
    assert load_stats is not None
    assert len(load_stats.watchers) == 1


def test_with_no_signal_a_hot_key_stays() -> None:
    route = Route(fleet(10), load_signal="off")
    assert len({Handle(route.pick(b"hot")).upstream for _ in range(100)}) == 1


def test_a_warm_upstream_that_freezes_is_left_by_its_keys_and_gets_them_back() -> None:
    """Each takes a millisecond; then one answers nothing any more."""
    route = Route(fleet(6))

    def serve(key: bytes, frozen: LiveUpstream | None) -> LiveUpstream:
        handle = Handle(route.pick(key))
        if handle.upstream is frozen:
            stuck.append(handle)
        else:
            route.now += 0.001
            handle.release()
        return handle.upstream

    stuck: list[Handle] = []
    owners = {key: serve(key, None) for key in KEYS}
    frozen = owners[KEYS[0]]
    first_on, probes = None, 0
    for number in range(2000):
        if serve(KEYS[number % 1000], frozen) is frozen and route.now - (first_on or route.now) > 0.2:
            probes += 1
        first_on = first_on or (route.now if stuck else None)
    assert probes in range(3, 6), "in 2 s, and ever later"
    for handle in stuck:
        route.now += 0.001
        handle.release()
    route.now += 10.0
    assert [serve(key, None) for key in KEYS].count(frozen) >= 0.9 * list(owners.values()).count(frozen)


def test_an_idle_tunnel_does_not_keep_the_other_keys_of_its_upstream_away() -> None:
    route = Route(fleet(3))
    owner = route.pick(b"key")
    tunnel = Handle(owner)
    tunnel.lasts()
    for _ in range(20):
        route.after(1.0)
        handle = Handle(route.pick(b"key"))
        assert handle.upstream is owner
        route.after(0.01)
        handle.release()
    tunnel.release(completed=False)
    assert owner.inflight == 0


def test_a_slow_upstream_gets_less() -> None:
    """One takes ten times as long as the others; four requests at a time."""
    route = Route(fleet(6))
    slow, rng = route.upstreams[0], Random(3)
    running: list[tuple[float, Handle]] = []
    served: Counter[bool] = Counter()
    for _ in range(4000):
        while len(running) >= 4:
            running.sort(key=lambda each: each[0])
            ends, handle = running.pop(0)
            route.now = max(route.now, ends)
            handle.release()
        handle = Handle(route.pick(rng.choice(KEYS)))
        served[handle.upstream is slow] += 1
        running.append((route.now + (0.050 if handle.upstream is slow else 0.005), handle))
    assert served[True] < 4000 / 6 * 0.6


# -- fade-in


def test_new_upstreams_get_the_keys_they_will_own_and_no_more_than_their_share_of_the_time() -> None:
    route = Route(fleet(10), fade_in="30s", load_signal="off")
    old, new = route.upstreams, fleet(10, net=1)
    route.has([*old, *new])
    target = [Ring.of(route.upstreams).pick(key) for key in KEYS]
    will_own = sum(each in new for each in target) / len(KEYS)
    for progress, share in ((0.0, 0.0), (0.5, 0.177), (0.9, 0.768)):
        route.now = 1000.0 + progress * 30.0
        found = [pick for _ in range(10) for pick in zip(route.picks(), target, strict=True)]
        assert all(pick is owner for pick, owner in found if pick in new)
        assert sum(pick in new for pick, _ in found) / len(found) == pytest.approx(share * will_own, abs=0.02)
    route.after(30.0)
    assert route.picks() == target
    assert route.policy.fading == 0


def test_while_half_of_the_fleet_fades_in_the_other_half_keeps_its_keys_under_load() -> None:
    """Against the mean of all, twice as many, each of the old ones would be above its threshold."""
    route = Route(fleet(10), fade_in="30s")
    route.has([*route.upstreams, *fleet(10, net=1)])
    held = [Handle(route.pick(key)) for key in KEYS for _ in range(2)]
    assert route.policy.counts.distances[0] > 0.9 * len(held)


# -- zones


def test_requests_stay_in_the_zone_by_the_ramp() -> None:
    upstreams = [*fleet(4, net=0, zone="a"), *fleet(4, net=1, zone="b"), *fleet(4, net=2, zone="c")]
    route = Route(upstreams, "b", zone_affinity=True, zone_delay="10s", zone_fade_in="100s", zone_ceiling=0.9)
    at_first = [each.spec.zone for each in route.picks()].count("b") / len(KEYS)
    assert at_first == pytest.approx(1 / 3, abs=0.08)
    assert route.policy.zone_share.share == 0.0
    route.after(1000.0)
    at_last = [each.spec.zone for each in route.picks()].count("b") / len(KEYS)
    assert route.policy.zone_share.share == 0.9
    assert at_last == pytest.approx(0.9 + 0.1 * at_first, abs=0.03)


def test_what_stays_goes_to_the_owner_in_the_zones_own_ring() -> None:
    local, far = fleet(4, net=0, zone="a"), fleet(4, net=1, zone="b")
    route = Route([*local, *far], "a", zone_affinity=True, zone_delay="0s")
    route.pick(b"first")
    route.after(1000.0)
    assert agree(route.picks(), Ring.of(local)) >= 0.97  # a request in a hundred probes all zones


def test_too_few_in_the_zone_and_all_zones_are_used() -> None:
    route = Route([*fleet(2, zone="a"), *fleet(8, net=1, zone="b")], "a", zone_affinity=True, zone_delay="0s")
    route.pick(b"first")
    route.after(1000.0)
    assert route.picks() == [Ring.of(route.upstreams).pick(key) for key in KEYS]


def test_an_upstream_that_joins_a_zone_while_that_ramps_warms_up_and_lands_in_both_rings() -> None:
    local, far = fleet(4, net=0, zone="a"), fleet(8, net=1, zone="b")
    route = Route(
        [*local, *far],
        "a",
        zone_affinity=True,
        zone_delay="0s",
        zone_fade_in="60s",
        fade_in="30s",
        load_signal="off",
    )
    route.pick(b"first")
    route.after(30.0)
    new = fleet(1, net=2, zone="a")[0]
    route.has([*route.upstreams, new])
    assert route.picks().count(new) == 0
    route.after(15.0)
    half = sum(route.picks().count(new) for _ in range(10)) / 10
    share = route.policy.zone_share.share
    everyone, own = Ring.of(route.upstreams), Ring.of([*local, new])
    owned = [sum(ring.pick(key) is new for key in KEYS) for ring in (everyone, own)]
    assert half == pytest.approx(0.177 * ((1 - share) * owned[0] + share * owned[1]), rel=0.3)
    route.after(100.0)
    assert agree(route.picks(), own) >= 0.97
    assert route.policy.zone_share.share == 1.0 - FLOOR


# -- an order, for capped routes


def test_an_order_begins_clockwise_from_the_owner_and_has_each_upstream_once() -> None:
    route = Route(fleet(30))
    for key in KEYS[:50]:
        order = route.policy.order(route.view, key)
        assert list(order[:16]) == list(Ring.of(route.upstreams).walk(key))[:16]
        assert len(order) == len(set(order)) == 30


def test_without_a_key_an_order_goes_round() -> None:
    route = Route(fleet(3))
    assert len({route.policy.order(route.view)[0] for _ in range(3)}) == 3


# -- settings


def test_a_factor_below_one_and_a_window_below_zero_are_refused() -> None:
    for bad in ({"balance_factor": 0.99}, {"ring_debounce": "-1s"}, {"zone_fade_in": "0s"}, {"zone_ceiling": 1.1}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            RouteSettings.model_validate(bad)


def test_settings_that_change_hold_for_the_next_request() -> None:
    route = Route(fleet(10), load_signal="off")
    held = [Handle(route.pick(b"hot")) for _ in range(20)]
    route.settings = RouteSettings(ring_debounce=0.0)
    route.has(route.upstreams)
    assert route.pick(b"hot") is not held[0].upstream


def test_the_standing_of_a_key_is_its_walk_and_whom_it_passes_over() -> None:
    route = Route(fleet(5), load_signal="inflight", balance_factor="1.2")
    owner = route.pick(KEYS[0])
    standing = route.policy.standing(route.view, KEYS[0])
    assert (standing.ranked[0], standing.scores[owner], standing.passed) == (owner, 0, {})
    assert set(standing.ranked) == set(route.upstreams)
    owner.inflight = 50
    standing = route.policy.standing(route.view, KEYS[0])
    assert standing.ranked[0] is owner
    assert set(standing.passed) == {owner}
    assert route.pick(KEYS[0]) is standing.ranked[1]
    assert route.policy.standing(route.view).by.startswith("no key: ")


def test_the_standing_says_how_much_the_zone_has_to_itself_and_goes_by_the_ring_that_decides_most() -> None:
    own, others = fleet(4, zone="a"), fleet(4, 1, "b")
    route = Route([*own, *others], zone="a", zone_affinity=True, zone_delay="0s", zone_fade_in="100s")
    assert "zone" not in route.policy.standing(route.view, KEYS[0]).by
    route.picks()
    route.after(20)
    route.picks()
    standing = route.policy.standing(route.view, KEYS[0])
    share = route.policy.zone_share.share
    assert 0 < share < 0.5
    assert f"; the upstreams of zone a have {share:.0%} of the requests to themselves" in standing.by
    assert set(standing.ranked) == {*own, *others}
    route.after(200)
    route.picks()
    standing = route.policy.standing(route.view, KEYS[0])
    assert standing.by.endswith("of zone a have 99% of the requests to themselves, and the order is that of these")
    assert set(standing.ranked) == set(own)
    picked = Counter(route.pick(KEYS[0]) for _ in range(50))
    assert picked.most_common(1)[0][0] is standing.ranked[0]
    route.serves(others)
    assert set(route.policy.standing(route.view, KEYS[0]).ranked) == set(others)


def test_a_standing_can_be_asked_for_before_the_first_request() -> None:
    route = Route(fleet(3))
    standing = route.policy.standing(route.view, KEYS[0])
    assert standing.ranked[0] is route.pick(KEYS[0])

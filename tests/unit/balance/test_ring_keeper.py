"""Rings in step with the members."""

import math
from collections.abc import Iterable

import pytest

from slb.balance.ring_keeper import RingKeeper
from slb.balance.ring_set import RingSet
from slb.balance.upstream import LiveUpstream
from slb.model import Upstream
from tests.unit.balance.rings import fleet, live, members

OLD, NEW, NEWER = fleet(4), fleet(4, net=1), fleet(4, net=2)
MANY = fleet(20, net=6)
"""Enough for a step to stop in between."""


def keeper(upstreams: Iterable[LiveUpstream] = OLD, zone: str = "") -> RingKeeper:
    """Its first rings are built, at second 0; the window is 30 s, the debounce 2 s."""
    made = RingKeeper(window=30, debounce=2, zone=zone)
    made.follow(upstreams, 0)
    step(made, 0)
    return made


def finish(building: Iterable[None]) -> None:
    for _ in building:
        pass


def step(keeper: RingKeeper, now: float) -> RingSet:
    finish(keeper.step(now))
    return rings(keeper)


def local(keeper: RingKeeper) -> RingSet | None:
    return keeper.local


def rings(keeper: RingKeeper) -> RingSet:
    assert keeper.rings is not None
    return keeper.rings


def sizes(found: RingSet | None) -> list[int]:
    assert found is not None
    return [len(ring) for ring, _ in found.shares(0)]


def test_before_there_is_anybody_there_are_no_rings() -> None:
    empty = RingKeeper(30, 2)
    assert empty.rings is None
    assert empty.wake() == math.inf
    empty.follow([], 0)
    assert empty.wake() > 1000
    assert list(empty.step(1000)) == []
    assert empty.rings is None


def test_the_first_members_are_established_at_once() -> None:
    first = RingKeeper(30, 2)
    first.follow(OLD, 5)
    assert first.wake() <= 5
    assert step(first, 5).fading == ()
    assert rings(first).established.members == set(OLD)
    assert first.wake() == math.inf


def test_what_comes_within_the_debounce_of_the_first_is_one_change() -> None:
    kept = keeper()
    for number in range(1, 5):  # a rolling deploy: one more every half second
        kept.follow([*OLD, *NEW[:number]], 10 + (number - 1) / 2)
        assert kept.wake() > 11.9
        assert sizes(step(kept, 10 + number / 2 - 0.1)) == [4]
    assert kept.wake() == 12
    found = step(kept, 12)
    assert sizes(found) == [4, 8]
    assert (found.fading[0].began, found.fading[0].window) == (12, 30)


def test_what_comes_after_that_is_the_next_change() -> None:
    kept = keeper()
    kept.follow([*OLD, *NEW], 10)
    step(kept, 12)
    kept.follow([*OLD, *NEW, *NEWER], 12.5)
    assert kept.wake() == 14.5
    found = step(kept, 14.5)
    assert sizes(found) == [4, 8, 12]
    assert [each.began for each in found.fading] == [12, 14.5]


def test_an_upstream_that_leaves_is_gone_from_all_rings_without_waiting() -> None:
    kept = keeper()
    kept.follow([*OLD, *NEW], 10)
    step(kept, 12)
    kept.follow([*OLD[1:], *NEW[1:]], 13)
    assert sizes(rings(kept)) == [3, 6]
    assert rings(kept).newest.members == {*OLD[1:], *NEW[1:]}


def test_an_upstream_that_leaves_again_before_the_debounce_is_over_was_never_there() -> None:
    kept = keeper()
    kept.follow([*OLD, *NEW], 10)
    kept.follow([*OLD, NEW[1]], 11)
    kept.follow(OLD, 11.5)
    assert kept.wake() > 12
    kept.follow([*OLD, NEW[0]], 11.6)
    assert kept.wake() == 13.6


def test_a_pool_that_doubles_while_it_loses_some_keeps_the_two_apart() -> None:
    """Leaving is at once, joining is not: a rolling deploy that adds one, removes one, and so on."""
    kept = keeper()
    kept.follow([*OLD[1:], NEW[0]], 10)
    assert sizes(rings(kept)) == [3]
    kept.follow([*OLD[2:], *NEW[:2]], 11)
    assert sizes(rings(kept)) == [2]
    assert sizes(step(kept, 12)) == [2, 4]


def test_without_members_the_last_good_rings_stay() -> None:
    kept = keeper()
    kept.follow([], 10)
    assert rings(kept).established.members == set(OLD)
    assert kept.wake() > 1000
    kept.follow(OLD, 20)
    assert kept.wake() > 1000
    assert rings(kept).established.members == set(OLD)


def test_rings_without_members_still_finish_their_fade() -> None:
    kept = keeper()
    kept.follow([*OLD, *NEW], 10)
    step(kept, 12)
    kept.follow([], 13)
    assert sizes(step(kept, 42)) == [8]
    assert kept.wake() == math.inf


def test_members_that_are_others_altogether_are_established_without_waiting() -> None:
    """None is left that could serve while they fade in."""
    kept = keeper()
    kept.follow(NEW, 10)
    assert kept.wake() <= 10
    assert rings(kept).established.members == set(OLD)
    assert step(kept, 10) == RingSet(rings(kept).established)
    assert rings(kept).established.members == set(NEW)


def test_members_that_come_back_as_others_after_there_were_none_are_established_at_once() -> None:
    """A route that was emptied and filled again has other upstream objects for the same endpoints."""
    kept = keeper()
    kept.follow([], 10)
    again = fleet(4)
    kept.follow(again, 11)
    assert all(upstream in again for upstream in step(kept, 11).established.upstreams)
    assert kept.wake() == math.inf


def test_the_window_of_a_ring_is_the_one_it_began_with() -> None:
    kept = keeper()
    kept.follow([*OLD, *NEW], 10)
    step(kept, 12)
    kept.window, kept.debounce = 5, 1
    kept.follow([*OLD, *NEW, *NEWER], 20)
    step(kept, 21)
    assert [each.window for each in rings(kept).fading] == [30, 5]


def test_without_a_window_nothing_fades_and_without_a_debounce_nothing_waits() -> None:
    kept = keeper()
    kept.window = kept.debounce = 0
    kept.follow([*OLD, *NEW], 10)
    assert sizes(step(kept, 10)) == [8]


def test_it_wakes_to_settle_what_has_faded_in() -> None:
    kept = keeper()
    kept.follow([*OLD, *NEW], 10)
    step(kept, 12)
    assert kept.wake() == 42
    assert sizes(step(kept, 42)) == [8]
    assert kept.wake() == math.inf


def test_until_a_step_ends_the_rings_are_as_they_were() -> None:
    kept = keeper()
    before = rings(kept)
    kept.follow([*OLD, *fleet(100, net=1)], 10)
    seen = [kept.rings is before for _ in kept.step(12)]
    assert len(seen) > 10
    assert all(seen)
    assert sizes(rings(kept)) == [4, 104]


def test_an_upstream_that_leaves_while_a_ring_is_built_is_not_in_it() -> None:
    kept = keeper()
    kept.follow([*OLD, *MANY], 10)
    building = kept.step(12)
    next(building)
    kept.follow([*OLD[1:], *MANY[1:]], 12)
    assert sizes(rings(kept)) == [3]
    finish(building)
    assert sizes(rings(kept)) == [3, 22]


def test_an_upstream_that_comes_while_a_ring_is_built_has_a_debounce_of_its_own() -> None:
    kept = keeper()
    kept.follow([*OLD, *MANY], 10)
    building = kept.step(12)
    next(building)
    kept.follow([*OLD, *MANY, *NEW], 12.5)
    assert kept.wake() == math.inf  # one at a time
    finish(building)
    assert sizes(rings(kept)) == [4, 24]
    assert kept.wake() == 14.5


def test_the_first_members_are_others_when_their_rings_are_built() -> None:
    kept = RingKeeper(30, 2)
    kept.follow(MANY, 0)
    building = kept.step(0)
    next(building)
    kept.follow(NEW, 0)
    finish(building)
    assert kept.rings is None
    assert step(kept, 0).established.members == set(NEW)


def test_a_step_closed_halfway_changes_nothing_and_can_be_made_again() -> None:
    kept = keeper()
    kept.follow([*OLD, *MANY], 10)
    building = kept.step(12)
    next(building)
    assert list(kept.step(12)) == []  # one at a time
    building.close()
    assert sizes(rings(kept)) == [4]
    assert sizes(step(kept, 13)) == [4, 24]


def test_an_endpoint_given_twice_counts_once() -> None:
    kept = keeper([live("a:80"), live("a:80"), live("b:80")])
    assert members(rings(kept).established.upstreams) == ["a:80", "b:80"]
    assert kept.wake() == math.inf


NEAR, FAR, NEAR_NEW = fleet(3, 3, "z1"), fleet(3, 4, "z2"), fleet(3, 5, "z1")


def test_the_local_rings_are_those_of_the_zone_and_fade_in_at_the_same_times() -> None:
    kept = keeper([*NEAR, *FAR], zone="z1")
    kept.follow([*NEAR, *FAR, *NEAR_NEW], 10)
    everywhere, near = step(kept, 12), local(kept)
    assert near is not None
    assert [ring.members for ring, _ in near.shares(0)] == [set(NEAR), {*NEAR, *NEAR_NEW}]
    assert sizes(everywhere) == [6, 9]
    assert [each.began for each in near.fading] == [each.began for each in everywhere.fading] == [12]
    assert [share for _, share in near.shares(20)] == [share for _, share in everywhere.shares(20)]


def test_an_upstream_in_another_zone_makes_no_local_ring() -> None:
    kept = keeper([*NEAR, FAR[0]], zone="z1")
    kept.follow([*NEAR, *FAR], 10)
    step(kept, 12)
    assert (sizes(kept.rings), sizes(local(kept))) == ([4, 6], [3])


def test_an_upstream_that_leaves_leaves_the_local_rings_too_and_with_the_last_they_are_gone() -> None:
    kept = keeper([*NEAR, *FAR], zone="z1")
    kept.follow([*NEAR[1:], *FAR], 10)
    assert sizes(local(kept)) == [2]
    kept.follow(FAR, 11)
    assert local(kept) is None
    assert sizes(kept.rings) == [3]
    assert kept.wake() == math.inf


def test_a_zone_of_new_upstreams_only_has_no_local_ring_before_they_have_faded_in() -> None:
    """Else they would get all of the zone's keys at once, cold."""
    kept = keeper(FAR, zone="z1")
    kept.follow([*FAR, *NEAR], 10)
    step(kept, 12)
    assert local(kept) is None
    assert kept.wake() == 42
    step(kept, 42)
    assert sizes(local(kept)) == [3]


def test_an_upstream_that_changes_its_zone_changes_the_local_rings() -> None:
    moving = live("m:80", "z2")
    kept = keeper([*NEAR, moving], zone="z1")
    moving.spec = Upstream.of("m:80", {"zone": "z1"})
    kept.follow([*NEAR, moving], 10)
    assert kept.wake() <= 10
    step(kept, 10)
    assert sizes(local(kept)) == [4]
    assert kept.wake() == math.inf


def test_the_zone_may_be_set_and_taken_away_while_it_runs() -> None:
    kept = keeper([*NEAR, *FAR])
    assert local(kept) is None
    kept.zone = "z2"
    step(kept, 10)
    assert sizes(local(kept)) == [3]
    kept.follow([], 11)
    kept.zone = ""
    step(kept, 12)
    assert local(kept) is None
    assert kept.wake() == math.inf


@pytest.mark.parametrize("slices", range(12))
def test_a_zone_that_is_taken_away_is_gone_at_once_even_while_rings_are_made(slices: int) -> None:
    upstreams = [*NEAR, *FAR, *MANY]
    kept = keeper([*NEAR, *FAR], zone="z2")
    kept.follow(upstreams, 10)
    building = kept.step(20)
    for _ in range(slices):
        next(building)
    kept.zone = ""
    kept.follow(upstreams, 20)
    assert local(kept) is None
    finish(building)
    assert local(kept) is None


def test_a_zone_that_is_taken_away_when_all_members_are_others_is_gone_at_once_too() -> None:
    kept = keeper([*NEAR, *FAR], zone="z2")
    kept.zone = ""
    kept.follow(MANY, 10)
    assert local(kept) is None


def test_an_upstream_that_comes_with_the_first_of_a_new_route_does_not_fade_in() -> None:
    """Upstreams that register one by one: the quickest would have all of the traffic."""
    first, *others = [LiveUpstream(each.spec, seen=100.0) for each in MANY]
    kept = RingKeeper(window=30, debounce=2)
    kept.follow([first], 100)
    step(kept, 100)
    kept.follow([first, *others], 101)
    assert step(kept, 103).fading == ()
    assert len(rings(kept).established) == len(MANY)
    kept.follow([first, *others, *NEW], 105)
    assert len(step(kept, 107).fading) == 1


def test_nor_does_one_that_comes_later_and_is_taken_along() -> None:
    first, *others = [LiveUpstream(each.spec, seen=100.0) for each in MANY]
    kept = RingKeeper(window=30, debounce=2)
    kept.follow([first], 100)
    step(kept, 100)
    kept.follow([first, *others[:2]], 101)
    kept.follow([first, *others], 102.5)
    assert step(kept, 103).fading == ()
    assert len(rings(kept).established) == len(MANY)


def test_an_upstream_that_comes_soon_after_a_process_began_fades_in_for_the_others_are_warm() -> None:
    kept = keeper()
    kept.follow([*OLD, *NEW], 1)
    assert len(step(kept, 3).fading) == 1


def test_so_many_rings_fade_in_at_once_and_further_ones_wait_for_the_first() -> None:
    kept = keeper()
    kept.debounce = 0
    for count in range(1, len(MANY) + 1):
        kept.follow([*OLD, *MANY[:count]], count)
        step(kept, count)
    assert len(rings(kept).fading) == 16
    assert kept.wake() == 1 + 30
    step(kept, 31)
    assert rings(kept).newest.members == {*OLD, *MANY}

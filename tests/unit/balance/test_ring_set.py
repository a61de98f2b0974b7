"""N-ring fade-in."""

from random import Random

import pytest

from slb.balance.ring import EmptyRing, Ring
from slb.balance.ring_set import RingSet
from slb.balance.upstream import LiveUpstream
from tests.unit.balance.rings import KEYS, fleet

OLD, NEW, NEWER = fleet(4), fleet(4, net=1), fleet(4, net=2)
WINDOW = 30.0


def joined(rings: RingSet, upstreams: list[LiveUpstream], now: float, window: float = WINDOW) -> RingSet:
    return rings.joined(rings.newest.adding(upstreams), now, window)


def shares(rings: RingSet, now: float) -> list[float]:
    return [share for _, share in rings.shares(now)]


def one_fading() -> RingSet:
    """Since second 0."""
    return joined(RingSet(Ring.of(OLD)), NEW, 0)


def two_fading() -> RingSet:
    """Since seconds 0 and 20."""
    return joined(one_fading(), NEWER, 20)


@pytest.mark.parametrize(
    ("elapsed", "share"), [(0, 0.0), (3, 0.3), (9, 4.9), (15, 17.7), (21, 41.0), (27, 76.8), (30, 100.0)]
)
def test_a_new_ring_takes_its_share_by_the_table(elapsed: float, share: float) -> None:
    """Elapsed seconds of 30, per cent of the requests."""
    established, new = shares(one_fading(), elapsed)
    assert round(new * 100, 1) == share
    assert established == 1 - new


def test_two_that_fade_in_at_once_have_a_window_each() -> None:
    rings = two_fading()
    alone = one_fading()
    for now in (20.0, 22.0, 26.0, 29.9):
        established, first, second = shares(rings, now)
        assert second == pytest.approx(((now - 20) / 30) ** 2.5)
        assert first == pytest.approx((now / 30) ** 2.5 * (1 - second))
        # Who came first is with its own ring and with the newer one: the newer takes nothing away from it.
        assert first + second >= shares(alone, now)[1]
        assert established + first + second == pytest.approx(1)


def test_a_ring_that_is_done_is_the_established_one_and_the_other_goes_on_as_it_was() -> None:
    rings = two_fading()
    settled = rings.settled(30)
    assert settled.established is rings.fading[0].ring
    assert settled.fading == rings.fading[1:]
    assert shares(settled, 30) == shares(rings, 30)[1:]
    assert settled.settled(49.9) is settled
    assert settled.settled(50) == RingSet(rings.newest)


def test_a_newer_ring_that_is_done_first_replaces_all_before_it() -> None:
    rings = joined(one_fading(), NEWER, 5, window=2)
    assert shares(rings, 7) == [0, 0, 1]
    assert rings.settled(7) == RingSet(rings.newest)


def test_without_a_window_a_ring_is_established_at_once() -> None:
    rings = joined(one_fading(), NEWER, 5, window=0)
    assert rings.fading == ()
    assert len(rings.established) == 12


def test_a_clock_that_is_behind_gives_a_new_ring_nothing() -> None:
    assert shares(one_fading(), -5) == [1, 0]


def test_while_it_fades_in_an_upstream_gets_just_the_keys_it_will_own() -> None:
    rings, rng = one_fading(), Random(1)
    owned = {key for key in KEYS if rings.newest.pick(key) in NEW}
    seen: set[bytes] = set()
    for second in range(30):
        drawn = rng.choices([ring for ring, _ in rings.shares(second)], shares(rings, second), k=len(KEYS))
        seen.update(key for key, ring in zip(KEYS, drawn, strict=True) if ring.pick(key) in NEW)
    assert seen == owned


def test_an_upstream_that_leaves_leaves_every_ring_at_once() -> None:
    gone = [OLD[0], NEW[0], NEWER[0]]
    rings = two_fading().without(gone)
    assert [ring.members for ring, _ in rings.shares(25)] == [
        set(OLD[1:]),
        {*OLD[1:], *NEW[1:]},
        {*OLD[1:], *NEW[1:], *NEWER[1:]},
    ]
    assert shares(rings, 25) == shares(two_fading(), 25)
    assert rings.without(gone) is rings


def test_a_ring_that_lost_all_it_had_more_than_the_one_before_is_gone() -> None:
    rings = two_fading().without(NEW)
    assert [len(ring) for ring, _ in rings.shares(25)] == [4, 8]
    assert rings.fading[0].began == 20


def test_when_all_established_leave_the_new_ones_have_everything_at_once() -> None:
    rings = two_fading().without(OLD)
    assert rings.established.members == set(NEW)
    assert rings.newest.members == {*NEW, *NEWER}
    assert shares(rings, 25) == pytest.approx([1 - (5 / 30) ** 2.5, (5 / 30) ** 2.5])


def test_it_cannot_be_emptied() -> None:
    with pytest.raises(EmptyRing):
        two_fading().without([*OLD, *NEW, *NEWER])

"""The ring."""

from random import Random

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from slb.balance import ring as ring_module
from slb.balance import ring_run
from slb.balance.ring import EmptyRing, Ring, endpoint
from tests.unit.balance import rings
from tests.unit.balance.rings import KEYS, MEMBERS, PlainRing, fleet, live, members, owners

SOME_MEMBERS = st.lists(MEMBERS, min_size=1, max_size=12, unique=True)
SOME_KEYS = st.lists(st.binary(max_size=40), min_size=1, max_size=20)


@given(SOME_MEMBERS, SOME_KEYS)
@settings(max_examples=60, deadline=None)
def test_every_key_goes_where_the_plainest_ring_sends_it(found: list[str], keys: list[bytes]) -> None:
    ring, plain = Ring.of(map(live, found)), PlainRing(found)
    assert owners(ring, keys) == [plain.pick(key) for key in keys]


@given(SOME_MEMBERS, SOME_KEYS)
@settings(max_examples=60, deadline=None)
def test_a_walk_meets_each_upstream_once_in_the_order_of_the_circle(found: list[str], keys: list[bytes]) -> None:
    ring, plain = Ring.of(map(live, found)), PlainRing(found)
    for key in keys:
        assert members(ring.walk(key)) == plain.walk(key)


@given(SOME_MEMBERS, st.data())
@settings(max_examples=40, deadline=None)
def test_how_a_ring_came_about_makes_no_difference(found: list[str], data: st.DataObject) -> None:
    upstreams = [live(member) for member in found]
    later = data.draw(st.lists(st.sampled_from(upstreams), unique=True, max_size=len(upstreams) - 1))
    passing = [live(f"passing-{number}:80") for number in range(3)]
    first = [upstream for upstream in upstreams if upstream not in later]
    ring = Ring.of([*passing, *first]).adding(later).without(passing)
    whole = Ring.of(data.draw(st.permutations(upstreams)))
    assert ring.upstreams == whole.upstreams
    assert all(list(ring.walk(key)) == list(whole.walk(key)) for key in KEYS[:50])


def test_positions_that_collide_belong_to_the_first_by_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """All hashes fall on sixteen positions: every one of them is shared, by endpoints and within one."""

    def coarse(data: bytes) -> int:
        return xxhash.xxh64_intdigest(data) & (0xF << 60)

    for module in (ring_module, ring_run, rings):
        monkeypatch.setattr(module, "xxh64_intdigest", coarse)
    rng = Random(1)
    for _ in range(20):
        upstreams = [*fleet(rng.randrange(1, 6), rng.randrange(256)), live("https://a:1"), live("z:1")]
        rng.shuffle(upstreams)
        cut = rng.randrange(1, len(upstreams))
        ring, plain = Ring.of(upstreams[:cut]).adding(upstreams[cut:]), PlainRing(members(upstreams))
        assert all(members(ring.walk(key)) == plain.walk(key) for key in KEYS[:40])
        assert owners(ring) == owners(Ring.of(upstreams))
        fewer = PlainRing(members(upstreams[1:]))
        assert owners(ring.without(upstreams[:1]), KEYS[:40]) == [fewer.pick(key) for key in KEYS[:40]]


def test_a_key_that_hashes_to_a_position_belongs_to_its_owner_and_one_past_the_last_to_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ring, plain = Ring.of(fleet(3)), PlainRing(members(fleet(3)))
    positions = [position for position, _, _ in plain.positions]
    for digest in (0, positions[0], positions[7], positions[7] + 1, positions[-1], positions[-1] + 1, 2**64 - 1):
        monkeypatch.setattr(ring_module, "xxh64_intdigest", lambda _, digest=digest: digest)
        assert [ring.pick(b"").member, *members(ring.walk(b""))[1:]] == plain.walk(b"", digest)


MANY = [b"%d" % number for number in range(10_000)]


@given(st.integers(1, 60), st.integers(1, 255))
@settings(max_examples=20, deadline=None)
def test_one_more_takes_about_its_share_of_the_keys_and_moves_no_other(count: int, net: int) -> None:
    """A hundred positions make a share that strays by a tenth of itself; here it may by ten times that."""
    before = Ring.of(fleet(count, net))
    (new,) = fleet(1)
    after = before.adding([new])
    moved = [(was, now) for was, now in zip(owners(before, MANY), owners(after, MANY), strict=True) if was != now]
    assert {now for _, now in moved} == {new.member}
    assert 0.3 < len(moved) / len(MANY) * (count + 1) < 2
    assert owners(after.without([new]), MANY) == owners(before, MANY)  # and back again


def test_the_endpoint_carries_its_scheme() -> None:
    assert endpoint(live("a:80")) == "http://a:80"
    assert endpoint(live("https://a:443")) == "https://a:443"
    assert endpoint(live("[2001:db8::1]:8080")) == "http://[2001:db8::1]:8080"


def test_the_same_host_and_port_under_another_scheme_is_another_endpoint() -> None:
    both = Ring.of([live("a:443"), live("https://a:443")])
    assert len(both) == 2
    assert set(owners(both)) == {"a:443", "https://a:443"}


def test_an_endpoint_given_twice_is_in_the_ring_once_and_the_first_given_stays() -> None:
    first, second, other = live("a:80"), live("a:80"), live("b:80")
    ring = Ring.of([first, other, second])
    assert ring.upstreams == (first, other)
    assert ring.adding([second, first]) is ring
    assert owners(ring) == owners(Ring.of([live("a:80"), live("b:80")]))


def test_removing_an_upstream_that_is_not_there_changes_nothing() -> None:
    ring = Ring.of(fleet(3))
    assert ring.without(fleet(2, net=1)) is ring
    assert ring.without([]) is ring


def test_a_ring_without_upstreams_is_refused() -> None:
    with pytest.raises(EmptyRing):
        Ring.of([])
    with pytest.raises(EmptyRing):
        Ring.of(only := fleet(1)).without(only)


def test_a_key_of_a_megabyte_and_one_of_nothing_have_their_owners() -> None:
    upstreams = fleet(5)
    for key in (b"\xff" * 1_000_000, b""):
        assert Ring.of(upstreams).pick(key).member == PlainRing(members(upstreams)).pick(key)


def test_a_ring_has_its_upstreams_in_order_of_member() -> None:
    upstreams = fleet(4)
    ring = Ring.of(reversed(upstreams))
    assert list(ring.upstreams) == upstreams
    assert ring.members == set(upstreams)
    assert len(ring) == 4
    assert upstreams[2] in ring
    assert live("a:80") not in ring


def test_a_ring_is_built_and_grows_in_many_small_steps() -> None:
    """Nothing between two of them is over 500 positions, of the 20,000 there are."""
    assert sum(1 for _ in Ring.build(fleet(200))) >= 20_000 / 500
    assert sum(1 for _ in Ring.of(fleet(10)).growing(fleet(50, net=1))) >= 5_000 / 500

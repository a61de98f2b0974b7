"""Who is passed over for being busy, and how far a walk goes."""

from hypothesis import given
from hypothesis import strategies as st

from slb.balance.bounded_load import MOST_HOPS, bounded, bounded_as_skipper
from slb.balance.ring import Ring
from slb.balance.split import Split
from slb.balance.upstream import LiveUpstream
from tests.unit.balance.upstreams import name, upstream, upstreams


def walked(*loads: float, threshold: float) -> tuple[str, int]:
    """Along a, b, c, ... with these loads: what it finds, and how many it passed over."""
    walk = upstreams("abcdefghijklmnopqrstuvwxyz"[: len(loads)])
    of = dict(zip(walk, loads, strict=True))
    found = bounded(walk, of.__getitem__, lambda each: of[each] <= threshold)
    return name(found.upstream), found.distance


def test_the_owner_keeps_its_key_up_to_the_threshold() -> None:
    assert walked(2.5, 0.0, threshold=2.5) == ("a", 0)


def test_above_it_the_next_one_gets_the_key() -> None:
    assert walked(2.6, 9.0, 2.5, 0.0, threshold=2.5) == ("c", 2)


def test_after_ten_hops_the_least_loaded_of_those_met_gets_it() -> None:
    loads = [9.0] * 20
    loads[4], loads[11] = 7.0, 0.0
    assert walked(*loads, threshold=2.5) == ("e", MOST_HOPS)


def test_the_tenth_hop_is_still_made() -> None:
    loads = [9.0] * 20
    loads[10] = 0.0
    assert walked(*loads, threshold=2.5) == ("k", MOST_HOPS)


def test_of_equals_the_first_met_gets_it() -> None:
    assert walked(9.0, 8.0, 8.0, threshold=2.5) == ("b", 2)


def test_by_skippers_rule_the_least_loaded_gets_it_where_a_ring_has_only_busy_ones() -> None:
    busy = (upstream("a", inflight=9), upstream("b", inflight=8), upstream("c", inflight=9))
    found = bounded_as_skipper(busy, (*busy, *upstreams("defgh")), 1.0)
    assert (name(found.upstream), found.distance) == ("b", 2)


def test_skippers_rule_compares_with_the_mean_this_request_included() -> None:
    a, b, c = upstream("a", inflight=2), upstream("b", inflight=2), upstream("c", inflight=1)
    found = bounded_as_skipper((a, b, c), {a, b, c}, 1.0)  # (1 + 5) / 3
    assert name(found.upstream) == "a"
    a.inflight = 3
    found = bounded_as_skipper((a, b, c), {a, b, c}, 1.0)  # 7 / 3
    assert name(found.upstream) == "b"


@given(loads=st.lists(st.integers(0, 50), min_size=1, max_size=40), factor=st.floats(1, 3))
def test_by_skippers_rule_an_upstream_is_always_found_however_far_it_is(loads: list[int], factor: float) -> None:
    walk = [upstream(f"u{number}", inflight=load) for number, load in enumerate(loads)]
    found = bounded_as_skipper(walk, walk, factor).upstream
    assert found.inflight <= (1 + sum(loads)) / len(loads) * factor


# -- what an upstream is expected to have

FACTOR = 1.25


def above(parts: list[tuple[Ring, float]], eligible: set[LiveUpstream], loads: dict[LiveUpstream, float]) -> str:
    """Who is passed over when they have these loads."""
    split, total = Split(parts, eligible), sum(loads.values())
    return "".join(name(each) for each in eligible if loads[each] > FACTOR * total * split.expected(each))


def test_parts_of_all_sum_to_the_whole() -> None:
    every = upstreams("abcdef")
    split = Split([(Ring.of(every[:4]), 0.7), (Ring.of(every), 0.2), (Ring.of(every[:2]), 0.1)], set(every))
    assert abs(sum(map(split.expected, every)) - 1.0) < 1e-9


def test_one_that_cannot_take_requests_is_expected_to_have_none_of_them() -> None:
    every = upstreams("abcd")
    split = Split([(Ring.of(every), 1.0)], set(every[:2]))
    assert split.expected(every[0]) == 0.5


def test_in_the_middle_of_a_zones_ramp_no_upstream_of_it_looks_overloaded() -> None:
    """Half of the requests stay in a zone of two out of six. The mean of all would pass over both."""
    local, other = upstreams("ab"), upstreams("cdef")
    every = (*local, *other)
    carried = {each: 100 * (0.5 / 2 * (each in local) + 0.5 / 6) for each in every}
    naive = [(Ring.of(every), 1.0)]
    right = [(Ring.of(every), 0.5), (Ring.of(local), 0.5)]
    assert sorted(above(naive, set(every), carried)) == ["a", "b"]
    assert above(right, set(every), carried) == ""


def test_upstreams_from_before_a_scale_up_do_not_look_overloaded_while_it_fades_in() -> None:
    old, new = upstreams("ab"), upstreams("cdef")
    every = (*old, *new)
    carried = {each: 100 * (0.9 / 2 * (each in old) + 0.1 / 6) for each in every}
    naive = [(Ring.of(every), 1.0)]
    right = [(Ring.of(old), 0.9), (Ring.of(every), 0.1)]
    assert sorted(above(naive, set(every), carried)) == ["a", "b"]
    assert above(right, set(every), carried) == ""


def test_an_upstream_that_fades_in_while_its_zone_ramps_is_expected_to_have_its_part_of_both() -> None:
    old, new, far = upstreams("ab"), upstreams("c"), upstreams("xyz")
    rings = {"all": Ring.of((*old, *far)), "all too": Ring.of((*old, *new, *far))}
    local, local_too = Ring.of(old), Ring.of((*old, *new))
    zone, faded = 0.4, 0.3
    parts = [
        (rings["all"], (1 - zone) * (1 - faded)),
        (rings["all too"], (1 - zone) * faded),
        (local, zone * (1 - faded)),
        (local_too, zone * faded),
    ]
    split = Split(parts, {*old, *new, *far})
    assert abs(split.expected(new[0]) - ((1 - zone) * faded / 6 + zone * faded / 3)) < 1e-9
    assert split.expected(old[0]) > split.expected(new[0])
    assert abs(split.expected(far[0]) - ((1 - zone) * (1 - faded) / 5 + (1 - zone) * faded / 6)) < 1e-9


def test_each_ring_is_drawn_as_often_as_its_share() -> None:
    one, two, three = (Ring.of(upstreams(names)) for names in ("a", "ab", "abc"))
    split = Split([(one, 0.25), (two, 0.0), (three, 0.75)], set())
    drawn = [split.draw(iter([step / 1000]).__next__) for step in range(1000)]
    assert drawn.count(one) == 250
    assert drawn.count(three) == 750
    assert Split([(one, 0.9999999)], set()).draw(lambda: 0.99999999) is one

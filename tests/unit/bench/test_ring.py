"""The ring's figures: what is compared, and what is shown of it."""

import pytest

from bench.figures.ring import (
    FULL,
    OTHERS,
    SAME_RING,
    SLB,
    BusyRing,
    fleet,
    made_other,
    pick_section,
    same_owners,
    slices,
)
from bench.processes import BenchError
from bench.table import Section
from slb.balance.ring import Ring, endpoint


def verdicts(section: Section) -> dict[str, bool | None]:
    return {figure.what: figure.met for figure in section.figures}


def test_slb_is_held_to_its_own_goals_and_to_three_times_what_uhashring_does_as_it_comes() -> None:
    as_it_comes, ketama, _ = OTHERS
    picks = {SLB: [0.5], as_it_comes: [1.4], ketama: [1.5], SAME_RING: [0.6], FULL: [7.0, 7.0, 100.0]}
    found = verdicts(pick_section(8, picks))
    assert found[SLB]
    assert found[FULL]
    assert found[f"slb is faster than {as_it_comes}"] is False
    assert found[f"slb is faster than {ketama}"]
    assert found[f"slb is faster than {SAME_RING}"] is None


def test_every_slice_of_a_ring_is_measured() -> None:
    assert len(slices(Ring.build(fleet(20)))) == sum(1 for _ in Ring.build(fleet(20))) + 1


@pytest.mark.parametrize("name", OTHERS)
def test_all_kinds_of_uhashring_answer_with_an_endpoint_and_one_of_them_with_slbs(name: str) -> None:
    pytest.importorskip("uhashring")
    ring = Ring.of(fleet(8))
    names = [endpoint(upstream) for upstream in ring.upstreams]
    other = made_other(name, names)
    assert {other(f"key-{number}") for number in range(200)} == set(names)
    if name == SAME_RING:
        same_owners(ring, other)
    else:
        with pytest.raises(BenchError):
            same_owners(ring, other)


def test_the_busy_ring_is_fading_in_and_between_zones_and_has_requests_in_flight() -> None:
    upstreams = fleet(12)
    busy = BusyRing(upstreams)
    assert busy.policy.fading == 1
    for number in range(500):
        busy.pick(b"%d" % number)
        busy.turn_over()
    assert 0.1 < busy.policy.zone_share.share < 0.25  # 0.5 ** 2.5
    assert sum(upstream.inflight for upstream in upstreams) == 24
    busy.release()
    assert not any(upstream.inflight for upstream in upstreams)

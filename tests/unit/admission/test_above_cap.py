"""Which upstreams are above their caps, by what is in flight in each pool."""

import pytest

from slb.admission.above_cap import Scores, above_cap, with_lower_caps
from slb.model import RouteRecord
from tests.unit.routing.mirror_rig import A, B, C, make_mirror, record, replace


def capped(*members: str, cap: int, **settings: str) -> RouteRecord:
    return record(*members, policy="least_inflight", max_inflight=str(cap), **settings)


BOTH = {"/a": capped(A, cap=2), "/b": capped(A, cap=3)}
SHARED = {"/a": capped(A, B, cap=1, pool="/s"), "/b": capped(A, cap=3, pool="/s")}
UNCAPPED = {"/a": capped(A, cap=1, pool="/s"), "/b": capped(A, cap=0, pool="/s")}


@pytest.mark.parametrize(
    ("routes", "scores", "above"),
    [
        ({"/a": capped(A, B, cap=2)}, {"/a": {A: 2, B: 3}}, {B: 1}),
        ({"/a": capped(A, cap=2)}, {"/a": {A: 1, B: 9}}, {}),
        (SHARED, {"/s": {A: 3, B: 3}}, {B: 2}),
        (UNCAPPED, {"/s": {A: 9}}, {}),
        (BOTH, {"/a": {A: 2}, "/b": {A: 1}}, {}),
        (BOTH, {"/a": {A: 3}, "/b": {}}, {A: 1}),
        (BOTH, {"/a": {A: 2}, "/b": {A: 3}}, {A: 2}),
        (BOTH, {"/a": {A: 2}, "/was": {A: 3}}, {A: 3}),
        ({}, {"/was": {A: 3}}, {}),
    ],
    ids=[
        "one pool",
        "an upstream that has left",
        "two caps in a pool",
        "a route without a cap in the pool",
        "two pools that use no more than the higher cap",
        "above its cap in one of two pools",
        "above the higher cap in two pools together",
        "a pool that its route has left",
        "no route is counted",
    ],
)
def test_which_members_are_above_and_by_how_much(
    routes: dict[str, RouteRecord], scores: Scores, above: dict[str, int]
) -> None:
    mirror = make_mirror()
    replace(mirror, routes)
    assert above_cap(scores, mirror.table.counted.values()) == above


def test_a_cap_is_for_each_slot() -> None:
    mirror = make_mirror()
    replace(mirror, {"/a": capped(A, B, cap=2)}, {A: {"slots": "4"}})
    assert above_cap({"/a": {A: 9, B: 2}}, mirror.table.counted.values()) == {A: 1}


@pytest.mark.parametrize(
    ("before", "after", "lower"),
    [
        (capped(A, cap=2), capped(A, cap=1), True),
        (capped(A, cap=0), capped(A, cap=9), True),
        (record(A), capped(A, cap=9), True),
        (capped(A, cap=2), capped(A, cap=2, pool="/s"), True),
        (capped(A, cap=2), capped(A, cap=2, pool="/a"), False),
        (capped(A, cap=2), capped(A, B, cap=3), False),
        (capped(A, cap=2), capped(A, cap=0, pool="/s"), False),
    ],
)
def test_routes_whose_caps_are_lower_than_they_were_or_count_in_another_pool_are_found(
    before: RouteRecord, after: RouteRecord, lower: bool
) -> None:
    mirror = make_mirror()
    replace(mirror, {"/a": before, "/b": capped(B, cap=1)})
    was = mirror.table.routes
    replace(mirror, {"/a": after, "/b": capped(B, cap=1), "/new": capped(C, cap=1)})
    assert with_lower_caps(was, mirror.table.counted) == (["/a"] if lower else [])

"""Upstreams as one table follows another: nothing of a draft is seen before it is adopted."""

import pytest

from slb.routing.live_upstreams import CHEAP_SLICE, SLICE, Attributes, LiveUpstreams, UpstreamsDraft
from tests.unit.routing.mirror_rig import A, B, C, at_once

DRAINING = {"drain": "1"}


def drafted(upstreams: LiveUpstreams, attributes: Attributes, *members: str, now: float = 0.0) -> UpstreamsDraft:
    """What a table of these members brings."""
    removed: Attributes = {member: {} for member in upstreams.attributes if member not in attributes}
    changed = at_once(upstreams.changed({**attributes, **removed}))
    draft = UpstreamsDraft(upstreams.live, attributes, changed, now)
    for member in members:
        draft.of(member)
    return draft


def adopted(upstreams: LiveUpstreams, draft: UpstreamsDraft, attributes: Attributes) -> None:
    upstreams.adopt(draft, at_once(draft.specs()))
    upstreams.attributes = dict(attributes)


def made(attributes: Attributes, *members: str) -> LiveUpstreams:
    upstreams = LiveUpstreams()
    adopted(upstreams, drafted(upstreams, attributes, *members), attributes)
    return upstreams


def test_an_upstream_is_the_same_object_in_each_draft_and_seen_once_adopted() -> None:
    upstreams = made({}, A)
    first = upstreams.live[A]
    draft = drafted(upstreams, {}, A, B, now=7.0)
    assert draft.of(A) is first
    assert draft.of(B) is draft.of(B)
    assert (draft.of(B).seen, list(upstreams.live)) == (7.0, [A])
    new = draft.of(B)
    adopted(upstreams, draft, {})
    assert upstreams.live == {A: first, B: new}
    upstreams.drop([A, C])
    assert list(upstreams.live) == [B]


def test_attributes_hold_from_the_swap_on() -> None:
    before: Attributes = {A: DRAINING}
    upstreams = made(before, A, B)
    after: Attributes = {B: {**DRAINING, "weight": "3"}, C: DRAINING}
    draft = drafted(upstreams, after, A, B, C)
    takes = {each: draft.takes_requests(draft.of(each)) for each in (A, B, C)}
    assert takes == {A: True, B: False, C: False}
    assert draft.changed == {A, B, C}
    assert [(live.spec.drain, live.spec.weight) for live in upstreams.live.values()] == [(True, 1), (False, 1)]
    adopted(upstreams, draft, after)
    assert [(live.spec.drain, live.spec.weight) for live in upstreams.live.values()] == [
        *((False, 1), (True, 3)),
        (True, 1),
    ]


def test_only_what_differs_has_changed() -> None:
    upstreams = made({A: DRAINING, B: {"weight": "2"}}, A, B)
    assert at_once(upstreams.changed({A: dict(DRAINING), B: {}, C: {}})) == {B}


def test_attributes_that_are_taken_away_are_forgotten() -> None:
    upstreams = made({A: DRAINING, B: DRAINING}, A, B)
    upstreams.store({A, C}, {A: {}, C: {"weight": "2"}, B: {"weight": "5"}})
    assert upstreams.attributes == {B: DRAINING, C: {"weight": "2"}}


def attributes_of(count: int) -> dict[str, dict[str, str]]:
    return {f"10.0.{number // 250}.{number % 250}:80": DRAINING for number in range(count)}


def test_thousands_of_attributes_are_compared_and_read_in_slices() -> None:
    many = attributes_of(10_000)
    upstreams = made({}, *many)
    assert sum(1 for _ in upstreams.changed(many)) == 10
    assert sum(1 for _ in drafted(upstreams, many).specs()) == 200


@pytest.mark.parametrize(("missing", "yields"), [(1, 0), (0, 1)])
def test_a_comparison_yields_after_a_whole_slice(missing: int, yields: int) -> None:
    few, many = attributes_of(SLICE - missing), attributes_of(CHEAP_SLICE - missing)
    upstreams = made({}, *few)
    assert sum(1 for _ in drafted(upstreams, few).specs()) == yields
    assert sum(1 for _ in upstreams.changed(many)) == yields

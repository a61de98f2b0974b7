"""When what a source says is written."""

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from slb.discovery.found import Member
from slb.discovery.pending import Pending, WriteTiming, attributes_of, drained

TIMING = WriteTiming(debounce=2.0, drain=0.1, empty_grace=30.0)
ONE: dict[str, Any] = {"a": {}}
TWO: dict[str, Any] = {"a": {}, "b": {}}
DRAINS: dict[str, Any] = {"a": {"drain": "true"}, "c": {}}


def test_changes_within_the_debounce_are_one() -> None:
    pending = Pending(TIMING)
    pending.look(10.0, ONE, TWO, False)
    assert pending.due == 12.0
    pending.look(11.9, ONE, {**TWO, "c": {}}, False)
    assert pending.due == 12.0
    assert pending.now_due(11.9, ONE, TWO) is None
    assert pending.now_due(12.0, ONE, TWO) is TWO
    pending.look(12.0, TWO, TWO, False)
    assert pending.due == math.inf


def test_a_change_that_is_taken_back_in_time_is_none() -> None:
    pending = Pending(TIMING)
    pending.look(10.0, TWO, ONE, False)  # a slice ended before its endpoints were in another
    pending.look(10.1, TWO, TWO, False)
    assert pending.due == math.inf


def test_the_first_members_of_a_route_do_not_wait() -> None:
    pending = Pending(TIMING)
    pending.look(10.0, {}, TWO, False)
    assert pending.due == 10.0
    assert pending.now_due(10.0, {}, TWO) is TWO


def test_a_member_drains_before_the_rest_is_written() -> None:
    pending = Pending(TIMING)
    pending.look(10.0, TWO, DRAINS, False)
    assert pending.due == 10.1
    first = pending.now_due(10.1, TWO, DRAINS)
    assert first == {"a": {"drain": "true"}, "b": {}}
    pending.look(10.1, first, DRAINS, False)
    assert pending.due == 12.0


def test_nothing_is_held_back_until_it_has_stood_for_the_grace() -> None:
    pending = Pending(TIMING)
    pending.look(10.0, TWO, {}, False)
    assert (pending.due, pending.is_held_back) == (40.0, True)
    pending.look(20.0, TWO, ONE, False)
    assert (pending.due, pending.is_held_back) == (22.0, False)
    pending.look(21.0, TWO, {}, False)
    pending.look(22.0, TWO, {}, False)
    assert pending.due == 51.0
    assert pending.now_due(50.9, TWO, {}) is None
    assert pending.now_due(51.0, TWO, {}) == {}


def test_what_is_gone_by_the_sources_own_word_is_removed_as_any_member() -> None:
    pending = Pending(TIMING)
    pending.look(10.0, TWO, {}, True)
    assert (pending.due, pending.is_held_back) == (12.0, False)


def test_attributes_are_what_the_source_says() -> None:
    assert attributes_of(Member()) == {}
    said = Member(is_draining=True, weight=2, slots=3, zone="z", node="n")
    assert attributes_of(said) == {"drain": "true", "weight": "2", "slots": "3", "zone": "z", "node": "n"}


members = st.dictionaries(
    st.sampled_from("abcd"), st.sampled_from([{}, {"drain": "true"}, {"zone": "z"}]), max_size=4
)


@given(st.lists(st.tuples(st.integers(0, 40), members, st.booleans()), max_size=12))
def test_what_is_said_last_is_written_in_the_end_and_nothing_is_emptied_early(said: list[Any]) -> None:
    pending, now = Pending(TIMING), 0.0
    known: Any = {}
    last: Any = {}
    gone, empty_since = False, math.inf
    for pause, wanted, is_gone in [*said, (100.0, {}, True)]:
        end = now + pause
        while pending.due <= end:
            now = max(now, pending.due)
            after = pending.now_due(now, known, last)
            assert after is not None
            assert after or not known or gone or now - empty_since >= TIMING.empty_grace
            known = after
            pending.look(now, known, last, gone)
        now, last, gone = end, wanted, is_gone
        empty_since = min(empty_since, now) if not wanted and not is_gone and known else math.inf
        pending.look(now, known, last, gone)
        assert pending.due <= now + TIMING.empty_grace or known == last
        assert not drained(known, last) or pending.due <= now + TIMING.drain

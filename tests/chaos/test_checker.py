"""The checker accepts what is right and finds what is wrong."""

from collections.abc import Callable

import pytest

from tests.chaos.checker import Checker, Verdict
from tests.chaos.history import (
    Event,
    Expired,
    Granted,
    History,
    Left,
    Observed,
    Queued,
    Released,
    Returned,
    Scored,
    Span,
)

END = 100.0
CAPACITIES = {"/p": {"u": 1, "v": 1, "wide": 3}}


def queued(
    time: float, ask: str, number: int, usable: str = "u", instance: str = "one", priority: str = "normal"
) -> Queued:
    return Queued(time, ask, instance, "/p", priority, number, frozenset(usable.split()))


def granted(time: float, ask: str, member: str = "u", instance: str = "one", priority: str = "normal") -> Granted:
    return Granted(time, ask, instance, "/p", member, priority)


def history(*events: Event) -> History:
    made = History(clock=lambda: END)
    for event in events:
        made.add(event)
    return made


def verdict(checked: History, slack: float = 0.0, patience: float = 1e9) -> Verdict:
    return Checker(checked, CAPACITIES, slack, patience).check()


def faults(checked: History, slack: float = 0.0, patience: float = 1e9) -> list[str]:
    return [violation.rule for violation in verdict(checked, slack, patience).violations]


def disturbed(checked: History, start: float, end: float) -> History:
    checked.disturbed.append(Span(start, end))
    return checked


def stalled(checked: History, instance: str, start: float, end: float) -> History:
    checked.stalled[instance] = [Span(start, end)]
    return checked


def test_a_run_in_which_all_went_right_has_no_fault() -> None:
    found = verdict(
        history(
            granted(1, "a"),
            queued(2, "b", 1),
            queued(3, "c", 2, instance="two"),
            queued(4, "d", 3),
            Left(5, "d"),
            Released(6, "a"),
            granted(6, "b"),
            Scored(6.5, "/p", {"u": 1}),
            Released(7, "b"),
            granted(7, "c", instance="two"),
            Observed(7, "u", 1),
            Released(8, "c"),
        ),
        patience=1,
    )
    assert not found.violations
    assert not found.overlaps
    assert (found.grants, found.waited) == (3, 2)
    assert found.most == {("/p", "u"): 1}
    assert "3 grants" in str(found)


def test_events_may_be_added_in_any_order() -> None:
    assert not faults(history(Released(6, "a"), granted(1, "a")))


# -- never more leases than slots


def test_more_leases_than_slots_is_a_fault() -> None:
    found = verdict(history(granted(1, "a"), granted(2, "b"), Released(3, "a"), Released(4, "b")))
    assert [violation.rule for violation in found.violations] == ["above capacity"]
    assert "2 of 1" in found.violations[0].what
    assert "above capacity" in str(found)


def test_as_many_leases_as_slots_is_none() -> None:
    events = [granted(1, ask, "wide") for ask in "abc"] + [Released(2, ask) for ask in "abc"]
    assert not faults(history(*events))


def test_what_has_no_capacity_cannot_be_above_it() -> None:
    events = [granted(1, ask, "open") for ask in "abc"] + [Released(2, ask) for ask in "abc"]
    assert not faults(history(*events))


def test_more_leases_while_redis_is_not_whole_are_reported_apart() -> None:
    events = granted(1, "a"), granted(2, "b"), Released(3, "a"), Released(4, "b")
    found = verdict(disturbed(history(*events), 1.5, 2.5))
    assert not found.violations
    assert (found.grants, found.strict) == (2, 1)
    assert [(each.member, each.count, each.seen_by) for each in found.overlaps] == [("u", 2, "leases")]


def test_what_redis_had_before_it_broke_is_no_excuse_for_a_grant_after_it() -> None:
    grants = granted(1, "a"), granted(2, "b"), granted(4, "c")
    releases = (Released(5, ask) for ask in "abc")
    assert faults(disturbed(history(*grants, *releases), 1.5, 2.5)) == ["above capacity"]


def test_a_dead_instances_slots_are_free_once_its_lease_has_expired() -> None:
    assert not faults(
        history(granted(1, "a"), Expired(2, "one"), granted(3, "b", instance="two"), Released(4, "b"))
    )


def test_before_its_lease_has_expired_they_are_not() -> None:
    events: list[Event] = [granted(1, "a"), granted(2, "b", instance="two"), Expired(3, "one"), Released(4, "b")]
    assert faults(history(*events)) == ["above capacity"]


def test_what_a_thawed_instance_adds_again_is_no_fault_but_a_grant_on_top_of_it_is() -> None:
    frozen: list[Event] = [granted(1, "a"), Expired(2, "one"), granted(3, "b", instance="two"), Returned(4, "one")]
    ends = [Released(9, "a"), Released(9, "b")]
    assert not faults(history(*frozen, *ends))
    assert faults(history(*frozen, Released(5, "a"), granted(6, "c"), Released(9, "b"), Released(9, "c"))) == [
        "above capacity"
    ]


@pytest.mark.parametrize(("slack", "found"), [(0.5, ["above capacity"]), (1.5, [])])
def test_what_was_granted_before_an_instance_was_back_may_be_seen_after_that(
    slack: float, found: list[str]
) -> None:
    """The slot of `late` is used by the thawed instance before Redis knows of it; `c` was granted before, too."""
    events: list[Event] = [
        Expired(2, "one"),
        granted(3, "late"),
        Returned(4, "one"),
        granted(5, "c", instance="two"),
    ]
    checked = history(granted(1, "a"), Released(1.5, "a"), *events, Released(9, "late"), Released(9, "c"))
    assert faults(checked, slack) == found


@pytest.mark.parametrize(
    ("stopped", "time", "found"),
    [
        (1.1, 2.9, []),
        (0.9, 2.9, []),
        (1.1, 2.0, ["above capacity"]),  # so soon no grant is taken back
        (1.6, 2.9, ["above capacity"]),  # it has had time to acknowledge it
        (2.5, 2.9, ["above capacity"]),
    ],
)
def test_a_grant_that_an_instance_may_not_have_acknowledged_before_it_was_stopped_may_go_to_the_next(
    stopped: float, time: float, found: list[str]
) -> None:
    events = granted(1, "a"), granted(time, "b", instance="two"), Released(4, "b"), Released(5, "a")
    assert faults(stalled(history(*events), "one", stopped, 4.5), slack=0.5) == found


def test_a_request_that_ends_after_its_lease_expired_gives_nothing_back() -> None:
    events = granted(1, "a"), Expired(2, "one"), granted(3, "b", instance="two"), Released(4, "a")
    late = granted(5, "c", instance="two"), Released(6, "b"), Released(6, "c")
    assert faults(history(*events, *late)) == ["above capacity"]


def test_what_an_upstream_sees_above_its_capacity_is_reported_apart() -> None:
    found = verdict(history(Observed(1, "u", 1), Observed(2, "u", 3)))
    assert not found.violations
    assert [(each.count, each.capacity, each.seen_by) for each in found.overlaps] == [(3, 1, "upstream")]
    assert "1 seen by upstreams, by 2 at most" in str(found)


def test_a_score_that_rises_above_the_capacity_is_a_fault() -> None:
    assert faults(history(Scored(1, "/p", {"u": 1}), Scored(2, "/p", {"u": 2}))) == ["score above capacity"]


@pytest.mark.parametrize(
    "excuse",
    [
        lambda checked: disturbed(checked, 1.5, 1.6),
        lambda checked: checked.add(Returned(1.5, "one")),
    ],
)
def test_a_score_may_rise_above_it_where_redis_was_not_whole_or_an_instance_returned(
    excuse: Callable[[History], object],
) -> None:
    checked = history(Scored(1, "/p", {"u": 1}), Scored(2, "/p", {"u": 2}), Scored(3, "/p", {"u": 2}))
    excuse(checked)
    found = verdict(checked)
    assert not found.violations
    assert len(found.overlaps) == 1


def test_what_a_thawed_instance_still_hands_out_before_it_returns_is_no_lease() -> None:
    frozen: list[Event] = [granted(1, "a"), Expired(2, "one"), granted(3, "late"), granted(4, "b", instance="two")]
    ends = [Released(9, ask) for ask in ("a", "late", "b")]
    assert not faults(history(*frozen, *ends))
    assert faults(history(*frozen, Returned(5, "one"), granted(6, "c"), Released(9, "c"), *ends)) == [
        "above capacity"
    ]


# -- first come, first served


def test_a_later_request_that_is_served_first_has_overtaken() -> None:
    events = queued(1, "a", 1), queued(2, "b", 2, instance="two"), granted(3, "b", instance="two")
    rest = Released(4, "b"), granted(5, "a"), Released(6, "a")
    assert faults(history(*events, *rest)) == ["overtaken"]


def test_a_request_that_never_waited_may_overtake_none_whatever_its_class() -> None:
    events = queued(1, "a", 1), granted(3, "b", priority="critical")
    rest = Released(4, "b"), granted(5, "a"), Released(6, "a")
    assert faults(history(*events, *rest)) == ["overtaken"]


ALLOWED: dict[str, list[Event]] = {
    "it could not use the slot": [queued(1, "a", 1, usable="v"), queued(2, "b", 2)],
    "they are of different classes": [queued(1, "a", 1), queued(2, "b", 2, priority="critical")],
    "the other had left": [queued(1, "a", 1), queued(2, "b", 2), Left(2.5, "a")],
    "the other came later": [queued(1, "b", 1), queued(2, "a", 2)],
}


@pytest.mark.parametrize("why", ALLOWED)
def test_a_request_that_is_served_first_has_not_overtaken_where(why: str) -> None:
    priority = "critical" if "classes" in why else "normal"
    served = granted(3, "b", priority=priority), Released(4, "b")
    left: list[Event] = [] if "left" in why else [granted(5, "a"), Released(6, "a")]
    assert not faults(history(*ALLOWED[why], *served, *left))


def test_the_number_is_what_counts_of_two_that_came_at_once() -> None:
    rest = granted(3, "b"), Released(4, "b"), granted(5, "a"), Released(6, "a")
    assert faults(history(queued(1, "a", 1), queued(1, "b", 2), *rest)) == ["overtaken"]
    assert not faults(history(queued(1, "a", 2), queued(1, "b", 1), *rest))


@pytest.mark.parametrize(("slack", "found"), [(0.5, ["overtaken"]), (1.0, []), (2.5, [])])
def test_nor_has_a_request_that_never_waited(slack: float, found: list[str]) -> None:
    waits: list[Event] = [queued(1, "a", 1), granted(2, "b"), Released(2.5, "b"), granted(3, "a"), Released(6, "a")]
    assert faults(history(*waits), slack) == found


def overtaking() -> History:
    return history(
        queued(1, "a", 1),
        queued(2, "b", 2, instance="two"),
        granted(3, "b", instance="two"),
        Released(4, "b"),
        granted(5, "a"),
        Released(6, "a"),
    )


def test_a_frozen_instance_loses_its_turn_and_not_its_place() -> None:
    assert not faults(stalled(overtaking(), "one", 2.5, 4.5))
    assert faults(stalled(overtaking(), "two", 2.5, 4.5)) == ["overtaken"]


def test_the_order_is_not_held_to_while_redis_is_not_whole() -> None:
    assert not faults(disturbed(overtaking(), 1.5, 1.6))
    assert faults(disturbed(overtaking(), 0.1, 0.9)) == ["overtaken"]


@pytest.mark.parametrize(("slack", "found"), [(0.5, ["overtaken"]), (1.5, []), (3.0, [])])
def test_what_lies_closer_than_the_slack_has_no_order(slack: float, found: list[str]) -> None:
    assert faults(overtaking(), slack) == found


# -- nothing is granted twice, nothing is lost


def test_one_ask_that_gets_two_slots_is_a_fault() -> None:
    assert faults(history(granted(1, "a"), granted(2, "a", "v"), Released(3, "a"))) == ["granted twice"]


def test_a_second_attempt_gets_a_second_slot_after_the_first() -> None:
    assert not faults(history(granted(1, "a"), Released(2, "a"), granted(3, "a", "v"), Released(4, "a")))


def test_a_slot_that_is_given_back_twice_is_a_fault() -> None:
    assert faults(history(granted(1, "a"), Released(2, "a"), Released(3, "a"))) == ["released without a slot"]


def test_a_slot_that_is_never_given_back_is_a_fault() -> None:
    assert faults(history(granted(1, "a"))) == ["never released"]


def test_a_request_that_is_never_answered_is_a_fault() -> None:
    assert faults(history(queued(1, "a", 1))) == ["never answered"]


def test_but_not_where_its_instance_is_dead() -> None:
    assert not faults(stalled(history(queued(1, "a", 1)), "one", 2, 1e9))


def test_a_free_slot_is_given_soon_to_a_waiting_request() -> None:
    events = granted(1, "a"), queued(2, "b", 1), Released(3, "a"), granted(9, "b"), Released(10, "b")
    assert not faults(history(*events), patience=7)
    assert faults(history(*events), patience=5) == ["slot not given"]


def test_a_slot_lost_for_good_is_found_once_although_nothing_happens_any_more() -> None:
    events: list[Event] = [granted(1, "a"), queued(2, "b", 1), Released(3, "a"), Observed(70, "u", 0)]
    assert faults(history(*events, Observed(80, "u", 0)), patience=5) == ["slot not given", "never answered"]


def test_time_in_which_redis_was_away_does_not_count_for_the_patience() -> None:
    events = granted(1, "a"), queued(2, "b", 1), Released(3, "a"), granted(9, "b"), Released(10, "b")
    assert not faults(disturbed(history(*events), 4, 8), patience=5)


def test_a_slot_that_no_waiting_request_can_use_may_stay_free() -> None:
    events = granted(1, "a", "v"), queued(2, "b", 1, usable="v"), Released(90, "a"), granted(90, "b", "v")
    assert not faults(history(*events, Released(91, "b")), patience=5)


def test_what_is_left_in_redis_at_the_end_is_a_fault() -> None:
    checked = history()
    checked.remaining = {"score of u": 1, "tickets": 0}
    found = verdict(checked)
    assert [violation.what for violation in found.violations] == ["score of u: 1"]


def test_spans_are_written_down_while_they_last() -> None:
    now = 1.0
    made = History(clock=lambda: now)
    with made.redis_disturbed():
        now = 2.0
        stall = made.stall("one")
        assert not made.whole(50, 60)
    stall.end = 3.0
    assert made.whole(2.5, 60)
    assert not made.whole(0, 1)
    assert made.was_stalled("one", 2.5, 9)
    assert not made.was_stalled("one", 3.5, 9)
    assert not made.was_stalled("two", 2.5, 9)


def test_a_slot_may_be_with_an_instance_that_was_stopped_just_then_until_its_lease_has_ended() -> None:
    """It was granted and never used, or given back after its holder had gone."""
    events: list[Event] = [granted(1, "a", instance="two"), queued(2, "b", 1), Released(3, "a")]
    rest: list[Event] = [Expired(15, "two"), granted(18, "b"), Released(19, "b")]
    assert not faults(stalled(history(*events, *rest), "two", 3.1, 1e9), slack=0.5, patience=5)
    for stopped in (2.0, 4.0):  # it had nothing to do with that
        found = faults(stalled(history(*events, *rest), "two", stopped, 1e9), slack=0.5, patience=5)
        assert found == ["slot not given"]


@pytest.mark.parametrize("thawed", [True, False])
def test_but_not_for_longer(thawed: bool) -> None:
    events: list[Event] = [granted(1, "a", instance="two"), queued(2, "b", 1), Released(3, "a")]
    ended: list[Event] = [] if thawed else [Expired(15, "two")]
    late: list[Event] = [granted(21, "b"), Released(22, "b")]
    checked = stalled(history(*events, *ended, *late), "two", 3.1, 15.0 if thawed else 1e9)
    assert faults(checked, slack=0.5, patience=5) == ["slot not given"]

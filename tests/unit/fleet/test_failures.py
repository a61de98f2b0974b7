"""Failures of the last hour at all processes."""

from collections.abc import Mapping

import pytest

from slb.fleet.failures import MOST_AT_ONCE, FailureHistory
from slb.fleet.hours import POINTS, STEP, Failures

UNTIL = 40_000
"""The last point that has ended."""
NOW = UNTIL * STEP + 10.0


def history(told: Mapping[str, Failures], name: str = "/p") -> FailureHistory:
    """What these processes tell of `/p`."""
    found = FailureHistory()
    for _ in found.take([name], {id_: {name: each} for id_, each in told.items()}, NOW):
        pass
    return found


def points(failed: list[int], asked: int = 10, until: int = UNTIL) -> Failures:
    return Failures(until, [asked] * len(failed), failed)


@pytest.mark.parametrize(
    ("failed", "points_ago"),
    [
        ([0, 0, 0, 0], None),
        ([0, 0, 0, 3], 0),
        ([0, 0, 3, 0], 1),
        ([0, 3, 0, 0], None),
        ([0, 0, 1, 1], None),
        ([0, 2, 1, 1], None),
        ([0, 2, 2, 1], 2),
        ([9, 0, 0, 9], 0),
        ([9, 0, 9, 9], 3),
        ([9, 9, 9, 9], 3),
        ([9], 0),
    ],
)
def test_a_route_fails_since_the_first_point_from_which_on_it_always_did(
    failed: list[int], points_ago: int | None
) -> None:
    began = history({"1": points(failed)}).began("/p")
    assert began == (None if points_ago is None else (UNTIL - points_ago) * STEP)


def test_a_share_is_that_of_all_processes() -> None:
    one, other = points([0, 5, 5]), points([0, 0, 0], asked=80)
    assert history({"1": one}).share("/p") == 0.5
    assert history({"1": one, "2": other}).share("/p") == pytest.approx(10 / 180)
    diluted = history({"1": one, "2": other, "3": other})
    assert (diluted.share("/p"), diluted.began("/p")) == (None, None)


def test_points_of_processes_are_added_up_by_when_they_ended() -> None:
    late, other = points([9, 4], until=UNTIL - 1), points([0, 0, 5])
    found = history({"1": late, "2": other})
    assert found.began("/p") == (UNTIL - 2) * STEP
    counts = [found.failed("/p", (UNTIL - ago) * STEP, NOW) for ago in (0, 1, 2, 5)]
    assert counts == [5, 9, 18, 18]


def test_failures_are_counted_from_the_point_on_that_has_the_moment() -> None:
    found = history({"1": points([1, 2, 4, 8])})
    assert found.failed("/p", UNTIL * STEP - 1.0, NOW) == 12
    assert found.failed("/p", UNTIL * STEP + 1.0, NOW) == 8
    assert found.failed("/p", None, NOW) == 14, "the last minute"
    assert found.failed("/p", 0.0, NOW) == 15
    assert found.failed("/other", 0.0, NOW) == 0


def test_a_process_that_does_not_answer_keeps_what_it_told_until_that_is_an_hour_old() -> None:
    found = history({"1": points([5]), "2": points([7])})
    for _ in found.take(["/p"], {"1": {"/p": points([6])}}, NOW):
        pass
    assert found.failed("/p", 0.0, NOW) == 13
    later = UNTIL + POINTS
    for _ in found.take(["/p"], {"1": {"/p": points([6], until=later)}}, later * STEP):
        pass
    assert found.failed("/p", 0.0, NOW) == 6


def test_an_answer_of_tomorrow_is_none() -> None:
    assert history({"1": points([5]), "2": points([7], until=UNTIL + 9)}).failed("/p", 0.0, NOW) == 5


def test_names_are_asked_for_again_after_a_while_and_those_that_never_were_come_first() -> None:
    found, names = FailureHistory(), [f"/{number:03}" for number in range(MOST_AT_ONCE + 5)]
    first = found.wanted(names, NOW)
    assert list(first) == names[:MOST_AT_ONCE]
    for _ in found.take(first, {"1": dict.fromkeys(first, points([5]))}, NOW):
        pass
    assert list(found.wanted(names, NOW + 1.0)) == names[MOST_AT_ONCE:]
    assert list(found.wanted(names, NOW + 6.0))[:5] == names[MOST_AT_ONCE:]
    assert found.wanted(["/000"], NOW + 1.0) == []
    assert found.failed("/001", 0.0, NOW) == 0, "it is forgotten"
    assert list(found.wanted(["/000"], NOW - 9.0)) == ["/000"], "the clock was set back"

"""Rates from counts, and quantiles from histograms."""

import pytest

from slb.fleet.rates import Rates, per_second, quantile, summed
from slb.observe.families import LATENCY_BOUNDS

NONE = [0] * (len(LATENCY_BOUNDS) + 1)


def test_a_rate_is_that_of_the_last_five_to_ten_seconds() -> None:
    rates = Rates()
    assert rates.grown("/p", 0.0, (100,)) == ((100,), 0.0)
    found = [rates.grown("/p", float(second), (100 + 10 * second,)) for second in range(1, 31)]
    assert all(per_second(growth[0], seconds) == 10.0 for growth, seconds in found)
    assert {seconds for _, seconds in found[9:]} == {5.0, 6.0, 7.0, 8.0, 9.0}


def test_a_count_that_has_shrunk_began_anew() -> None:
    rates = Rates()
    rates.grown("/p", 0.0, (100, 5))
    assert rates.grown("/p", 2.0, (8, 6)) == ((8, 6), 2.0)


def test_no_rate_is_given_over_a_moment() -> None:
    rates = Rates()
    rates.grown("/p", 0.0, (0,))
    assert rates.grown("/p", 0.1, (1,))[1] == 0.0
    assert per_second(1, 0.0) == 0.0


def test_only_the_names_that_are_kept_are_remembered() -> None:
    rates = Rates()
    for name in ("/p", "/q"):
        rates.grown(name, 0.0, (0,))
    rates.keep(["/q"])
    assert rates.grown("/p", 5.0, (10,))[1] == 0.0
    assert rates.grown("/q", 5.0, (10,))[1] == 5.0


@pytest.mark.parametrize(
    ("counts", "share", "seconds"),
    [
        ({}, 0.5, None),
        ({0: 10}, 0.5, 0.0005),
        ({0: 5, 5: 5}, 0.5, 0.001),
        ({0: 50, 5: 50}, 0.99, 0.0495),
        ({len(LATENCY_BOUNDS): 3}, 0.5, 600.0),
    ],
)
def test_a_quantile_lies_within_its_bucket(counts: dict[int, int], share: float, seconds: float | None) -> None:
    found = quantile([counts.get(place, 0) for place in range(len(NONE))], share)
    assert found == (None if seconds is None else pytest.approx(seconds))


def test_histograms_are_added_by_their_bounds() -> None:
    assert summed([[1, 2], [3, 4]]) == [4, 6]
    assert summed([]) == []

"""The seed's formulas."""

import pytest

from slb.quota.script import advice, percentile


def test_nobody_who_waits_is_no_pressure_and_all_room_may_be_used() -> None:
    assert advice(0, 0, {}, 0, 40) == (0.0, 40)
    assert advice(10, 10, {}, 5, 40) == (0.0, 40)


def test_long_waits_and_few_admissions_are_pressure() -> None:
    score, parallelism = advice(10, 5, {1000: 5}, 10, 30)
    assert score == pytest.approx(0.5 + 0.5 * 0.5)
    assert parallelism == 15
    assert advice(10, 8, {220: 2}, 10, 30).score == pytest.approx(0.5 * (220 - 25) / 975 + 0.5 * 0.2)


def test_parallelism_is_at_least_four_and_at_most_what_the_models_take() -> None:
    assert advice(10, 0, {1000: 10}, 0, 40).parallelism == 4
    assert advice(10, 0, {1000: 10}, 0, 2).parallelism == 2


def test_the_percentile_is_the_smallest_value_with_enough_at_or_below_it() -> None:
    assert percentile({10: 95, 500: 5}, 0.95) == 10
    assert percentile({10: 94, 500: 6}, 0.95) == 500
    assert percentile({}, 0.95) == 0

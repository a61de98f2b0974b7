"""The seed's formulas."""

import pytest

from slb.quota.advice import Decided, advice, percentile


def test_an_empty_queue_is_no_pressure_and_all_room_may_be_used() -> None:
    assert advice(Decided(), 0, 40) == (0.0, 40)
    assert advice(Decided(calls=10, admits=10), 5, 40) == (0.0, 40)


def test_long_waits_and_few_admissions_are_pressure() -> None:
    decided = Decided(10, 5)
    decided.waits.update({1000: 5})
    score, parallelism = advice(decided, 10, 30)
    assert score == pytest.approx(0.5 + 0.5 * 0.5)
    assert parallelism == 15
    decided = Decided(10, 8)
    decided.waits.update({220: 2})
    assert advice(decided, 10, 30).score == pytest.approx(0.5 * (220 - 25) / 975 + 0.5 * 0.2)


def test_parallelism_is_at_least_four_and_at_most_what_the_models_take() -> None:
    busy = Decided(10, 0)
    busy.waits.update({1000: 10})
    assert advice(busy, 0, 40).parallelism == 4
    assert advice(busy, 0, 2).parallelism == 2


def test_the_percentile_is_the_smallest_value_with_enough_at_or_below_it() -> None:
    assert percentile({10: 95, 500: 5}, 0.95) == 10
    assert percentile({10: 94, 500: 6}, 0.95) == 500
    assert percentile({}, 0.95) == 0

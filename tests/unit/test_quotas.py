"""The limits of a model, and parts of them."""

import pytest

from slb.quotas import Limits


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        (Limits(600, 10, weight=3, burst=100), Limits(120, 2, weight=3, burst=20)),
        (Limits(609, 14, burst=104), Limits(121, 2, burst=20)),
        (Limits(600, 10), Limits(120, 2, burst=20)),
        (Limits(5, 5, burst=5), Limits(1, 1, burst=1)),
        (Limits(5, 5, burst=5, paused=True), Limits(1, 1, burst=1, paused=True)),
        (Limits(4, 5, burst=5), Limits(1, 1, burst=1, paused=True)),
        (Limits(5, 4, burst=5), Limits(1, 1, burst=1, paused=True)),
        (Limits(5, 5, burst=4), Limits(1, 1, burst=1, paused=True)),
    ],
    ids=str,
)
def test_a_part_is_rounded_down_and_takes_nothing_where_nothing_is_left(whole: Limits, part: Limits) -> None:
    assert whole.share(5) == part

"""What may be sent a second time, and the pause before it."""

from random import Random

import pytest

from slb.balance.retry import IDEMPOTENT, backoff, may_repeat


@pytest.mark.parametrize(
    ("method", "is_sent", "is_whole", "may"),
    [
        *((method, True, True, True) for method in sorted(IDEMPOTENT)),
        ("POST", True, True, False),
        ("PATCH", True, True, False),
        ("get", True, True, False),
        ("POST", False, True, True),
        ("GET", True, False, False),
        ("POST", False, False, False),
    ],
)
def test_a_whole_request_may_be_repeated_by_its_method_or_where_none_of_it_was_sent(
    method: str, is_sent: bool, is_whole: bool, may: bool
) -> None:
    assert may_repeat(method, is_sent, is_whole) is may


def test_the_pause_before_a_retry_is_a_few_milliseconds_and_jittered() -> None:
    pauses = {backoff(Random(seed)) for seed in range(100)}
    assert len(pauses) == 100
    assert all(0.002 <= pause <= 0.01 for pause in pauses)

"""The pause before a retry."""

from random import Random

from slb.balance.retry import backoff


def test_the_pause_before_a_retry_is_a_few_milliseconds_and_jittered() -> None:
    pauses = {backoff(Random(seed)) for seed in range(100)}
    assert len(pauses) == 100
    assert all(0.002 <= pause <= 0.01 for pause in pauses)

"""The yardstick: how soon the quotas alone would let all of a backlog go."""

from collections.abc import Sequence

from bench.quota.backlog import Work
from bench.quota.models import Model


def least_seconds(models: Sequence[Model], backlog: Sequence[Work]) -> float:
    """No router that keeps the limits drains sooner: every model's bucket is full at first, it admits at its limit
    from the first moment to the last, no call takes any time, and every prompt suits every model."""
    tokens = sum(work.tokens for work in backlog)
    at_once = sum(model.burst for model in models)
    return max(0.0, (tokens - at_once) / sum(model.rate for model in models))

"""How many callers would do: the formulas of seed and docs over what was decided in the last minute."""

from collections.abc import Mapping
from math import ceil

from slb.quotas import Advice

LOW, HIGH = 25, 1_000
"""Milliseconds of waiting: up to `LOW` they add nothing to the score, from `HIGH` on the most."""

FEWEST = 4
"""Callers, where the models can take so many."""


def advice(calls: int, admits: int, waits: Mapping[int, int], in_flight: int, capacity: int) -> Advice:
    """Of `calls` decided, `admits` were admitted; `waits`: how often each wait was given, in milliseconds, at most
    `HIGH`. `in_flight` requests now, of at most `capacity` in all models together."""
    admit_rate = admits / calls if calls else 1.0
    slow = (percentile(waits, 0.95) - LOW) / (HIGH - LOW)
    score = _clamp(0.5 * _clamp(slow, 0, 1) + 0.5 * (1 - admit_rate), 0, 1)
    wanted = in_flight + round((capacity - in_flight) * (1 - score))
    return Advice(score, int(min(max(wanted, FEWEST), capacity)))


def percentile(counts: Mapping[int, int], share: float) -> int:
    """The smallest value that so large a share of all is at or below; 0 where there is none."""
    rank, seen = ceil(share * sum(counts.values())), 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= rank:
            return value
    return 0


def _clamp(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)

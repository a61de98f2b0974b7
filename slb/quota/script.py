"""The asks and replies of the quota router's script (`lua/quota.lua` has their forms), and the formulas of its
advice."""

from collections.abc import Mapping
from math import ceil
from typing import Any

from slb.quotas import Admitted, Advice, Changes, Decision, Denied, Limits, ModelState, Rules, Wait

_FIELDS = ("max_tokens_per_minute", "max_concurrent_requests", "weight", "burst", "paused")


def decision_of(reply: list[Any]) -> Decision:
    kind, *rest = reply
    if kind == "admitted":
        return Admitted(*rest)
    return Wait(int(rest[0]), rest[1]) if kind == "wait" else Denied(*rest)


def advice_of(reply: list[Any]) -> Advice:
    calls, admits, in_flight, capacity, *waits = reply
    return advice(calls, admits, dict(zip(waits[::2], waits[1::2], strict=True)), in_flight, capacity)


def written(changes: Changes) -> list[int]:
    """The arguments of `put`: -1 for what stays, a burst of 0 for none."""
    values = {name: 0 if value is None else int(value) for name, value in changes.items()}
    return [values.get(field, -1) for field in _FIELDS]


def row_of(limits: Limits) -> list[int]:
    return written({field: getattr(limits, field) for field in _FIELDS})


def written_rules(rules: Rules) -> dict[str, int]:
    return {"lease": rules.lease, "longest": rules.longest_wait, "kept": rules.kept}


def limits_of(row: str) -> Limits:
    tokens, slots, weight, burst, paused = map(int, row.split())
    return Limits(tokens, slots, weight, burst or None, bool(paused))


def state_of(row: list[Any]) -> ModelState:
    model, limits, running, level, deficit, promised, callers, minute = row
    numbers = (int(running), int(level) / 60_000, int(deficit), int(promised), int(callers), int(minute))
    return ModelState(model, limits_of(limits), *numbers)


LOW, HIGH = 25, 1_000  # milliseconds of waiting: up to `LOW` they add nothing to the score, from `HIGH` on the most

FEWEST = 4  # callers, where the models can take so many


def advice(calls: int, admits: int, waits: Mapping[int, int], in_flight: int, capacity: int) -> Advice:
    """Of `calls` decided, `admits` were admitted; `waits`: how often each wait was given, in milliseconds, at most
    `HIGH`. `in_flight` requests now, of at most `capacity` in all models together."""
    admit_rate = admits / calls if calls else 1.0
    slow = (percentile(waits, 0.95) - LOW) / (HIGH - LOW)
    score = _clamp(0.5 * _clamp(slow, 0, 1) + 0.5 * (1 - admit_rate), 0, 1)
    wanted = in_flight + round((capacity - in_flight) * (1 - score))
    return Advice(score, int(min(max(wanted, FEWEST), capacity)))


def percentile(counts: Mapping[int, int], share: float) -> int:
    """The smallest value such that `share` of all are not above it; 0 where there is none."""
    rank, seen = ceil(share * sum(counts.values())), 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= rank:
            return value
    return 0


def _clamp(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)

"""The asks and replies of the quota router's script as values of `slb.quotas`. `lua/quota.lua` has their forms."""

from typing import Any

from slb.quota.advice import advice
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
    """As `put` takes them: -1 is what stays as it is, a burst of 0 is one that is not set."""
    values = {name: 0 if value is None else int(value) for name, value in changes.items()}
    return [values.get(field, -1) for field in _FIELDS]


def row_of(limits: Limits) -> list[int]:
    """All of them, as `put` and `restore` take them."""
    return written({field: getattr(limits, field) for field in _FIELDS})


def written_rules(rules: Rules) -> dict[str, int]:
    """What each call of the script has besides its asks."""
    return {"lease": rules.lease, "longest": rules.longest_wait, "kept": rules.kept}


def limits_of(row: str) -> Limits:
    tokens, slots, weight, burst, paused = map(int, row.split())
    return Limits(tokens, slots, weight, burst or None, bool(paused))


def state_of(row: list[Any]) -> ModelState:
    model, limits, running, level, deficit, promised, callers, minute = row
    numbers = (int(running), int(level) / 60_000, int(deficit), int(promised), int(callers), int(minute))
    return ModelState(model, limits_of(limits), *numbers)

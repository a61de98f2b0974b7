"""What several workers say of the pools, of traffic and of upstreams, as one: what each holds or counts is added,
what all see of the fleet is not."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from slb.admission.shown import LedgerShown, Mode, PoolShown
from slb.api.shapes import TrafficShown, UpstreamsShown

_WORST: tuple[Mode, ...] = ("local", "settling", "late", "shared")

Traffic = Mapping[str, Any]
"""A TrafficShown as a worker answered it: figures by name, and figures by name by name."""

_GAUGES = ("inflight", "inflight_by_upstream", "client_connections")
"""What is now, rather than since the start: it ends with the process."""


def combined(parts: Iterable[LedgerShown]) -> LedgerShown:
    """All pools any of them has."""
    by_pool: dict[str, list[PoolShown]] = {}
    for part in parts:
        for pool, shown in part["pools"].items():
            by_pool.setdefault(pool, []).append(shown)
    return LedgerShown(pools={pool: _one(shown) for pool, shown in sorted(by_pool.items())})


def _one(parts: list[PoolShown]) -> PoolShown:
    return PoolShown(
        mode=min((each["mode"] for each in parts), key=_WORST.index),
        error=next((each["error"] for each in parts if each["error"]), ""),
        holders=max((each["holders"] for each in parts if each["holders"] is not None), default=None),
        queued=max((each["queued"] for each in parts if each["queued"] is not None), default=None),
        held=_sum(each["held"] for each in parts),
        waiting=_sum(each["waiting"] for each in parts),
        scores=_most([each["scores"] for each in parts if each["scores"] is not None]),
    )


def _most(parts: Sequence[Mapping[str, int]]) -> dict[str, int] | None:
    """Each has read the same scores, at its own moment; None where none has."""
    if not parts:
        return None
    most: Counter[str] = Counter()
    for part in parts:
        most |= Counter(part)
    return dict(most)


def no_traffic() -> Traffic:
    """Every figure, at zero."""
    nothing: dict[str, Any] = dict.fromkeys(TrafficShown.__annotations__, 0)
    return {**nothing, "by_code": {}, "by_reason": {}, "by_route": {}, "inflight_by_upstream": {}}


def lasting(traffic: Traffic) -> Traffic:
    """What stays of a process that has ended, so that no count goes down."""
    return {name: value for name, value in traffic.items() if name not in _GAUGES}


def added(parts: Iterable[Traffic]) -> Traffic:
    """The sum of all."""
    return _sum((no_traffic(), *parts))


def _sum(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The sum by name of figures, and of mappings in the same way."""
    total: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            is_nested = isinstance(value, Mapping)
            total[name] = _sum((total.get(name, {}), value)) if is_nested else total.get(name, 0) + value
    return total


def worst(seen: Collection[UpstreamsShown]) -> UpstreamsShown:
    """Each ejects for itself, often the same upstream: their sum would count it twice."""
    return UpstreamsShown(
        down=max(each["down"] for each in seen),
        ejected=max(each["ejected"] for each in seen),
        panic=sorted({route for each in seen for route in each["panic"]}),
    )

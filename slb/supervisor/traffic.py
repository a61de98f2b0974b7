"""The figures of /status's `traffic`, of several workers and of workers that have ended."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from slb.api.shapes import TrafficShown

Traffic = Mapping[str, Any]
"""A TrafficShown as a worker answered it: figures by name, and figures by name by name."""

_GAUGES = ("inflight", "inflight_by_upstream", "client_connections")
"""What is now, rather than since the start: it ends with the process."""


def no_traffic() -> Traffic:
    """Every figure, at zero."""
    nothing: dict[str, Any] = dict.fromkeys(TrafficShown.__annotations__, 0)
    return {**nothing, "by_code": {}, "by_reason": {}, "by_route": {}, "inflight_by_upstream": {}}


def lasting(traffic: Traffic) -> Traffic:
    """What stays of a process that has ended, so that no count goes down."""
    return {name: value for name, value in traffic.items() if name not in _GAUGES}


def added(parts: Iterable[Traffic]) -> Traffic:
    """The sum of all."""
    total = dict(no_traffic())
    for each in parts:
        for name, value in each.items():
            if isinstance(value, Mapping):
                total[name] = dict(Counter(total.get(name, {})) + Counter(value))
            else:
                total[name] = total.get(name, 0) + value
    return total

"""Which routes have failed in the last minute, added up from their rates. Pure: times are passed in."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from slb import errors
from slb.errors import is_error

_MINUTE = 60.0
_PART = 5.0
_LONGEST_GAP = 10.0
"""Seconds for which a rate is taken to have held: it is one of the last 5 to 10."""
_LEAST_SHARE = 0.05
_LEAST_ERRORS = 3.0
"""Below which the share says nothing."""
_STATUS = {each.name: each.status for each in vars(errors).values() if isinstance(each, errors.Reason)}


class Failing(NamedTuple):
    """`reason`: status and name of what most of the errors were; empty where they were upstreams' own answers."""

    share: float
    reason: str


@dataclass
class _Sums:
    requests: float = 0.0
    errors: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)


class LastMinute:
    """A sum lacks what was before the first `add`. Its size grows with the routes that have requests."""

    def __init__(self) -> None:
        self._parts: deque[tuple[float, dict[str, _Sums]]] = deque()
        self._at: float | None = None

    def add(self, routes: Mapping[str, Mapping[str, Any]], now: float) -> None:
        seconds = 0.0 if self._at is None else min(max(0.0, now - self._at), _LONGEST_GAP)
        self._at = now
        if not self._parts or now - self._parts[-1][0] >= _PART:
            self._parts.append((now, {}))
        while now - self._parts[0][0] >= _MINUTE:
            self._parts.popleft()
        sums = self._parts[-1][1]
        for path, route in routes.items():
            if not route["rate"] and not route["error_rate"]:
                continue
            of_route = sums.setdefault(path, _Sums())
            of_route.requests += seconds * route["rate"]
            of_route.errors += seconds * route["error_rate"]
            for reason, rate in route["reasons"].items():
                if is_error(_STATUS.get(reason, 0), reason):
                    of_route.reasons[reason] += seconds * rate

    def failing(self) -> Iterator[tuple[str, Failing]]:
        failed = dict.fromkeys(path for _, part in self._parts for path, each in part.items() if each.errors)
        for path in failed:
            total = _Sums()
            for _, part in self._parts:
                if each := part.get(path):
                    total.requests += each.requests
                    total.errors += each.errors
                    total.reasons.update(each.reasons)
            share = total.errors / max(total.errors, total.requests)  # of a forged row there may be no requests
            if total.errors >= _LEAST_ERRORS and share >= _LEAST_SHARE:
                yield path, Failing(share, _commonest(total))


def _commonest(total: _Sums) -> str:
    own = total.errors - total.reasons.total()
    reason, count = max(total.reasons.items(), key=lambda each: each[1], default=("", 0.0))
    return f"{_STATUS[reason]} {reason}" if reason and count >= own else ""

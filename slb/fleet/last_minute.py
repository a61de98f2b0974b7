"""What has failed in the last minute, of routes or of upstreams, added up from their rates. Pure: times are
passed in."""

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
    """A sum lacks what was before the first `add`. Its size grows with those that have requests."""

    def __init__(self) -> None:
        self._parts: deque[tuple[float, dict[str, _Sums]]] = deque()
        self._at: float | None = None

    def add(self, objects: Mapping[str, Mapping[str, Any]], now: float) -> None:
        """`objects`: by name, each with its `rate`, its `error_rate`, and maybe its `reasons`."""
        seconds = 0.0 if self._at is None else min(max(0.0, now - self._at), _LONGEST_GAP)
        self._at = now
        if not self._parts or now - self._parts[-1][0] >= _PART:
            self._parts.append((now, {}))
        while now - self._parts[0][0] >= _MINUTE:
            self._parts.popleft()
        sums = self._parts[-1][1]
        for name, each in objects.items():
            if not each["rate"] and not each["error_rate"]:
                continue
            of_it = sums.setdefault(name, _Sums())
            of_it.requests += seconds * each["rate"]
            of_it.errors += seconds * each["error_rate"]
            for reason, rate in each.get("reasons", {}).items():
                if is_error(_STATUS.get(reason, 0), reason):
                    of_it.reasons[reason] += seconds * rate

    def errors(self, name: str) -> int:
        """Of one of them."""
        return round(sum(part[name].errors for _, part in self._parts if name in part))

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

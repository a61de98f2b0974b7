"""What has failed of routes in the last minute of looking, and by what, added up from their rates. Pure: times are
passed in."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from slb import errors
from slb.errors import is_error
from slb.fleet.failures import LEAST_ERRORS, LEAST_SHARE

_MINUTE = 60.0
_PART = 5.0
_LONGEST_GAP = 10.0
"""Seconds for which a rate is taken to have held: it is one of the last 5 to 10."""
_STATUS = {each.name: each.status for each in vars(errors).values() if isinstance(each, errors.Reason)}


class Failing(NamedTuple):
    """`reason`: status and name of what most of the errors were; empty where they were upstreams' own answers, None
    where it is not known."""

    share: float
    reason: str | None


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
        self._began = float("inf")

    def add(self, objects: Mapping[str, Mapping[str, Any]], now: float) -> None:
        """`objects`: by name, each with its `rate`, its `error_rate`, and maybe its `reasons`."""
        seconds = 0.0 if self._at is None else min(max(0.0, now - self._at), _LONGEST_GAP)
        self._at, self._began = now, min(self._began, now)
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

    def is_whole(self, now: float) -> bool:
        """Whether there is nothing of the last minute before the first `add`."""
        return now - self._began >= _MINUTE

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
            if total.errors >= LEAST_ERRORS and share >= LEAST_SHARE:
                yield path, Failing(share, _commonest(total))


def _commonest(total: _Sums) -> str:
    own = total.errors - total.reasons.total()
    reason, count = max(total.reasons.items(), key=lambda each: each[1], default=("", 0.0))
    return f"{_STATUS[reason]} {reason}" if reason and count >= own else ""

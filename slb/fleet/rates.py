"""Rates from counts that only grow, and quantiles from histograms. Pure: times are passed in."""

from collections.abc import Hashable, Iterable, Sequence
from itertools import pairwise
from operator import add, sub

from slb.observe.families import LATENCY_BOUNDS

_HALF = 5.0
"""Seconds: a rate is that of the last 5 to 10, or of as long as it has been looked at."""
_LEAST = 0.5
"""Seconds: over less no rate is given."""

Counts = tuple[float, ...]


class Rates:
    """By name, the growth of some counts over the last seconds. It keeps two points for each name, however often it
    is looked at, so that its cost and its size grow with the names alone; `keep` forgets the others."""

    def __init__(self) -> None:
        self._points: dict[Hashable, tuple[float, Counts, float, Counts]] = {}

    def grown(self, name: Hashable, now: float, counts: Counts) -> tuple[Counts, float]:
        """By how much each count has grown, and in how many seconds; 0.0 where that is not known yet. A count that
        has shrunk began anew."""
        points = self._points.get(name)
        if points is None:
            self._points[name] = now, counts, now, counts
            return counts, 0.0
        since, before, at, later = points
        if len(before) != len(counts):
            self._points[name] = now, counts, now, counts
            return counts, 0.0
        if now - at >= _HALF:
            self._points[name] = at, later, now, counts
            since, before = at, later
        seconds = now - since
        if seconds < _LEAST:
            return counts, 0.0
        growth = tuple(map(sub, counts, before))
        return (growth if min(growth, default=0) >= 0 else counts), seconds

    def keep(self, names: Iterable[Hashable]) -> None:
        """Forget all others."""
        kept = frozenset(names)
        for name in [name for name in self._points if name not in kept]:
            del self._points[name]

    def forget(self, name: Hashable) -> None:
        self._points.pop(name, None)

    def clear(self) -> None:
        self._points.clear()


def per_second(count: float, seconds: float) -> float:
    return round(count / seconds, 3) if seconds else 0.0


def summed(rows: Iterable[Sequence[float]]) -> list[float]:
    """Of histograms: the counts of each bound. Empty where there is none."""
    total: list[float] = []
    for row in rows:
        total = list(map(add, total, row)) if total else list(row)
    return total


def quantile(counts: Sequence[float], share: float) -> float | None:
    """Seconds that this share of all took at most, as far as the bounds tell; None where nothing was counted. What
    is above the highest bound counts as that."""
    total = sum(counts)
    if total <= 0:
        return None
    wanted, passed = share * total, 0.0
    for (low, high), count in zip(pairwise((0.0, *LATENCY_BOUNDS)), counts, strict=False):
        if count and passed + count >= wanted:
            return round(low + (high - low) * (wanted - passed) / count, 6)
        passed += count
    return float(LATENCY_BOUNDS[-1])

"""How long things took, counted by upper bound."""

from bisect import bisect_left

LATENCY_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""Seconds: from a cached answer to a generation of minutes."""


class Histogram:
    """Counts by upper bound; the last count is everything above the highest bound."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BOUNDS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts as Prometheus wants them."""
        total = 0
        found: list[tuple[str, float]] = []
        for bound, count in zip((*map(str, map(float, LATENCY_BOUNDS)), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, total))
        return found

"""The zone's latency against that of all zones: the input of the brake of the zone's ramp.

At the top of the ramp nearly all requests are local, so a mean over all requests *is* the zone's own and would
never look better than it. The latency of all zones is therefore that of a request that may go to any upstream: the
mean of the zone's and that of the others, weighted by the number of upstreams.

At the top only a few requests in a hundred go to the others, and where a hit takes a millisecond and a miss a
hundred, the means of a few differ by chance alone. The part that may be chance is subtracted from the difference,
so that the brake acts only on a certain difference.
"""

from collections.abc import Iterable
from math import exp, sqrt

from slb.balance.load_stats import LoadStats

MEMORY = 5.0
"""Seconds after which a request counts 1/e, the same for both: what slows all of them is no difference."""

CHANCE = 3.0
"""Standard errors that the difference of two means may come to by chance: there is a look every few milliseconds,
and what comes about once in twenty would come every minute."""

_LEAST = 1.0
"""Requests, older ones counted in part: of fewer no latency is given."""


class _Side:
    """The requests completed by some upstreams, lately: how many, their seconds, and the squares of these."""

    __slots__ = ("_seen", "count", "load_stats", "seconds", "squares")

    def __init__(self) -> None:
        self.load_stats: tuple[LoadStats, ...] = ()
        self.count = self.seconds = self.squares = 0.0
        self._seen = (0, 0.0, 0.0)

    def watch(self, load_stats: Iterable[LoadStats]) -> None:
        self.load_stats = tuple(load_stats)
        self._seen = self._totals()

    def take(self, keep: float) -> None:
        """Add what has been completed since the last time; `keep` is what is left of everything before."""
        before, self._seen = self._seen, self._totals()
        self.count = self.count * keep + self._seen[0] - before[0]
        self.seconds = self.seconds * keep + self._seen[1] - before[1]
        self.squares = self.squares * keep + self._seen[2] - before[2]

    def _totals(self) -> tuple[int, float, float]:
        count, seconds, squares = 0, 0.0, 0.0
        for each in self.load_stats:
            completed, took, squared = each.completed()
            count += completed
            seconds += took
            squares += squared
        return count, seconds, squares


class ZoneLatency:
    """`watch` sets which upstreams to compare; `look` reads the result, every few milliseconds."""

    def __init__(self) -> None:
        self._local = _Side()
        self._others = _Side()
        self._seen = 0.0

    def watch(self, local: Iterable[LoadStats], others: Iterable[LoadStats]) -> None:
        """Set the upstreams that can take requests now. The latencies so far are kept."""
        self._local.watch(local)
        self._others.watch(others)

    def look(self, now: float) -> tuple[float | None, float | None]:
        """Seconds: the zone's own latency, as far as it differs by more than chance, and that of all zones; None
        where there are too few requests to compare them."""
        keep, self._seen = exp(min(0.0, self._seen - now) / MEMORY), now
        local, others = self._local, self._others
        local.take(keep)
        others.take(keep)
        if local.count < _LEAST or others.count < _LEAST:
            return None, None
        mine, theirs = local.seconds / local.count, others.seconds / others.count
        chance = CHANCE * _error(local, others)
        certain = max(0.0, mine - theirs - chance) - max(0.0, theirs - mine - chance)
        of_local = len(local.load_stats) / max(1, len(local.load_stats) + len(others.load_stats))
        all_zones = theirs + certain * of_local
        return theirs + certain, all_zones


def _error(local: _Side, others: _Side) -> float:
    """The standard error of the difference of the means, with the variance of both sides together: the few of one
    side may all be hits, and have no variance."""
    count = local.count + others.count
    mean = (local.seconds + others.seconds) / count
    variance = max(0.0, (local.squares + others.squares) / count - mean * mean)
    return sqrt(variance * (1.0 / local.count + 1.0 / others.count))

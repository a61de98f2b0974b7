"""Upstreams that have more in flight, from all instances, than their cap: logged and counted."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping

import structlog

from slb.model import RouteSettings
from slb.observe.metrics import Metrics
from slb.routing.table import Route, Table

_MOST_NAMED = 20

Scores = Mapping[str, Mapping[str, int]]
"""pool -> upstream -> its requests in flight from all instances."""

_log = structlog.get_logger()


class AboveCap:
    """Counts how far upstreams above their caps have risen since the last look."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._before: dict[str, int] = {}
        self._routes: Mapping[str, Route] = {}

    def swapped(self, table: Table) -> None:
        """There is another table; a cap may be lower than what is in flight."""
        before, self._routes = self._routes, table.routes
        if routes := with_lower_caps(before, table.counted):
            _log.info("ledger_caps_lowered", count=len(routes), routes=routes[:_MOST_NAMED])

    def look(self, scores: Scores, routes: Collection[Route]) -> None:
        """Compare `scores` with the caps of these routes; at most once a second."""
        found, before = above_cap(scores, routes), self._before
        self._before = found
        risen = sum(max(0, above - before.get(member, 0)) for member, above in found.items())
        if risen:
            self._metrics.ledger.above_cap += risen
            named = dict(sorted(found.items())[:_MOST_NAMED])
            _log.warning("ledger_above_cap", above=sum(found.values()), upstreams=named)


def above_cap(scores: Scores, routes: Collection[Route]) -> dict[str, int]:
    """Upstream -> by how much it is above its cap in one of its pools, or in all together above the highest; only
    those that are. Within a pool the highest cap of its routes counts."""
    total: Counter[str] = Counter()
    for each in scores.values():
        total.update(each)
    least = min((route.settings.max_inflight for route in routes if route.settings.max_inflight), default=math.inf)
    suspects = {member for member, count in total.items() if count > least}
    caps = _caps(suspects, scores, routes) if suspects else {}
    found: dict[str, int] = {}
    for member, by_pool in caps.items():
        above = total[member] - max(by_pool.values())
        above = max(above, *(scores[pool].get(member, 0) - cap for pool, cap in by_pool.items()))
        if above > 0:
            found[member] = int(above)
    return found


def with_lower_caps(before: Mapping[str, Route], now: Mapping[str, Route]) -> list[str]:
    """Of `now` (both: path -> route) the capped routes that had a higher cap, or another pool."""
    changed = ((before.get(path), route) for path, route in now.items() if before.get(path) is not route)
    return [route.path for old, route in changed if old is not None and _counts_less(old.settings, route)]


def _counts_less(old: RouteSettings, route: Route) -> bool:
    cap = route.settings.max_inflight
    was_higher = not old.max_inflight or cap < old.max_inflight
    return bool(cap) and (was_higher or (old.pool or route.path) != (route.settings.pool or route.path))


def _caps(members: Collection[str], scores: Scores, routes: Collection[Route]) -> dict[str, dict[str, float]]:
    """member -> pool -> its cap there; infinite where a route of the pool has none."""
    caps: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for route in routes:
        pool = route.settings.pool or route.path
        if pool in scores:
            for upstream in route.members:
                if upstream.member in members:
                    cap = route.settings.max_inflight * upstream.spec.slots or math.inf
                    by_pool = caps[upstream.member]
                    by_pool[pool] = max(cap, by_pool.get(pool, 0))
    return caps

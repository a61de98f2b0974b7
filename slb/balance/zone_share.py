"""The part of a route's requests that stays in the zone of this process: the ramp, and the latencies it goes by."""

from collections.abc import Set

from slb.balance.load_stats import LoadStats
from slb.balance.upstream import LiveUpstream
from slb.balance.zone import ZoneRamp
from slb.balance.zone_latency import ZoneLatency
from slb.model import RouteSettings


class ZoneShare:
    """`share`: the part that the zone's own ring decides, 0 to 1, as of the last look; 0 without such a ring."""

    def __init__(self, settings: RouteSettings) -> None:
        self.share = 0.0
        self.ramp = ZoneRamp(settings)
        self._latency = ZoneLatency()
        self._own: Set[LiveUpstream] = frozenset()
        self._compared: tuple[object, ...] = ()

    def follow(self, settings: RouteSettings) -> None:
        self.ramp.settings = settings
        if not settings.zone_affinity:
            self.ramp = ZoneRamp(settings)  # caches have turned to all zones meanwhile

    def look(self, local: Set[LiveUpstream], eligible: Set[LiveUpstream], pool_latency: float, now: float) -> float:
        """The share, taken anew. `local`: the upstreams of the zone's ring; `eligible`: all that can take requests;
        `pool_latency`: theirs, seconds."""
        if self._compared != (local, eligible):
            self._compared, self._own = (local, eligible), local & eligible
            self._latency.watch(_load_stats(self._own), _load_stats(eligible - self._own))
        self.ramp.observe(*self._latency.look(now), now)
        own = (each.load_stats for each in self._own)
        is_frozen = all(each is not None and each.is_stuck(pool_latency, now) for each in own)
        self.share = self.ramp.share(now, 0 if is_frozen else len(self._own))  # frozen, it has no latency to show
        return self.share


def _load_stats(upstreams: Set[LiveUpstream]) -> list[LoadStats]:
    return [each.load_stats for each in upstreams if each.load_stats is not None]

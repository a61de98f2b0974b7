"""How much of the traffic stays in the zone: a ramp, and a brake on it.

The ramp depends on the time since it began and on nothing else, so that neither joins and leaves nor a bad minute
can begin it again. The brake depends on latencies alone, and is released by itself.
"""

from math import exp

from slb.balance.ring_set import curve
from slb.model import RouteSettings

FLOOR = 0.01
"""The share at the beginning of the ramp, and under the brake: enough to see how the zone is doing. At the top as
much is left to all zones: without it there would be nothing to compare the zone with."""

SMOOTHING = 2.0
"""Seconds after which a latency counts 1/e: a brief dip is not to be followed."""

FALL = 1.0
RISE = 10.0
"""Seconds in which health falls from 1 to 0, and rises again: slower than caches get cold, and warm."""

LULL = 0.1
"""Seconds of its fall that one sample can account for, at most. Between bursts of requests there are no samples,
and the newest latency after a minute may be from the last moment of the burst before."""


class ZoneRamp:
    """Begins when the zone first has enough upstreams. `settings`: the route's, and may be replaced at any time;
    `health`: 1 where latency takes nothing away, down to 0."""

    def __init__(self, settings: RouteSettings) -> None:
        self.settings = settings
        self.health = 1.0
        self._began: float | None = None
        self._seen = 0.0
        self._local: float | None = None
        self._all: float | None = None
        self._brakes = False

    def share(self, now: float, local_upstreams: int) -> float:
        """The part of the requests that is the zone's own to serve, 0 to 1; `local_upstreams` can take them."""
        settings = self.settings
        if local_upstreams < settings.zone_min_upstreams:
            return 0.0
        if self._began is None:
            self._began = now
        begins = self._began + settings.zone_delay
        if now < begins:
            return 0.0
        ramp = curve(begins, settings.zone_fade_in, now)
        ceiling = min(settings.zone_ceiling, 1.0 - FLOOR)
        return max(min(FLOOR, ceiling), ceiling * ramp * self.health)

    def observe(self, local: float | None, all_zones: float | None, now: float) -> None:
        """The latencies of the zone's own upstreams and of all, seconds; None where unknown: without a latency of
        the zone there is no sign of a problem, and the brake is released."""
        elapsed, self._seen = max(0.0, now - self._seen), now
        keep = exp(-elapsed / SMOOTHING)
        self._local = _smoothed(self._local, local, keep)
        self._all = _smoothed(self._all, all_zones, keep)
        self._brakes = self._should_brake()
        step = -min(elapsed, LULL) / FALL if self._brakes else elapsed / RISE
        self.health = min(1.0, max(0.0, self.health + step))

    def _should_brake(self) -> bool:
        """Above the margin; and once it is, until the zone is back within half of it."""
        if self._local is None or not self._all:
            return False
        margin = self.settings.zone_margin
        return self._local / self._all > 1.0 + (margin / 2 if self._brakes else margin)


def _smoothed(before: float | None, now: float | None, keep: float) -> float | None:
    if before is None or now is None:
        return now
    return before * keep + now * (1.0 - keep)

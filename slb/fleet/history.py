"""The last hour of this process, a point every 5 s. Bounded: 720 points of five figures, some 60 KB."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from slb.control.slices import Slices
from slb.fleet.counts import Totals
from slb.fleet.frame_values import listed, name_of, number
from slb.fleet.kept_up import every
from slb.fleet.rates import Counts, per_second, quantile
from slb.observe.traffic import Traffic

STEP = 5.0
POINTS = 720
FIGURES = ("requests", "inflight", "p50", "p99", "errors")


class Point(NamedTuple):
    """Requests and errors per second, requests in flight, and seconds that half and nearly all took."""

    requests: float
    inflight: int
    p50: float | None
    p99: float | None
    errors: float


class History:
    """`run` takes a point every 5 s, whether anybody looks or not. That costs in proportion to the pairs of route
    and upstream that have had requests, some 0.5 us each, in slices: 0.01 % of a core with 1,000. `inflight`: of
    the whole process."""

    def __init__(
        self, traffic: Traffic, inflight: Callable[[], int], clock: Callable[[], float] = time.time
    ) -> None:
        self._traffic = traffic
        self._inflight = inflight
        self._clock = clock
        self._points: deque[Point] = deque(maxlen=POINTS)
        self._until = clock()
        self._counts: Counts = ()

    async def run(self) -> None:
        """Until cancelled."""
        await every(STEP, self.take)

    async def take(self) -> None:
        """Take a point now. The first one only notes where counts stand."""
        totals, slices = Totals(), Slices()
        for _ in totals.add_up(self._traffic):
            await slices.rest()
        now, total = self._clock(), totals.all
        counts = (total.requests, total.errors, *total.times)
        before, since = self._counts, self._until
        self._counts, self._until = counts, now
        if not before:
            return
        # A route that has left takes its times along, and a clock may be set back.
        requests, errors, *times = (max(0.0, after - each) for after, each in zip(counts, before, strict=True))
        seconds = now - since if now - since > STEP / 2 else STEP
        for _ in range(min(POINTS, int(seconds / STEP + 0.5)) - 1):  # this process stood still
            self._points.append(Point(0.0, 0, None, None, 0.0))
        p50, p99 = quantile(times, 0.5), quantile(times, 0.99)
        rate, error_rate = per_second(requests, seconds), per_second(errors, seconds)
        self._points.append(Point(rate, self._inflight(), p50, p99, error_rate))

    def shown(self, name: str) -> dict[str, Any]:
        columns = list(zip(*self._points, strict=True)) or [()] * len(FIGURES)
        return {"name": name, "until": round(self._until, 3), **dict(zip(FIGURES, map(list, columns), strict=True))}


def read_history(found: Any) -> dict[str, Any]:
    """What another process has sent of its last hour. Raises ValueError, TypeError and KeyError for what is
    none."""
    figures = {name: _figures(found[name]) for name in FIGURES}
    return {"name": name_of(found["name"], 300), "until": number(found["until"]), **figures}


def _figures(found: Any) -> Sequence[float | None]:
    return [None if each is None else number(each) for each in listed(found, POINTS)]


def history_answer(series: Mapping[str, Any]) -> dict[str, Any]:
    return {"step": int(STEP), "series": series}

"""Passive health: an upstream that keeps failing requests is ejected for a while, each time for longer.

Each instance and each library ejects for itself, by what its own requests met: an upstream one cannot reach may
serve the others well.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slb.balance.eligible import may_eject_one_more
from slb.balance.health_state import Event, State, hold_off, moved
from slb.balance.upstream import LiveUpstream
from slb.model import RouteSettings
from slb.observe.metrics import Metrics
from slb.routing.availability import Availability
from slb.routing.mirror import Mirror
from slb.routing.table import Route, Table

_LOOK_AGAIN = 1.0
"""Seconds between looks at upstreams on probation: their first success only shows in `failures`."""


@dataclass(slots=True)
class _Record:
    """An upstream that was ejected and has not served since. `ejections` in succession; out until `until`."""

    upstream: LiveUpstream
    state: State
    settings: RouteSettings
    ejections: int = 0
    until: float = 0.0


class Passive:
    """`failed` is called for each failed request; success is `upstream.failures = 0`, set by whoever sees it.

    Where several routes name an upstream, the strictest of them (the smallest `eject_after` that is not 0) says
    when and for how long. `wake` is called where `due` has become earlier. What is held against an upstream ends
    with it: at the very swap, since one of its name may come back with the next.
    """

    def __init__(
        self,
        mirror: Mirror,
        availability: Availability,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._mirror = mirror
        self._availability = availability
        self._metrics = metrics
        self._clock = clock
        self._wake = wake
        self._records: dict[str, _Record] = {}
        self._routes: dict[str, list[Route]] = {}
        self._routes_of: Table | None = None
        mirror.on_swap(self._forget)

    def failed(self, upstream: LiveUpstream, reason: str) -> None:
        """One request failed at `upstream`; `reason` is the name of what went wrong."""
        if not self._availability.knows(upstream):
            return
        record = self._records.get(upstream.member)
        if record is not None and record.state is State.PROBATION and not upstream.failures:
            self._move(record, Event.SERVED, "it served again")
            record = None
        upstream.failures += 1
        if record is not None and record.state is State.EJECTED:
            return
        routes = self._ejecting(upstream)
        if not routes:
            return
        strictest = min((each.settings for each in routes), key=lambda each: (each.eject_after, each.eject_time))
        if record is None and upstream.failures < strictest.eject_after:
            return
        if all(may_eject_one_more(route.upstreams, route.settings.max_ejected) for route in routes):
            self._eject(record or _Record(upstream, State.TRUSTED, strictest), strictest, reason)

    def due(self) -> float | None:
        """When `sweep` has something to do next; None while nobody is out or on probation."""
        now = self._clock()
        times = (
            each.until if each.state is State.EJECTED else now + _LOOK_AGAIN for each in self._records.values()
        )
        return min(times, default=None)

    def sweep(self) -> None:
        """Let those back whose hold-off is over, and trust those that have served since."""
        now = self._clock()
        for record in list(self._records.values()):
            if record.state is State.EJECTED and record.until <= now:
                self._let_back(record)
            elif record.state is State.PROBATION and not record.upstream.failures:
                self._move(record, Event.SERVED, "it served again")

    def _forget(self, gone: Sequence[str]) -> None:
        for member in gone:
            self._records.pop(member, None)

    def _ejecting(self, upstream: LiveUpstream) -> list[Route]:
        """The routes that name it and take part in ejection; looked up once for each table."""
        if self._routes_of is not self._mirror.table:
            self._routes_of, self._routes = self._mirror.table, {}
        found = self._routes.get(upstream.member)
        if found is None:
            named = self._mirror.routes_of((upstream.member,))
            found = self._routes[upstream.member] = [each for each in named if each.settings.eject_after]
        return found

    def _eject(self, record: _Record, settings: RouteSettings, reason: str) -> None:
        upstream = record.upstream
        record.settings = settings
        record.ejections += 1
        seconds = hold_off(record.ejections, settings.eject_time, settings.max_eject_time)
        record.until = self._clock() + seconds
        upstream.available = False
        self._records[upstream.member] = record
        self._metrics.ejections[upstream.member, reason] += 1
        self._move(record, Event.EJECT, f"{upstream.failures} failures in a row, {reason}; out for {seconds:g} s")
        self._wake()

    def _let_back(self, record: _Record) -> None:
        """One more failure ejects it again; one success, which sets `failures` to 0, clears it."""
        record.upstream.available = True
        record.upstream.failures = max(1, record.settings.eject_after - 1)
        self._move(record, Event.HOLD_OFF_OVER, "its hold-off is over")

    def _move(self, record: _Record, event: Event, why: str) -> None:
        before, record.state = record.state, moved(record.state, event)
        record.upstream.on_probation = record.state is State.PROBATION
        if record.state is State.TRUSTED:
            del self._records[record.upstream.member]
        self._availability.moved(record.upstream, before, record.state, why)
        if event is not Event.SERVED:
            self._availability.refresh((record.upstream.member,))

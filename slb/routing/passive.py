"""Passive health: an upstream that keeps failing requests is ejected for a while, each time for longer.

Each instance and each library ejects for itself, by the results of its own requests: an upstream that one of them
cannot reach may serve the others well. The exception is a refused connection. It means that no process listens at
the address, for any instance. So one attempt is enough: it is published, and the fleet ejects it for a short time.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slb.balance.eligible import may_eject_one_more
from slb.balance.health_state import State, hold_off, moved
from slb.balance.upstream import LiveUpstream
from slb.model import RouteSettings
from slb.observe.health import HealthCounts
from slb.routing.availability import Availability
from slb.routing.mirror import Mirror
from slb.routing.table import Route, Table

_LOOK_AGAIN = 1.0
"""Seconds between looks at upstreams on probation: their first success only shows in `failures`."""
_REFUSED_FOR = 1.0
"""Seconds an upstream that refuses is out the first time, or `eject_time` where that is less: a server that is
started again is back soon, and to try it costs each instance one attempt at most. Each time in succession it is
twice as long, as after failures."""
_REMOTE_AGAIN = 60.0
"""Seconds for which an instance that was served where others were refused uses only its own results: otherwise one
instance with a broken network path would eject the upstream for all others again and again."""


@dataclass(slots=True)
class _Record:
    """An upstream that was ejected and has not served since. `ejections` for failures and `refusals` in succession;
    out until `until`. `refused`: the last time for a refusal, `remote`: that of another instance's connection."""

    upstream: LiveUpstream
    state: State
    settings: RouteSettings
    ejections: int = 0
    refusals: int = 0
    refused: bool = False
    remote: bool = False
    until: float = 0.0


class Passive:
    """`failed` is called for each failed request; the code that sees a success sets `upstream.failures = 0`.
    `publish(member, refused)` sends the fleet that a member refuses connections, or (False) has served again.

    Where several routes name an upstream, the strictest of them (the smallest `eject_after` that is not 0) decides
    when and for how long. `wake` is called where `due` has become earlier. The record of an upstream ends with it:
    at the same swap, since one of its name may come back with the next.
    """

    def __init__(
        self,
        mirror: Mirror,
        availability: Availability,
        counts: HealthCounts,
        clock: Callable[[], float],
        wake: Callable[[], None],
        publish: Callable[[str, bool], None] = lambda member, refused: None,
    ) -> None:
        self._mirror = mirror
        self._availability = availability
        self._counts = counts
        self._clock = clock
        self._wake = wake
        self._publish = publish
        self._disproved: dict[str, float] = {}
        self._records: dict[str, _Record] = {}
        self._routes: dict[str, list[Route]] = {}
        self._routes_of: Table | None = None
        mirror.on_swap(self._forget)

    def failed(self, upstream: LiveUpstream, reason: str) -> None:
        """One request failed at `upstream`; `reason`: the error's name."""
        if not self._availability.is_current(upstream):
            return
        record = self._record_of(upstream)
        upstream.failures += 1
        if record is not None and record.state is State.EJECTED:
            return
        routes = self._ejecting(upstream)
        if not routes:
            return
        strictest = _strictest(routes)
        if record is None and upstream.failures < strictest.eject_after:
            return
        if _has_others(routes):
            record = record or _Record(upstream, State.TRUSTED, strictest)
            record.settings = strictest
            self._eject(record, reason)

    def refused(self, upstream: LiveUpstream) -> None:
        """`upstream` has refused a connection: one is enough, for the whole fleet."""
        if self._availability.is_current(upstream) and self._hold_back(upstream, remote=False):
            self._publish(upstream.member, True)

    def receive(self, member: str, refused: bool) -> None:
        """Another instance was refused a connection by `member`, or (False) was served by it again."""
        upstream, record = self._mirror.upstream(member), self._records.get(member)
        if upstream is None:
            return
        if not refused:
            self._let_back_early(record, "it served another instance")
        elif self._disproved.get(member, -math.inf) <= self._clock():
            self._hold_back(upstream, remote=True)

    def passed(self, upstream: LiveUpstream) -> None:
        """A check of `upstream` has passed."""
        if self._let_back_early(self._records.get(upstream.member), "a check passes"):
            self._publish(upstream.member, False)

    def due(self) -> float | None:
        """When `sweep` has work next; None while no upstream is ejected or on probation."""
        now = self._clock()
        times = (
            each.until if each.state is State.EJECTED else now + _LOOK_AGAIN for each in self._records.values()
        )
        return min(times, default=None)

    def sweep(self) -> None:
        """End the ejections whose time is over, and the probation of upstreams that have served since."""
        now = self._clock()
        for record in list(self._records.values()):
            if record.state is State.EJECTED and record.until <= now:
                self._let_back(record)
            elif record.state is State.PROBATION and not record.upstream.failures:
                self._move(record, State.TRUSTED, "it served again")

    def _forget(self, gone: Sequence[str]) -> None:
        for member in gone:
            self._records.pop(member, None)
            self._disproved.pop(member, None)

    def _record_of(self, upstream: LiveUpstream) -> _Record | None:
        """Its record, or None. That of an upstream that has served since is closed."""
        record = self._records.get(upstream.member)
        if record is None or record.state is not State.PROBATION or upstream.failures:
            return record
        self._move(record, State.TRUSTED, "it served again")
        return None

    def _ejecting(self, upstream: LiveUpstream) -> list[Route]:
        """The routes that name it and eject; cached for each table."""
        if self._routes_of is not self._mirror.table:
            self._routes_of, self._routes = self._mirror.table, {}
        found = self._routes.get(upstream.member)
        if found is None:
            named = self._mirror.routes_of((upstream.member,))
            found = self._routes[upstream.member] = [each for each in named if each.settings.eject_after]
        return found

    def _hold_back(self, upstream: LiveUpstream, remote: bool) -> bool:
        """Eject an upstream that refuses connections. False where it is ejected already, or may not be."""
        record, routes = self._record_of(upstream), self._ejecting(upstream)
        if (record is not None and record.state is State.EJECTED) or not routes or not _has_others(routes):
            return False
        strictest = _strictest(routes)
        record = record or _Record(upstream, State.TRUSTED, strictest)
        record.settings = strictest
        record.refusals += 1
        record.refused, record.remote = True, remote
        first = min(_REFUSED_FOR, strictest.eject_time)
        seconds = hold_off(record.refusals, first, strictest.max_eject_time)
        why = "another instance was refused a connection" if remote else "it refuses connections"
        self._take_out(record, seconds, why, "refused")
        return True

    def _eject(self, record: _Record, reason: str) -> None:
        record.ejections += 1
        record.refused = False
        seconds = hold_off(record.ejections, record.settings.eject_time, record.settings.max_eject_time)
        self._take_out(record, seconds, f"{record.upstream.failures} failures in a row, {reason}", reason)

    def _take_out(self, record: _Record, seconds: float, why: str, reason: str) -> None:
        upstream = record.upstream
        record.until = self._clock() + seconds
        upstream.available = False
        self._records[upstream.member] = record
        self._counts.ejections[upstream.member, reason] += 1
        self._move(record, State.EJECTED, f"{why}; out for {seconds:g} s")
        self._wake()

    def _let_back_early(self, record: _Record | None, why: str) -> bool:
        """End the ejection of an upstream that refused connections. False where there is none."""
        if record is None or record.state is not State.EJECTED or not record.refused:
            return False
        self._let_back(record, why)
        return True

    def _let_back(self, record: _Record, why: str = "its hold-off is over") -> None:
        """One more failure ejects it again; one success, which sets `failures` to 0, clears it."""
        record.upstream.available = True
        record.upstream.failures = max(1, record.settings.eject_after - 1)
        self._move(record, State.PROBATION, why)

    def _move(self, record: _Record, to: State, why: str) -> None:
        before, record.state = record.state, moved(record.state, to)
        record.upstream.on_probation = to is State.PROBATION
        if to is State.TRUSTED:
            self._trust(record)
        self._availability.moved(record.upstream, before, to, why)
        if to is not State.TRUSTED:
            self._availability.refresh((record.upstream.member,))

    def _trust(self, record: _Record) -> None:
        member = record.upstream.member
        del self._records[member]
        if record.refused:
            self._publish(member, False)
            if record.remote:
                self._disproved[member] = self._clock() + _REMOTE_AGAIN


def _has_others(routes: Sequence[Route]) -> bool:
    return all(may_eject_one_more(route.upstreams, route.settings.max_ejected) for route in routes)


def _strictest(routes: Sequence[Route]) -> RouteSettings:
    return min((each.settings for each in routes), key=lambda each: (each.eject_after, each.eject_time))

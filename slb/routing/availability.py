"""Applies results of checks and requests to routes, metrics and log."""

import time
from collections.abc import Callable, Iterable

import structlog

from slb.balance.health_state import State
from slb.balance.upstream import LiveUpstream
from slb.observe.changes import Note, unnoted
from slb.observe.health import HealthCounts
from slb.routing.mirror import Mirror
from slb.routing.table import Route

_log = structlog.get_logger("slb.health")


class Availability:
    """One for each process. `note` is called with what this process finds for itself; `wall`: seconds since
    1970."""

    def __init__(
        self,
        mirror: Mirror,
        counts: HealthCounts,
        note: Note = unnoted,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._mirror = mirror
        self._note = note
        self._wall = wall
        self._counts = counts
        counts.upstreams_up = self._upstreams_up
        counts.sick_since = self._sick_since

    def _upstreams_up(self) -> Iterable[tuple[str, bool]]:
        """Only upstreams with a check, an ejection, or that are not up: there may be 100,000."""
        judged = {member for member, _ in self._counts.ejections}
        for route in self._mirror.table.routes.values():
            if route.settings.health_check is not None:
                judged.update(live.member for live in route.upstreams)
        for live in self._mirror.upstreams.values():
            up = live.available and not live.down
            if not up or live.member in judged:
                yield live.member, up

    def _sick_since(self) -> Iterable[tuple[str, float]]:
        """One on probation is not well yet."""
        for live in self._mirror.upstreams.values():
            if live.down or not live.available or live.on_probation:
                yield live.member, live.since
            elif live.spared:
                yield live.member, live.spared_since

    def is_current(self, upstream: LiveUpstream) -> bool:
        """Whether a route still names this object: a member that was removed and added again is a new one."""
        return self._mirror.upstream(upstream.member) is upstream

    def moved(self, upstream: LiveUpstream, before: State, after: State, why: str, quiet: bool = False) -> None:
        """Called once `upstream` has its new state. `quiet`: one of so many moves that they are told as a
        number."""
        if after in (State.DOWN, State.EJECTED):
            upstream.why, log = why, _log.warning
            others = len(upstream.down) + (upstream.on_probation or not upstream.available) - 1
            if not others and before is not State.PROBATION:  # else it goes on
                upstream.since = self._wall()
        else:  # an upstream whose first result is "up" is the normal case
            log = _log.debug if before is State.UNKNOWN else _log.info
        if after is State.EJECTED:
            self._note("ejected", upstream.member, why)
        elif after is State.PROBATION:
            self._note("let_back", upstream.member, why)
        elif after is State.TRUSTED:
            self._note("recovered", upstream.member, why)
        if quiet:
            log = _log.debug
        log("upstream_health", upstream=upstream.member, was=before.value, now=after.value, why=why)

    def spare(self, upstream: LiveUpstream, why: str) -> None:
        """It would be ejected, were `max_ejected` not reached."""
        if not upstream.spared:
            upstream.spared_since = self._wall()
        if not (upstream.stuck and upstream.spared):
            upstream.spared = why
        upstream.failures = max(1, upstream.failures)  # so that its next answer is looked at

    def holds_for_stuck(self, upstream: LiveUpstream, is_stuck: bool) -> None:
        """Show whether `upstream` owes an answer for too long, ejected for it or not."""
        upstream.stuck = is_stuck
        self._counts.stuck[upstream.member] = int(is_stuck)

    def stuck(self, upstream: LiveUpstream, silent: float, why: str) -> None:
        """Show, note and log, once, that `upstream` has owed an answer for so many seconds, and is not ejected."""
        if upstream.stuck and upstream.spared:
            return
        if not upstream.spared:
            upstream.spared_since = self._wall() - silent
        upstream.spared = why
        self.holds_for_stuck(upstream, True)
        self._note("stuck", upstream.member, why)
        _log.warning("upstream_stuck", upstream=upstream.member, why=why)

    def stuck_no_more(self, upstream: LiveUpstream, why: str) -> None:
        """The end of `stuck`."""
        upstream.spared = ""  # nothing else takes the place of that reason meanwhile
        self._note("stuck_ended", upstream.member, why)
        _log.info("upstream_stuck_no_more", upstream=upstream.member, why=why)

    def refresh(self, members: Iterable[str]) -> None:
        """Refresh the routes of these members."""
        for route in self._mirror.refresh(frozenset(members)):
            self.note_panic(route)

    def note_panic(self, route: Route) -> None:
        """Count and log a panic that begins or ends."""
        panicking = self._counts.panicking
        if route.panic == (route.path in panicking):
            return
        upstreams = len(route.upstreams)
        if route.panic:
            panicking.add(route.path)
            self._counts.panics[route.path] += 1
            self._note("panic_began", route.path, f"all of its {upstreams} upstreams are used")
            _log.warning("panic_begins", route=route.path, upstreams=upstreams, serving="all")
        else:
            panicking.discard(route.path)
            self._note("panic_ended", route.path, f"{len(route.serving)} of {upstreams} upstreams are available")
            _log.info("panic_ends", route=route.path, upstreams=upstreams, serving=len(route.serving))

    def isolated(self, route: Route, is_isolated: bool) -> None:
        """Count, note and log that this instance alone fails with a route, or no more."""
        before = self._counts.isolated.get(route.path, False)
        self._counts.isolated[route.path] = is_isolated
        if is_isolated and not before:
            self._note("isolated", route.path, f"all {len(route.upstreams)} upstreams fail here, and not elsewhere")
            _log.warning("isolation_begins", route=route.path, upstreams=len(route.upstreams))
        elif before and not is_isolated:
            self._note("isolation_ended", route.path, "upstreams answer again")
            _log.info("isolation_ends", route=route.path)

    def forget_route(self, path: str) -> None:
        self._counts.panicking.discard(path)

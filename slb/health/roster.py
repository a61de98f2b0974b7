"""Which upstreams are to be checked, and how: what the routes ask for, kept up as the table changes."""

import math
from collections.abc import Callable

from slb.balance.health_state import Tally
from slb.balance.upstream import LiveUpstream
from slb.control.keys import health_key
from slb.control.slices import Slices
from slb.health.flapping import Turns
from slb.model import HealthCheck
from slb.routing.availability import Availability
from slb.routing.table import Route, Table


class Watched:
    """One check of one upstream, for as long as `uses` routes ask for it. `checking`: it is being made here;
    `reporting`: its result is on the way to Redis; `heard`: a result has come since this instance last asked for
    one, which is newer than what the answer says.

    `suspected`: so many failures in a row, all of checks that were made on this host; `left`: another host had the
    time to make the next one. `failed_here`: how many checks made by this instance have failed since one passed;
    `disputed_at`: when it was last told that those of others pass."""

    __slots__ = (
        "check",
        "checking",
        "disputed_at",
        "failed_here",
        "heard",
        "key",
        "left",
        "reporting",
        "suspected",
        "tally",
        "turns",
        "upstream",
        "uses",
    )

    def __init__(self, upstream: LiveUpstream, check: HealthCheck) -> None:
        self.upstream = upstream
        self.check = check
        self.key = health_key(upstream.member, check)
        self.tally = Tally()
        self.turns = Turns()
        self.uses = 0
        self.checking = False
        self.heard = False
        self.reporting = False
        self.suspected = 0
        self.left = False
        self.failed_here = 0
        self.disputed_at = -math.inf


class Roster:
    """Routes with equal checks share one; `added` is called with each new one."""

    def __init__(self, availability: Availability, added: Callable[[Watched], None]) -> None:
        self._availability = availability
        self._added = added
        self._watched: dict[tuple[LiveUpstream, HealthCheck], Watched] = {}
        self._by_key: dict[str, Watched] = {}
        self._routes: dict[str, Route] = {}
        self._table: Table | None = None

    def named(self, key: str) -> Watched | None:
        return self._by_key.get(key)

    async def follow(self, table: Table) -> None:
        """Apply what has changed since the last table."""
        if table is self._table:
            return
        self._table = table
        slices = Slices()
        for path, route in table.routes.items():
            if self._routes.get(path) is not route:
                self._change(path, route)
            await slices.rest()
        for path in self._routes.keys() - table.routes.keys():
            self._change(path, None)
            await slices.rest()

    def _change(self, path: str, route: Route | None) -> None:
        """The new route before the old: a check of both goes on without a break."""
        old = self._routes.pop(path, None)
        if route is not None:
            self._routes[path] = route
            self._use(route)
            self._availability.note_panic(route)
        else:
            self._availability.forget_route(path)
        if old is not None:
            self._release(old)

    def _use(self, route: Route) -> None:
        for use in _uses(route):
            watched = self._watched.get(use)
            if watched is None:
                watched = self._watched[use] = Watched(*use)
                self._by_key[watched.key] = watched
                self._added(watched)
            watched.uses += 1

    def _release(self, route: Route) -> None:
        for use in _uses(route):
            watched = self._watched[use]
            watched.uses -= 1
            if watched.uses:
                continue
            watched.upstream.down -= {watched.check}  # what no route asks for counts no more
            watched.upstream.passing -= {watched.check}
            del self._watched[use]
            if self._by_key.get(watched.key) is watched:
                del self._by_key[watched.key]


def _uses(route: Route) -> list[tuple[LiveUpstream, HealthCheck]]:
    check = route.settings.health_check
    return [(upstream, check) for upstream in route.upstreams] if check is not None else []

"""The current table: what was read from Redis, made into routes, without losing what is counted of an upstream."""

import time
from collections import ChainMap
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from random import Random
from typing import cast

from slb.balance.policy import Means
from slb.balance.upstream import ALWAYS, LiveUpstream
from slb.model import RouteRecord
from slb.routing.effective_settings import EffectiveSettings, Judged
from slb.routing.live_upstreams import SLICE, Attributes, LiveUpstreams, UpstreamsDraft
from slb.routing.route_maker import RouteMaker, SettingsFor
from slb.routing.table import Route, Table
from slb.routing.uses import Settled, Shift, Uses, note_changes


class Mirror:
    """This process's copy of the routes. All changes come from one task, one after another.

    `ready` is False until the first table is in (answers 503 `not_ready`). `on_swap` callbacks are called after
    each swap with the members that no route names any more. `clock`, in seconds, gives since when an upstream has
    been there: those of the first table always were. `wall`: seconds since 1970. `effective`: which of the
    settings written for a route hold. `shown_to`: the number of the last change in Redis that is shown, with all
    before it.
    """

    def __init__(
        self,
        settings_for: SettingsFor,
        rng: Random,
        clock: Callable[[], float] = time.monotonic,
        zone: str = "",
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._wall = wall
        self.table = Table.of({})
        self.ready = False
        self.records: dict[str, RouteRecord] = {}
        self.effective = EffectiveSettings(self._known_since)
        self._maker = RouteMaker(settings_for, self.effective, Means(rng, clock, zone), self._known_since)
        self._upstreams = LiveUpstreams()
        self._uses = Uses()
        self.shown_to = 0
        self._refreshed: set[str] = set()
        self._refreshed_meanwhile: set[str] = set()
        self._listeners: list[Callable[[Sequence[str]], None]] = []
        self._refresh_listeners: list[Callable[[], None]] = []

    def on_swap(self, listener: Callable[[Sequence[str]], None]) -> None:
        """Call `listener(members gone)` after every swap, in the order of subscription."""
        self._listeners.append(listener)

    def on_refresh(self, listener: Callable[[], None]) -> None:
        """Call `listener()` after every change of which upstreams are available, of the same table."""
        self._refresh_listeners.append(listener)

    def upstream(self, member: str) -> LiveUpstream | None:
        return self._upstreams.live.get(member)

    @property
    def upstreams(self) -> Mapping[str, LiveUpstream]:
        """member -> live upstream, for every member some route names."""
        return self._upstreams.live

    @property
    def attributes(self) -> Mapping[str, Mapping[str, str]]:
        """member -> its hash in Redis, of the members that have one."""
        return self._upstreams.attributes

    @property
    def faults(self) -> Mapping[str, list[str]]:
        return self.effective.faults

    def uses(self, member: str, besides: Collection[str] = ()) -> int:
        """How many routes name `member`; those with a path in `besides` (each once) are left out."""
        left_out = sum(path in self.records and member in self.records[path].members for path in besides)
        return self._uses.of(member) - left_out

    def routes_of(self, members: Collection[str]) -> list[Route]:
        """The routes that name any of `members`. Looks at every route."""
        wanted, routes = frozenset(members), self.table.routes
        return [routes[path] for path, record in self.records.items() if not wanted.isdisjoint(record.members)]

    def refresh(self, members: Collection[str]) -> list[Route]:
        """Apply the availability of `members` to the routes that name them; returns these."""
        self._refreshed.update(members)
        self._refreshed_meanwhile.update(members)
        found = self.routes_of(members)
        for route in found:
            route.refresh()
        for listener in self._refresh_listeners:
            listener()
        return found

    def replace(self, records: Mapping[str, RouteRecord], attributes: Attributes) -> Iterator[None]:
        """Make the table of a full sync: `updating`, where routes and attributes that are not given are removed."""
        gone = dict.fromkeys(self.records.keys() - records.keys())
        bare: Attributes = {member: {} for member in self.attributes.keys() - attributes.keys()}
        return self.updating({**records, **gone}, {**attributes, **bare} if bare else attributes)

    def reconfigure(self, settings_for: SettingsFor) -> Iterator[None]:
        """Let every route follow other settings of the process. Yields between slices; one swap, at the end. What
        else changes meanwhile is made by the new ones already."""
        self._maker.settings_for = settings_for
        self._refreshed_meanwhile.clear()
        made: dict[str, tuple[Route, Route]] = {}
        for count, (path, route) in enumerate(list(self.table.routes.items()), 1):
            made[path] = route, self._following(route)
            if count % SLICE == 0:
                yield
        routes: dict[str, Route] = {}
        for path, route in self.table.routes.items():
            before, after = made.get(path, (None, route))
            routes[path] = after if before is route else self._following(route)
        if self.ready:
            self._swap(Table.of(routes), ())
            self.refresh(frozenset(self._refreshed_meanwhile))

    def _following(self, route: Route) -> Route:
        record = self.records.get(route.path)
        return self._maker.remake(route, record) if record is not None else route  # else it has left meanwhile

    def update(self, changes: Mapping[str, RouteRecord | None], attributes: Attributes) -> None:
        """`updating`, all at once."""
        for _ in self.updating(changes, attributes):
            pass

    def updating(self, changes: Mapping[str, RouteRecord | None], attributes: Attributes) -> Iterator[None]:
        """Change some routes (None removes one) and the attributes of some members ({} removes them); one swap.
        Yields between slices; nothing is seen until the last one is done."""
        changed = yield from self._upstreams.changed(attributes)
        touched = dict(changes)
        for path, record in self.records.items() if changed else ():
            if path not in touched and not changed.isdisjoint(record.members):
                touched[path] = record
        after = ChainMap(cast("dict[str, Mapping[str, str]]", attributes), self._upstreams.attributes)
        draft, judged = UpstreamsDraft(self._upstreams.live, after, changed, self._now()), Judged()
        settings_for = self._maker.settings_for
        self._refreshed.clear()
        routes: dict[str, Route | None] = {}
        done = 0
        for path, new in touched.items():
            if new is None:
                routes[path] = None
            elif self.records.get(path) != new or not draft.changed.isdisjoint(new.members):
                routes[path] = yield from self._route(path, new, draft, judged)
            done += 1 + len(new.members if new is not None else ())
            if done >= SLICE:
                done = 0
                yield
        shift: Shift = {}
        yield from note_changes(self.records, touched, shift)
        uses = yield from self._uses.add(shift)
        specs = yield from draft.specs()
        self._upstreams.store(changed, attributes)
        self._keep(touched)
        self._upstreams.adopt(draft, specs)
        self.effective.adopt(judged)
        yield from self._swapped(self.table.changed(routes), uses, settings_for)

    def _keep(self, records: Mapping[str, RouteRecord | None]) -> None:
        for path, record in records.items():
            if record is None:
                self.records.pop(path, None)
                self.effective.forget(path)
            else:
                self.records[path] = record

    def _route(
        self, path: str, record: RouteRecord, draft: UpstreamsDraft, judged: Judged
    ) -> Generator[None, None, Route]:
        old, old_record = lambda: self.table.routes.get(path), self.records.get(path)
        return (yield from self._maker.make(path, record, old, old_record, draft, judged))

    def _now(self) -> float:
        return self._clock() if self.ready else ALWAYS

    def _known_since(self) -> float:
        """0.0 of what the first table has: that began before this process knew it."""
        return self._wall() if self.ready else 0.0

    def _swapped(self, table: Table, uses: Settled, made_by: SettingsFor) -> Iterator[None]:
        """Swap in a table that was made in slices. Yields where the settings have changed meanwhile."""
        moved = frozenset(self._refreshed)
        self._swap(table, self._uses.settle(uses))
        if moved:  # while this table was made; what was made before lacks it
            self.refresh(moved)
        if self._maker.settings_for is not made_by:
            yield from self.reconfigure(self._maker.settings_for)

    def _swap(self, table: Table, gone: Sequence[str]) -> None:
        self._upstreams.drop(gone)
        self.table = table
        self.ready = True
        for listener in self._listeners:
            listener(gone)

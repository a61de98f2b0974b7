"""Keeps the current table: what Redis said, made into routes, without losing what is counted of an upstream."""

import heapq
import time
from collections import ChainMap
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import Any

from slb.balance.eligible import takes_requests
from slb.balance.policy import POLICIES, Means, Policy
from slb.balance.upstream import ALWAYS, LiveUpstream
from slb.model import RouteRecord, RouteSettings, Upstream
from slb.routing.effective_settings import EffectiveSettings, Judged
from slb.routing.table import Route, Table
from slb.routing.uses import Settled, Shift, Uses, note_changes

Attributes = Mapping[str, Mapping[str, str]]
"""member -> its hash in Redis; members without one are absent."""

SettingsFor = Callable[[str, Mapping[str, str]], RouteSettings]
"""What holds for a path, given the valid fields of its hash."""

_SLICE = 50
"""Members made into upstreams between two yields of `replace`: well under 5 ms of work."""

_CHEAP_SLICE = 1000
"""Members only looked up between two yields."""


@dataclass
class _Draft:
    """What the next swap brings, none of it seen yet. changed: members whose attributes are others now; fresh:
    those without a live upstream so far, seen at `now`; judged: the settings of each route made anew."""

    attributes: Attributes
    now: float
    changed: set[str] = field(default_factory=set)
    fresh: dict[str, LiveUpstream] = field(default_factory=dict)
    judged: Judged = field(default_factory=dict)


class Mirror:
    """The routes as this process knows them. All changes come from one task, one after another.

    `ready` is False until the first table is in (answers 503 `not_ready`). `on_swap` callbacks are called after
    each swap with the members that no route names any more. `clock`, in seconds, tells since when an upstream has
    been there: those of the first table always were.
    """

    def __init__(
        self,
        settings_for: SettingsFor,
        rng: Random,
        clock: Callable[[], float] = time.monotonic,
        zone: str = "",
    ) -> None:
        self._settings_for = settings_for
        self._means = Means(rng, clock, zone)
        self._clock = clock
        self.table = Table.of({})
        self.ready = False
        self.records: dict[str, RouteRecord] = {}
        self.attributes: dict[str, Mapping[str, str]] = {}
        self._effective = EffectiveSettings()
        self._live: dict[str, LiveUpstream] = {}
        self._uses = Uses()
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
        """The live upstream of a member some route names."""
        return self._live.get(member)

    @property
    def upstreams(self) -> Mapping[str, LiveUpstream]:
        """member -> live upstream, for every member some route names."""
        return self._live

    @property
    def faults(self) -> Mapping[str, list[str]]:
        """Of each route with settings at fault, one sentence for each."""
        return self._effective.faults

    def effective_fields(self, path: str, record: RouteRecord) -> tuple[dict[str, Any], list[str]]:
        """Of the route's hash in `record`: the fields that hold, and one sentence for each at fault. In its place
        stands what it was before, where this process has seen that."""
        return self._effective.fields(path, record)

    def uses(self, member: str, besides: Collection[str] = ()) -> int:
        """How many routes name `member`; those with a path in `besides` (each once) are left out."""
        left_out = sum(path in self.records and member in self.records[path].members for path in besides)
        return self._uses.of(member) - left_out

    def routes_of(self, members: Collection[str]) -> list[Route]:
        """The routes that name any of `members`. Looks at every route: for what happens rarely."""
        wanted, routes = frozenset(members), self.table.routes
        return [routes[path] for path, record in self.records.items() if not wanted.isdisjoint(record.members)]

    def refresh(self, members: Collection[str]) -> list[Route]:
        """Let the routes that name any of `members` follow their availability; these routes."""
        self._refreshed.update(members)
        self._refreshed_meanwhile.update(members)
        found = self.routes_of(members)
        for route in found:
            route.refresh()
        for listener in self._refresh_listeners:
            listener()
        return found

    def replace(self, records: Mapping[str, RouteRecord], attributes: Attributes) -> Iterator[None]:
        """Make the table of a full sync. Yields between slices; nothing is seen until the last one is done."""
        routes: dict[str, Route] = {}
        depth = 0
        draft = _Draft(attributes, self._now())
        settings_for = self._settings_for
        self._refreshed.clear()
        yield from self._find_changed(attributes, draft.changed)
        done = 0
        for path, record in records.items():
            routes[path] = self._unchanged(path, record, draft) or (yield from self._route(path, record, draft))
            depth = max(depth, path.count("/"))
            done += 1 + len(record.members)
            if done >= _SLICE:
                done = 0
                yield
        shift: Shift = {}
        yield from note_changes(self.records, records, shift)
        uses = yield from self._uses.add(shift)
        specs = yield from self._specs(draft)
        yield
        self._adopt(draft, specs)
        self._effective.keep(records)
        self.records, self.attributes = dict(records), dict(attributes)
        self._swapped(Table(routes, depth), uses)
        if self._settings_for is not settings_for:
            yield from self.reconfigure(self._settings_for)

    def reconfigure(self, settings_for: SettingsFor) -> Iterator[None]:
        """Let every route follow other settings of the process. Yields between slices; one swap, at the end. What
        else changes meanwhile is made by the new ones already."""
        self._settings_for = settings_for
        self._refreshed_meanwhile.clear()
        made: dict[str, tuple[Route, Route]] = {}
        for count, (path, route) in enumerate(list(self.table.routes.items()), 1):
            made[path] = route, self._following(route)
            if count % _SLICE == 0:
                yield
        routes: dict[str, Route] = {}
        for path, route in self.table.routes.items():
            before, after = made.get(path, (None, route))
            routes[path] = after if before is route else self._following(route)
        if self.ready:
            self._swap(Table.of(routes), ())
            self.refresh(frozenset(self._refreshed_meanwhile))

    def _following(self, route: Route) -> Route:
        """The route with the settings it has now; itself where they are the same."""
        record = self.records.get(route.path)
        if record is None:  # it has left while others were made
            return route
        fields, _ = self._effective.fields(route.path, record)
        settings = self._settings_for(route.path, fields)
        if settings == route.settings:
            return route
        return Route(route.path, settings, route.members, route.upstreams, self._policy(settings, route))

    def update(self, changes: Mapping[str, RouteRecord | None], attributes: Attributes) -> None:
        """`updating`, all at once."""
        for _ in self.updating(changes, attributes):
            pass

    def updating(self, changes: Mapping[str, RouteRecord | None], attributes: Attributes) -> Iterator[None]:
        """Change some routes (None removes one) and the attributes of some members ({} removes them); one swap.
        Yields between slices; nothing is seen until the last one is done."""
        changed = {member for member in attributes if self.attributes.get(member, {}) != attributes[member]}
        touched = dict(changes)
        for path, record in self.records.items() if changed else ():
            if path not in touched and not changed.isdisjoint(record.members):
                touched[path] = record
        draft = _Draft(
            ChainMap({each: attributes[each] for each in changed}, self.attributes), self._now(), changed
        )
        settings_for = self._settings_for
        self._refreshed.clear()
        routes: dict[str, Route | None] = {}
        for path, new in touched.items():
            routes[path] = None if new is None else (yield from self._route(path, new, draft))
        shift: Shift = {}
        yield from note_changes(self.records, touched, shift, is_part=True)
        uses = yield from self._uses.add(shift)
        specs = yield from self._specs(draft)
        self._store(changed, attributes)
        self._keep(touched)
        self._adopt(draft, specs)
        self._swapped(self.table.changed(routes), uses)
        if self._settings_for is not settings_for:
            yield from self.reconfigure(self._settings_for)

    def _keep(self, records: Mapping[str, RouteRecord | None]) -> None:
        for path, record in records.items():
            if record is None:
                self.records.pop(path, None)
                self._effective.forget(path)
            else:
                self.records[path] = record

    def _store(self, changed: set[str], attributes: Attributes) -> None:
        for member in changed:
            if attributes[member]:
                self.attributes[member] = attributes[member]
            else:
                del self.attributes[member]

    def _find_changed(self, attributes: Attributes, changed: set[str]) -> Iterator[None]:
        """Add to `changed` the members whose attributes are not what they were."""
        for count, (member, each) in enumerate(attributes.items(), 1):
            before = self.attributes.get(member)
            if before is not each and before != each:
                changed.add(member)
            if count % _CHEAP_SLICE == 0:
                yield
        for count, member in enumerate(list(self.attributes), 1):
            if member not in attributes:
                changed.add(member)
            if count % _CHEAP_SLICE == 0:
                yield

    def _unchanged(self, path: str, record: RouteRecord, draft: _Draft) -> Route | None:
        """The route as it is, where it stays so."""
        old = self.table.routes.get(path)
        same = old is not None and self.records.get(path) == record and draft.changed.isdisjoint(record.members)
        return old if same else None

    def _route(self, path: str, record: RouteRecord, draft: _Draft) -> Generator[None, None, Route]:
        """The route that `record` makes. Yields between slices of its members."""
        members: list[LiveUpstream] = []
        serving: list[LiveUpstream] = []
        for count, member in enumerate((yield from _in_order(record.members)), 1):
            live = self._live_for(member, draft)
            members.append(live)
            if self._serves(live, draft):
                serving.append(live)
            if count % _SLICE == 0:
                yield
        old = self.table.routes.get(path)
        fields = self._effective.judge(path, record, self.records.get(path), draft.judged)
        settings = self._settings_for(path, fields)
        return Route(path, settings, tuple(members), tuple(serving), self._policy(settings, old))

    def _specs(self, draft: _Draft) -> Generator[None, None, dict[str, Upstream]]:
        """What those say from now on whose attributes have changed."""
        specs: dict[str, Upstream] = {}
        for count, member in enumerate(draft.changed & self._live.keys(), 1):
            specs[member] = Upstream.of(member, draft.attributes.get(member))
            if count % _SLICE == 0:
                yield
        return specs

    def _serves(self, live: LiveUpstream, draft: _Draft) -> bool:
        """By what is to hold after the swap: until then `spec` is what it was, except of a fresh one."""
        if live.member in draft.changed and live.member not in draft.fresh:
            return takes_requests(live.member, draft.attributes)
        return not live.spec.drain

    def _policy(self, settings: RouteSettings, old: Route | None) -> Policy:
        """The old policy object goes on where the policy is the same, and with it the place in its round."""
        if old is not None and old.settings.policy == settings.policy:
            return old.policy
        return POLICIES[settings.policy](self._means)

    def _live_for(self, member: str, draft: _Draft) -> LiveUpstream:
        live = self._live.get(member) or draft.fresh.get(member)
        if live is None:
            live = draft.fresh[member] = LiveUpstream(Upstream.of(member, draft.attributes.get(member)), draft.now)
        return live

    def _now(self) -> float:
        return self._clock() if self.ready else ALWAYS

    def _adopt(self, draft: _Draft, specs: Mapping[str, Upstream]) -> None:
        if self._live:
            self._live.update(draft.fresh)
        else:
            self._live = draft.fresh  # the first table: all of a hundred thousand at once
        self._effective.adopt(draft.judged)
        for member, spec in specs.items():
            self._live[member].spec = spec

    def _swapped(self, table: Table, uses: Settled) -> None:
        """Swap a table in that was made in slices."""
        moved = frozenset(self._refreshed)
        self._swap(table, self._uses.settle(uses))
        if moved:  # while this table was made; what was made before that does not know
            self.refresh(moved)

    def _swap(self, table: Table, gone: Sequence[str]) -> None:
        for member in gone:
            self._live.pop(member, None)
        self.table = table
        self.ready = True
        for listener in self._listeners:
            listener(gone)


def _in_order(members: Collection[str]) -> Generator[None, None, Iterable[str]]:
    """Sorted, of many a slice at a time."""
    if len(members) <= _CHEAP_SLICE:
        return sorted(members)
    rest = iter(members)
    runs: list[list[str]] = []
    while run := sorted(islice(rest, _CHEAP_SLICE)):
        runs.append(run)
        yield
    return heapq.merge(*runs)

"""One path's record made into its route."""

import heapq
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from itertools import islice

from slb.balance.policy import POLICIES, Means, Policy
from slb.balance.upstream import LiveUpstream
from slb.dns_names import is_dns_name
from slb.model import RouteRecord, RouteSettings
from slb.routing.effective_settings import EffectiveSettings, Judged
from slb.routing.live_upstreams import CHEAP_SLICE, SLICE, UpstreamsDraft
from slb.routing.table import Route

SettingsFor = Callable[[str, Mapping[str, str]], RouteSettings]
"""What holds for a path, given the valid fields of its hash."""


class RouteMaker:
    """`settings_for` may be replaced at any time: it holds for the routes that are made from then on. `now`: in
    seconds since 1970, 0.0 while the first routes are made."""

    def __init__(
        self, settings_for: SettingsFor, effective: EffectiveSettings, means: Means, now: Callable[[], float]
    ) -> None:
        self.settings_for = settings_for
        self._effective = effective
        self._means = means
        self._now = now

    def make(
        self,
        path: str,
        record: RouteRecord,
        old: Callable[[], Route | None],
        old_record: RouteRecord | None,
        upstreams: UpstreamsDraft,
        judged: Judged,
    ) -> Generator[None, None, Route]:
        """The route that `record` makes, where `old_record` made the one there is so far: `old` is called
        behind the last slice, since new settings may replace that one meanwhile. What is judged of its settings is
        noted in `judged`. Yields between slices of its members."""
        members: list[LiveUpstream] = []
        serving: list[LiveUpstream] = []
        names: list[str] = []
        for count, member in enumerate((yield from _in_order(record.members)), 1):
            if is_dns_name(member):
                names.append(member)
                continue
            live = upstreams.of(member)
            members.append(live)
            if upstreams.takes_requests(live):
                serving.append(live)
            if count % SLICE == 0:
                yield
        settings = self.settings_for(path, self._effective.judge(path, record, old_record, judged))
        if unused := settings.unused:
            faults, standing = judged[path]
            judged[path] = [*faults, *unused], standing
        before = old()
        since = None if members else self._now() if before is None or before.members else before.empty_since
        policy = self._policy(settings, before)
        route = Route(path, settings, tuple(members), tuple(serving), policy, tuple(names), since)
        return route if before is None else route.in_place_of(before)

    def remake(self, route: Route, record: RouteRecord) -> Route:
        """The route with the settings it has now; itself where they are the same."""
        fields, faults = self._effective.fields(route.path, record)
        settings = self.settings_for(route.path, fields)
        self._effective.told(route.path, [*faults, *settings.unused])
        if settings == route.settings:
            return route
        policy = self._policy(settings, route)
        members, upstreams, names, since = route.members, route.upstreams, route.names, route.empty_since
        return Route(route.path, settings, members, upstreams, policy, names, since).in_place_of(route)

    def _policy(self, settings: RouteSettings, old: Route | None) -> Policy:
        """The old policy object, with its place in the round, where the policy is the same."""
        if old is not None and old.settings.policy == settings.policy:
            return old.policy
        return POLICIES[settings.policy](self._means)


def _in_order(members: Collection[str]) -> Generator[None, None, Iterable[str]]:
    """Sorted, of many a slice at a time."""
    if len(members) <= CHEAP_SLICE:
        return sorted(members)
    rest = iter(members)
    runs: list[list[str]] = []
    while run := sorted(islice(rest, CHEAP_SLICE)):
        runs.append(run)
        yield
    return heapq.merge(*runs)

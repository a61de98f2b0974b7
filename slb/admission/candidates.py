"""What a request asks for: the upstreams of its route that may take it, in the policy's order where it has one."""

from collections.abc import Container, Mapping, Sequence
from operator import attrgetter
from random import Random
from typing import NamedTuple

from slb.balance.asking import Candidate
from slb.balance.order import second_choices
from slb.balance.upstream import LiveUpstream
from slb.balance.view import RouteView
from slb.routing.table import Route

_member = attrgetter("member")


class _Known(NamedTuple):
    view: RouteView
    candidates: tuple[Candidate, ...]
    by_member: Mapping[str, Candidate]


class RouteCandidates:
    """The candidates of each route that has asked in one pool. A route's tuple stays the same object until its
    candidates change: compare it by `is`."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._known: dict[str, _Known] = {}

    def of(self, route: Route) -> tuple[Candidate, ...]:
        known = self._known.get(route.path)
        if known is not None and known.view is route.view:
            return known.candidates
        cap = route.settings.max_inflight
        made = tuple(Candidate(each.member, cap * each.spec.slots, each.spec.slots) for each in route.serving)
        if known is not None and made == known.candidates:
            made = known.candidates
        self._known[route.path] = _Known(route.view, made, {each.member: each for each in made})
        return made

    def has(self, route: Route, member: str) -> bool:
        """Whether a member is one of a route's."""
        self.of(route)
        return member in self._known[route.path].by_member

    def ordered(
        self,
        route: Route,
        avoided: tuple[LiveUpstream, ...],
        last: tuple[LiveUpstream, ...],
        key: bytes,
        probed: tuple[LiveUpstream, ...] = (),
    ) -> tuple[Candidate, ...]:
        """The candidates of a route, after `of`, in the policy's order, with `last` behind the others, and at the
        end those that are `probed`. At a further attempt (`avoided` is not empty) the policy is used only with a
        key: a retry would take the next request's turn."""
        last = (*last, *probed) if probed else last
        first: Sequence[LiveUpstream]
        if last and len(last) == len(route.serving):
            first = ()
        elif avoided and not key:
            first = second_choices(route.view.left(last), self._rng)
        else:
            first = route.policy.order(route.view, key, last or None)
        return tuple(map(self._known[route.path].by_member.__getitem__, map(_member, (*first, *last))))

    def serving(self, pool: str, routes: Mapping[str, Route]) -> set[str]:
        """The members that serve in any route of this pool that has asked."""
        asked = [routes[path] for path in self._known if path in routes]
        ours = [each for each in asked if each.is_counted and (each.settings.pool or each.path) == pool]
        return {upstream.member for route in ours for upstream in route.serving}

    def keep(self, paths: Container[str]) -> None:
        for path in [path for path in self._known if path not in paths]:
            del self._known[path]


def renewed(asked: tuple[Candidate, ...], now: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """The candidates `now`, in the order of `asked`; new ones last."""
    left = {each.member: each for each in now}
    known = [left.pop(each.member) for each in asked if each.member in left]
    return (*known, *left.values())

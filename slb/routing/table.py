"""Which route a path takes: an immutable table, longest prefix by segment, swapped whole."""

from collections.abc import Mapping
from types import MappingProxyType

from slb.balance.eligible import served
from slb.balance.pace import STUCK_LEAST, Pace
from slb.balance.policy import Policy
from slb.balance.upstream import LiveUpstream
from slb.balance.view import RouteView
from slb.model import RouteSettings

_UNKNOWN = Pace()
"""Of a route without answers so far: the next one is looked at."""


class Route:
    """One path with all its members, those of them that take requests (`upstreams`, by member), and the policy
    that picks. `view`: what it picks from now. `is_counted`: the route's requests need a slot, which the whole
    fleet counts. `names`: those in DNS that are resolved into members, and are none themselves. `first_look`:
    seconds without a first byte after which it is asked whether the upstream is slow, or stuck; `pause_look`:
    seconds of silence in the middle of an answer after which it is asked whether the upstream is stuck. `pace`:
    that of its answers, as the judge has it once there are some. `empty_since`: when it lost its last member, or
    was made without any, in seconds since 1970; 0.0: before this process knew it; None while it has one."""

    __slots__ = (
        "empty_since",
        "first_look",
        "is_counted",
        "members",
        "names",
        "pace",
        "path",
        "pause_look",
        "policy",
        "settings",
        "upstreams",
        "view",
    )

    def __init__(
        self,
        path: str,
        settings: RouteSettings,
        members: tuple[LiveUpstream, ...],
        upstreams: tuple[LiveUpstream, ...],
        policy: Policy,
        names: tuple[str, ...] = (),
        empty_since: float | None = None,
    ) -> None:
        self.path = path
        self.settings = settings
        self.members = members
        self.upstreams = upstreams
        self.policy = policy
        self.names = names
        self.empty_since = empty_since
        self.first_look = min(settings.first_byte_timeout, STUCK_LEAST)
        self.pause_look = min(settings.idle_timeout, STUCK_LEAST)
        self.pace = _UNKNOWN
        self.is_counted = settings.max_inflight > 0 or settings.policy == "least_inflight"
        self.refresh()

    def in_place_of(self, before: "Route") -> "Route":
        """This one, which goes on by the answers that the route of this path has had so far."""
        self.pace = before.pace
        self.first_look = min(self.first_look, before.first_look)
        return self

    def refresh(self) -> None:
        """Apply the availability that its upstreams have now."""
        serving, ill = served(self.upstreams, self.settings)
        fade_in = self.settings.fade_in if self.policy.ring is None else 0.0  # a ring fades in by itself
        self.view = RouteView(serving, ill, fade_in, self.policy.greedy)

    @property
    def serving(self) -> tuple[LiveUpstream, ...]:
        """The upstreams that a request may be sent to now."""
        return self.view.upstreams

    @property
    def panic(self) -> bool:
        """Whether all serve because too few are available."""
        return bool(self.view.ill)

    def __repr__(self) -> str:
        return f"<Route {self.path} {[upstream.member for upstream in self.members]}>"


class Table:
    """All routes at one moment. Never changed, only replaced: a reference to it gives one consistent view.
    `routes`: path -> Route; `counted` and `named`: those of them that are counted, and those with names in DNS,
    which may be few of many."""

    __slots__ = ("_depth", "_routes", "counted", "named", "routes")

    def __init__(
        self,
        routes: dict[str, Route],
        depth: int,
        counted: Mapping[str, Route] | None = None,
        named: Mapping[str, Route] | None = None,
    ) -> None:
        self._routes = routes
        self.routes = MappingProxyType(routes)
        self._depth = depth
        if counted is None:
            counted = {path: route for path, route in routes.items() if route.is_counted}
        self.counted = counted
        self.named = {path: each for path, each in routes.items() if each.names} if named is None else named

    @classmethod
    def of(cls, routes: dict[str, Route]) -> "Table":
        return cls(routes, max((path.count("/") for path in routes), default=0))

    def changed(self, changes: Mapping[str, Route | None]) -> "Table":
        """This table with some routes put in or, where None, taken out."""
        routes, counted, named = dict(self._routes), dict(self.counted), dict(self.named)
        for path, route in changes.items():
            if route is None:
                routes.pop(path, None)
            else:
                routes[path] = route
            if route is not None and route.is_counted:
                counted[path] = route
            else:
                counted.pop(path, None)
            if route is not None and route.names:
                named[path] = route
            else:
                named.pop(path, None)
        # The depth may stay too large, never too small: it only spares `match` a walk up the end of a long path.
        return Table(routes, max((self._depth, *(path.count("/") for path in changes))), counted, named)

    def match(self, path: str) -> Route | None:
        """The route with the longest prefix of whole segments; `path` is in normal form.

        `/api` takes /api and /api/x, not /apix. A route without members still matches: it answers 503 rather
        than send its requests to a shorter route's upstreams.
        """
        routes = self._routes
        extra = path.count("/") - self._depth
        if extra > 0:
            path = path.rsplit("/", extra)[0]
        while path:
            found = routes.get(path)
            if found is not None:
                return found
            path = path.rpartition("/")[0]
        return routes.get("/")

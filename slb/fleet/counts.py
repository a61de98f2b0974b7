"""What this process has counted of requests, added up in steps: of each route, of each upstream, of all."""

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from typing import NamedTuple

from slb.errors import is_error
from slb.observe.families import LATENCY_BOUNDS
from slb.observe.traffic import RouteCounts, Traffic

_STEP = 200
_NO_TIMES = (0,) * (len(LATENCY_BOUNDS) + 1)


class RouteTotal(NamedTuple):
    """`times`: the histogram of durations; `reasons`: of what slb answered itself."""

    requests: int = 0
    errors: int = 0
    times: tuple[int, ...] = _NO_TIMES
    reasons: Mapping[str, int] = {}


class UpstreamTotal(NamedTuple):
    """`seconds` of the `sent`: those that were sent there; `first_bytes`: seconds until each was answered."""

    requests: int
    errors: int
    sent: int
    seconds: float
    first_bytes: float


class Totals:
    """Since the start, or since a route or an upstream came. `add_up` works in steps, each of one route: its cost
    grows with the pairs of route and upstream that have had requests."""

    def __init__(self) -> None:
        self.routes: dict[str, RouteTotal] = {}
        self.upstreams: dict[str, UpstreamTotal] = {}
        self.all = RouteTotal()

    def add_up(self, traffic: Traffic, wanted: Container[str] = ()) -> Iterator[None]:
        """`wanted`: the upstreams that are added up too."""
        upstreams: dict[str, list[float]] = {}
        self.routes, self.upstreams = {}, {}
        requests = errors = 0
        times = [0] * len(_NO_TIMES)
        for outcome, count in traffic.ended_with_routes.items():
            requests, errors = requests + count, errors + count * is_error(*outcome)
        for path, counts in list(traffic.routes.items()):
            total = self.routes[path] = _of_route(counts, upstreams, wanted)
            requests, errors = requests + total.requests, errors + total.errors
            for place, count in enumerate(total.times):
                times[place] += count
            yield
        for place, (member, each) in enumerate(upstreams.items()):
            self.upstreams[member] = UpstreamTotal(int(each[0]), int(each[1]), int(each[2]), each[3], each[4])
            if place % _STEP == 0:
                yield
        self.all = RouteTotal(requests, errors, tuple(times))


def counted(traffic: Traffic, name: str) -> tuple[int, int]:
    """The requests of a route (its name begins with a slash) or of an upstream, and those of them that failed."""
    if name.startswith("/"):
        total = _of_route(traffic.routes[name], {}, ()) if name in traffic.routes else RouteTotal()
        return total.requests, total.errors
    outcomes = (
        at.outcomes for route in list(traffic.routes.values()) if (at := route.upstreams.get(name)) is not None
    )
    found = [each for some in outcomes for each in list(some.items())]
    return sum(count for _, count in found), sum(count for outcome, count in found if is_error(*outcome))


def _of_route(counts: RouteCounts, upstreams: dict[str, list[float]], wanted: Container[str]) -> RouteTotal:
    requests = errors = 0
    reasons: defaultdict[str, int] = defaultdict(int)
    for (status, reason), count in counts.of_the_gone.items():
        requests, errors = requests + count, errors + count * is_error(status, reason)
        if reason:
            reasons[reason] += count
    for member, at in list(counts.upstreams.items()):
        here = failed = 0
        for (status, reason), count in at.outcomes.items():
            here += count
            if is_error(status, reason):
                failed += count
            if reason:
                reasons[reason] += count
        requests, errors = requests + here, errors + failed
        if member in wanted:
            row = upstreams.setdefault(member, [0, 0, 0, 0.0, 0.0])
            row[0] += here
            row[1] += failed
            row[2] += here - at.unsent
            row[3] += at.seconds
            row[4] += at.first_bytes
    return RouteTotal(requests, errors, tuple(counts.durations.counts), reasons)

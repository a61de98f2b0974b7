"""What this process has counted of requests, added up in steps: of each route, of each upstream, of all."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from slb.observe.families import LATENCY_BOUNDS
from slb.observe.traffic import RouteCounts, Traffic

_NO_TIMES = (0,) * (len(LATENCY_BOUNDS) + 1)


def is_error(status: int) -> bool:
    """Whether a request counts as one that failed."""
    return status >= 500


class RouteTotal(NamedTuple):
    """`times`: the histogram of durations; `reasons`: of what slb answered itself."""

    requests: int = 0
    errors: int = 0
    times: tuple[int, ...] = _NO_TIMES
    reasons: Mapping[str, int] = {}


class UpstreamTotal(NamedTuple):
    """`seconds` of the `sent`: those that were sent there."""

    requests: int
    errors: int
    sent: int
    seconds: float


class Totals:
    """Since the start, or since a route or an upstream came. `add_up` works in steps, each of one route: its cost
    grows with the pairs of route and upstream that have had requests."""

    def __init__(self) -> None:
        self.routes: dict[str, RouteTotal] = {}
        self.upstreams: dict[str, UpstreamTotal] = {}
        self.all = RouteTotal()

    def add_up(self, traffic: Traffic) -> Iterator[None]:
        upstreams: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0, 0, 0.0])
        self.routes = {}
        requests = errors = 0
        times = [0] * len(_NO_TIMES)
        for outcome, count in traffic.ended_with_routes.items():
            requests, errors = requests + count, errors + count * is_error(outcome[0])
        for path, counts in list(traffic.routes.items()):
            total = self.routes[path] = _of_route(counts, upstreams)
            requests, errors = requests + total.requests, errors + total.errors
            for place, count in enumerate(total.times):
                times[place] += count
            yield
        self.upstreams = {
            member: UpstreamTotal(int(each[0]), int(each[1]), int(each[2]), each[3])
            for member, each in upstreams.items()
            if member
        }
        self.all = RouteTotal(requests, errors, tuple(times))


def _of_route(counts: RouteCounts, upstreams: defaultdict[str, list[float]]) -> RouteTotal:
    requests = errors = 0
    reasons: defaultdict[str, int] = defaultdict(int)
    for (status, reason), count in counts.of_the_gone.items():
        requests, errors = requests + count, errors + count * is_error(status)
        if reason:
            reasons[reason] += count
    for member, at in list(counts.upstreams.items()):
        row, here = upstreams[member], 0
        for (status, reason), count in at.outcomes.items():
            here += count
            if is_error(status):
                errors += count
                row[1] += count
            if reason:
                reasons[reason] += count
        requests += here
        row[0] += here
        row[2] += here - at.unsent
        row[3] += at.seconds
    return RouteTotal(requests, errors, tuple(counts.durations.counts), reasons)

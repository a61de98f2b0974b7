"""What is counted of requests: of each route, and of each upstream of a route.

A series ends with its route or upstream, and its counts never move to another: Prometheus would take them for new
requests. A route's totals are added up at a scrape, with the upstreams that have left, so that they only grow.

Only routes of the current table and their current upstreams are counted by name. All other requests (no route took
them, or their route or upstream left before they ended) count for the route "" or the upstream "". So clients
cannot make series, and an upstream of a used route makes at most one for each status and reason, and two more.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Protocol

from slb.errors import is_broken
from slb.observe.families import LATENCY_BOUNDS, Histogram

CODES = ("1xx", "2xx", "3xx", "4xx", "5xx", "broken")
"""The totals of a route are kept by class of status: so few that all can be shown before the first request. A
counter that appears with its first event would never show that one as a rate. `broken`: through the upstream an
answer with another status than 5xx broke off or told of an error, or its client gave it up (`is_broken` of
errors.py)."""
_BROKEN = len(CODES) - 1

Outcome = tuple[int, str]  # status, and the reason: empty where slb did not answer itself

RequestKey = tuple[str, str, int, str]  # route path, upstream member (both may be empty), status, reason


class Member(Protocol):
    @property
    def member(self) -> str: ...


class Members(Protocol):
    @property
    def members(self) -> Sequence[Member]: ...


class Path(Protocol):
    @property
    def path(self) -> str: ...


class Request(Protocol):
    """A request to count. Times are a clock's: `sent_at` 0 where nothing was sent to the last upstream,
    `first_byte_at` 0 where no answer began. `bytes_in`, `bytes_out`: of the bodies."""

    @property
    def route(self) -> Path: ...
    @property
    def started(self) -> float: ...
    @property
    def sent_at(self) -> float: ...
    @property
    def first_byte_at(self) -> float: ...
    @property
    def bytes_in(self) -> int: ...
    @property
    def bytes_out(self) -> int: ...


class UpstreamCounts:
    """Of one upstream of one route. `unsent`: requests of which nothing was sent there; `seconds`: the time of all
    others together, each from when it was sent to its end; `first_bytes`: of those that were answered, each to the
    first byte."""

    __slots__ = ("first_bytes", "outcomes", "seconds", "unsent")

    def __init__(self) -> None:
        self.outcomes: defaultdict[Outcome, int] = defaultdict(int)
        self.unsent = 0
        self.seconds = 0.0
        self.first_bytes = 0.0

    @property
    def sent(self) -> int:
        return sum(list(self.outcomes.values())) - self.unsent


class RouteCounts:
    """Of one route. `bytes_in`, `bytes_out`: of bodies. `of_the_gone`: the outcomes of upstreams that have left."""

    __slots__ = (
        *("_named", "bytes_in", "bytes_out", "durations", "first_bytes"),
        *("members", "of_the_gone", "path", "upstreams"),
    )

    def __init__(self, path: str, members: Sequence[Member] | None) -> None:
        """`members` None: any upstream counts by its name."""
        self.path = path
        self.members = members
        self._named = _names(members) if members is not None else None
        self.upstreams: dict[str, UpstreamCounts] = {}
        self.of_the_gone: Counter[Outcome] = Counter()
        self.durations = Histogram()
        self.first_bytes = Histogram()
        self.bytes_in = 0
        self.bytes_out = 0

    def at(self, upstream: str) -> UpstreamCounts:
        if self._named is not None and upstream not in self._named:
            upstream = ""
        return self.upstreams.setdefault(upstream, UpstreamCounts())

    def keep(self, members: Sequence[Member]) -> None:
        """End the counts of all upstreams that are not in `members`."""
        self.members, self._named = members, _names(members)
        for upstream in self.upstreams.keys() - self._named - {""}:
            self.of_the_gone.update(self.upstreams.pop(upstream).outcomes)

    def outcomes(self) -> Counter[Outcome]:
        """The outcomes of all its requests since it became a route."""
        total = Counter(self.of_the_gone)
        for counts in list(self.upstreams.values()):
            total.update(dict(counts.outcomes))
        return total


def _names(members: Sequence[Member]) -> frozenset[str]:
    return frozenset(each.member for each in members)


class Traffic:
    """Of all routes. `ended_with_routes`: the outcomes of routes that are none any more."""

    def __init__(self) -> None:
        self.routes: dict[str, RouteCounts] = {}
        self.ended_with_routes: Counter[Outcome] = Counter()
        self._table: Mapping[str, Members] | None = None

    def request_ended(self, request: Request, upstream: str, status: int, reason: str, ended: float) -> None:
        """Count a request that ended now, by the clock of its times. Calls are avoided on this hot path."""
        try:
            counts = self.routes[request.route.path]
            at_upstream = counts.upstreams[upstream]
        except KeyError:
            counts, at_upstream = self._found(request.route.path, upstream)
        at_upstream.outcomes[status, reason] += 1
        if sent := request.sent_at:
            at_upstream.seconds += ended - sent
        else:
            at_upstream.unsent += 1
        if size := request.bytes_in:
            counts.bytes_in += size
        if size := request.bytes_out:
            counts.bytes_out += size
        started, times = request.started, counts.durations
        took = ended - started
        times.counts[bisect_left(LATENCY_BOUNDS, took)] += 1
        times.sum += took
        if first_byte := request.first_byte_at:
            at_upstream.first_bytes += first_byte - (sent or first_byte)
            took, times = first_byte - started, counts.first_bytes
            times.counts[bisect_left(LATENCY_BOUNDS, took)] += 1
            times.sum += took

    def refused(self, route: str, outcome: Outcome) -> None:
        """Count a request that slb answered before it was sent anywhere; it has no duration."""
        _, no_upstream = self._found(route, "")
        no_upstream.outcomes[outcome] += 1
        no_upstream.unsent += 1

    def broke_off(self, route: str, upstream: str, outcome: Outcome) -> None:
        """Count once more, without its time, a request that ended elsewhere, or here as an answered one."""
        _, at_upstream = self._found(route, upstream)
        at_upstream.outcomes[outcome] += 1
        at_upstream.unsent += 1

    def finished(self, route: str) -> int:
        """How many requests of a route have ended, without those that were `refused`."""
        counts = self.routes.get(route)
        return sum(counts.durations.counts) if counts is not None else 0

    def follow(self, table: Mapping[str, Members]) -> None:
        """`table` has the present routes: end the series of routes and upstreams that have left."""
        self._table = table
        for path, counts in list(self.routes.items()):
            route = table.get(path)
            if route is not None:
                if route.members is not counts.members:
                    counts.keep(route.members)
            elif path:
                self.ended_with_routes.update(self.routes.pop(path).outcomes())

    def slower_than(self, route: str, share: float) -> float:
        """Seconds within which this share of a route's requests has ended, to a bound of the histogram; endless
        where more took longer than its last one, or too few have ended for it to be known."""
        counts = self.routes.get(route)
        if counts is None:
            return inf
        durations = counts.durations.counts
        total, ended = sum(durations), 0
        if total * (1 - share) < 1:
            return inf
        for bound, count in zip(LATENCY_BOUNDS, durations, strict=False):
            ended += count
            if ended >= share * total:
                return bound
        return inf

    def is_route(self, path: str) -> bool:
        return self._table is None or path in self._table

    def requests(self) -> Iterator[tuple[RequestKey, int]]:
        """How many requests ended how, by present upstream and ""."""
        for path, counts in list(self.routes.items()):
            for upstream, at_upstream in list(counts.upstreams.items()):
                for outcome, count in list(at_upstream.outcomes.items()):
                    yield (path, upstream, *outcome), count

    def totals(self) -> Iterator[tuple[str, Sequence[int]]]:
        """The requests of each present route, and of "", by `CODES`."""
        for path in self._paths():
            found, counts = [0] * len(CODES), self.routes.get(path)
            if counts is not None:
                for (status, reason), count in counts.outcomes().items():
                    found[_BROKEN if is_broken(status, reason) else status // 100 - 1] += count
            yield path, found

    def _paths(self) -> Iterable[str]:
        return dict.fromkeys(("", *(self.routes if self._table is None else self._table)))

    def _found(self, path: str, upstream: str) -> tuple[RouteCounts, UpstreamCounts]:
        """Where a request counts; made for the first one."""
        members: Sequence[Member] | None = None
        if self._table is not None:
            route = self._table.get(path)
            path, members = (path, route.members) if route is not None else ("", ())
        counts = self.routes.get(path) or self.routes.setdefault(path, RouteCounts(path, members))
        return counts, counts.at(upstream)

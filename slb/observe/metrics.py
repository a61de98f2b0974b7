"""What one process counts.

The hot path adds to plain dicts and lists; a locked client-library counter costs more than the rest of the
bookkeeping together. `collectors` shows them to Prometheus, under their names, when somebody asks.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable

from slb.observe.quota import QuotaCounts
from slb.observe.ring import Rings

LATENCY_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
"""Seconds: from a cached answer to a long generation."""


class Histogram:
    """Counts by upper bound; the last count is everything above the highest bound."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BOUNDS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts as Prometheus wants them."""
        total = 0
        found: list[tuple[str, float]] = []
        for bound, count in zip((*map(str, map(float, LATENCY_BOUNDS)), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, total))
        return found


RequestKey = tuple[str, str, int, str]
"""route path ("" where none matched), upstream member ("" where none was picked), status, reason ("" if none)."""


class Metrics:
    """What one process counts. Plain attributes: whoever knows of an event adds it here."""

    def __init__(self) -> None:
        self.requests: defaultdict[RequestKey, int] = defaultdict(int)
        self.api_requests: defaultdict[tuple[int, str], int] = defaultdict(int)
        self.durations: defaultdict[str, Histogram] = defaultdict(Histogram)
        self.first_bytes: defaultdict[str, Histogram] = defaultdict(Histogram)
        self.retries: defaultdict[str, int] = defaultdict(int)
        self.retries_refused: defaultdict[str, int] = defaultdict(int)
        self.client_disconnects = 0
        self.connections: Callable[[], int] = lambda: 0
        self.api_connections: Callable[[], int] = lambda: 0
        self.redis_up = False
        self.redis_reconnects = 0
        self.full_syncs = 0
        self.polling = False
        self.skipped: dict[str, int] = {}
        self.staleness: Callable[[], float] = lambda: 0.0
        self.inflight: Callable[[], Iterable[tuple[str, int]]] = lambda: ()
        self.upstreams_up: Callable[[], Iterable[tuple[str, bool]]] = lambda: ()
        self.ejections: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.health_checks: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.panics: defaultdict[str, int] = defaultdict(int)
        self.panicking: set[str] = set()
        self.accept_failures: defaultdict[str, int] = defaultdict(int)
        self.proxy_protocol_refused: defaultdict[str, int] = defaultdict(int)
        self.tls_handshake_failures: defaultdict[str, int] = defaultdict(int)
        self.tls_reload_failures = 0
        self.tls_not_after: dict[str, float] = {}
        self.config_reloads: defaultdict[str, int] = defaultdict(int)
        self.ledger_reaped = 0
        self.ledger_drift = 0
        self.ledger_repaired = 0
        self.grants_taken_back = 0
        self.shed: defaultdict[str, int] = defaultdict(int)
        self.queue_wait: defaultdict[str, Histogram] = defaultdict(Histogram)
        self.queue_positions: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.queue_depth: Callable[[], Iterable[tuple[str, str, int]]] = lambda: ()
        self.global_inflight: Callable[[], Iterable[tuple[str, int]]] = lambda: ()
        self.pools_shared: Callable[[], Iterable[tuple[str, bool]]] = lambda: ()
        self.local_decisions = 0
        self.unanswered: Callable[[], bool] = lambda: False
        self.quota = QuotaCounts()
        self.rings: Rings = lambda: ()

    @property
    def redis_answers(self) -> bool:
        """As far as the watcher knows, and whoever else asks: a Redis that has frozen is silent, and those who wait
        for slots notice it first."""
        return self.redis_up and not self.unanswered()

    def request_ended(
        self, route: str, upstream: str, status: int, reason: str, started: float, first_byte: float, ended: float
    ) -> None:
        """Count a request; times are the clock's, `first_byte` 0 where none came."""
        self.requests[route, upstream, status, reason] += 1
        self.durations[route].observe(ended - started)
        if first_byte:
            self.first_bytes[route].observe(first_byte - started)

    def forget_routes(self, routes: Container[str]) -> None:
        """Histograms of routes that are none any more end with them."""
        for by_route in (self.durations, self.first_bytes, self.queue_wait, self.queue_positions):
            for route in [route for route in by_route if route not in routes]:
                del by_route[route]

    def forget_upstreams(self, members: Iterable[str]) -> None:
        """An upstream's series end with it: its counts move to the upstream-less series of the same outcome, so
        that sums over a route never go down."""
        gone = set(members)
        if not gone:  # as on most swaps
            return
        for key in [key for key in self.requests if key[1] in gone]:
            route, _, code, reason = key
            self.requests[route, "", code, reason] += self.requests.pop(key)
        for counts in (self.ejections, self.health_checks):
            for pair in [pair for pair in counts if pair[0] in gone]:
                counts["", pair[1]] += counts.pop(pair)

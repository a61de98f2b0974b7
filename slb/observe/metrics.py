"""Every metric: its name, what is counted, and how it is shown to Prometheus.

The hot path adds to plain dicts and lists; a locked client-library counter costs more than the rest of the
bookkeeping together. `MetricsCollector` turns them into families when somebody asks.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from slb.observe.quota import QuotaCollector, QuotaCounts
from slb.observe.ring import RingCollector, Rings

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
        self.client_disconnects = 0
        self.connections: Callable[[], int] = lambda: 0
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


class MetricsCollector(Collector):
    """`Metrics` as families, made at each scrape."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from self._traffic()
        yield from self._entrance()
        yield from self._health()
        yield from AdmissionCollector(self._metrics).collect()
        yield from self._control_plane()
        yield from ApiRequestsCollector(self._metrics).collect()
        yield from ReloadCollector(self._metrics).collect()
        yield from QuotaCollector(self._metrics.quota).collect()
        yield from RingCollector(self._metrics.rings).collect()

    def _traffic(self) -> Iterator[Metric]:
        metrics = self._metrics
        labels = ("route", "upstream", "code", "reason")
        requests = CounterMetricFamily("slb_requests", "Requests answered or abandoned (code 499).", labels=labels)
        for (route, upstream, code, reason), count in list(metrics.requests.items()):
            requests.add_metric((route, upstream, str(code), reason), count)
        yield requests
        yield _histograms("slb_request_duration_seconds", "From the request's head to its end.", metrics.durations)
        yield _histograms(
            "slb_time_to_first_byte_seconds", "From the request's head to the reply's.", metrics.first_bytes
        )
        inflight = GaugeMetricFamily(
            "slb_upstream_inflight",
            "Requests in flight: of this instance, or (global, all instances say the same) of the fleet.",
            labels=("upstream", "scope"),
        )
        used = {upstream for _, upstream, _, _ in metrics.requests}
        for member, count in metrics.inflight():
            if count or member in used:  # a series for each of a hundred thousand idle ones takes seconds to write
                inflight.add_metric((member, "local"), count)
        for member, count in metrics.global_inflight():
            inflight.add_metric((member, "global"), count)
        yield inflight
        retries = CounterMetricFamily("slb_retries", "Attempts after the first.", labels=("reason",))
        for reason, count in metrics.retries.items():
            retries.add_metric((reason,), count)
        yield retries
        yield CounterMetricFamily(
            "slb_client_disconnects",
            "Clients that left before their answer ended.",
            value=metrics.client_disconnects,
        )
        yield GaugeMetricFamily("slb_client_connections", "Open client connections.", value=metrics.connections())

    def _entrance(self) -> Iterator[Metric]:
        metrics = self._metrics
        refused = CounterMetricFamily(
            "slb_proxy_protocol_refused", "Connections ended before they were at HTTP or TLS.", labels=("reason",)
        )
        for reason, count in list(metrics.proxy_protocol_refused.items()):
            refused.add_metric((reason,), count)
        yield refused
        failures = CounterMetricFamily(
            "slb_tls_handshake_failures", "Clients that did not get through the TLS handshake.", labels=("reason",)
        )
        for reason, count in list(metrics.tls_handshake_failures.items()):
            failures.add_metric((reason,), count)
        yield failures
        yield CounterMetricFamily(
            "slb_tls_reload_failures",
            "Changed certificate files that were refused.",
            value=metrics.tls_reload_failures,
        )
        expiry = GaugeMetricFamily(
            "slb_tls_certificate_not_after_seconds",
            "When the certificate ends, in seconds since 1970.",
            labels=("certificate",),
        )
        for file, seconds in list(metrics.tls_not_after.items()):
            expiry.add_metric((file,), seconds)
        yield expiry

    def _health(self) -> Iterator[Metric]:
        yield from health_families(self._metrics)
        checks = CounterMetricFamily(
            "slb_health_checks", "Active checks made by this instance.", labels=("upstream", "result")
        )
        for pair, count in list(self._metrics.health_checks.items()):
            checks.add_metric(pair, count)
        yield checks

    def _control_plane(self) -> Iterator[Metric]:
        metrics = self._metrics
        yield GaugeMetricFamily("slb_redis_up", "1 while Redis answers.", value=metrics.redis_answers)
        yield CounterMetricFamily("slb_redis_reconnects", "Connections made again.", value=metrics.redis_reconnects)
        yield CounterMetricFamily("slb_full_syncs", "Full syncs that succeeded.", value=metrics.full_syncs)
        yield GaugeMetricFamily(
            "slb_mirror_staleness_seconds", "Since the mirror was last known to be true.", value=metrics.staleness()
        )
        yield GaugeMetricFamily(
            "slb_redis_polling", "1 where notifications are not to be had.", value=metrics.polling
        )
        skipped = GaugeMetricFamily("slb_skipped_entries", "Foreign or broken entries in Redis.", labels=("kind",))
        for kind, count in metrics.skipped.items():
            skipped.add_metric((kind,), count)
        yield skipped


class ApiRequestsCollector(Collector):
    """Of requests to the API alone: a supervisor has no others."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "slb_api_requests", "Requests to slb's own API, on either listener.", labels=("code", "reason")
        )
        for (code, reason), count in list(self._metrics.api_requests.items()):
            requests.add_metric((str(code), reason), count)
        yield requests


class AdmissionCollector(Collector):
    """Of what waits for a slot, and of the ledger that gives them out."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        metrics = self._metrics
        depth = GaugeMetricFamily(
            "slb_queue_depth", "This instance's requests that wait for a slot.", labels=("route", "priority")
        )
        for route, priority, count in metrics.queue_depth():
            depth.add_metric((route, priority), count)
        yield depth
        shared = GaugeMetricFamily(
            "slb_ledger_shared",
            "1 while Redis decides who gets a pool's slots, 0 while this instance does.",
            labels=("pool",),
        )
        for pool, is_shared in metrics.pools_shared():
            shared.add_metric((pool,), is_shared)
        yield shared
        yield _histograms("slb_queue_wait_seconds", "Of requests that had to wait for a slot.", metrics.queue_wait)
        position = SummaryMetricFamily(
            "slb_queue_position", "How many of its class were before a request that had to wait.", labels=("route",)
        )
        for route, seen in list(metrics.queue_positions.items()):
            position.add_metric((route,), seen["count"], seen["sum"])
        yield position
        shed = CounterMetricFamily("slb_shed", "Requests that got no slot.", labels=("reason",))
        for reason, count in list(metrics.shed.items()):
            shed.add_metric((reason,), count)
        yield shed
        for name, text, value in (
            ("slb_ledger_reaped", "Dead instances whose slots were given back.", metrics.ledger_reaped),
            ("slb_ledger_drift", "By how much scores were not the sum of what is held.", metrics.ledger_drift),
            ("slb_ledger_repaired", "Damaged keys and fields of the ledger.", metrics.ledger_repaired),
            ("slb_ledger_grants_lapsed", "Grants nobody took up in time.", metrics.grants_taken_back),
            ("slb_ledger_local", "Slots given out without Redis.", metrics.local_decisions),
        ):
            yield CounterMetricFamily(name, text, value=value)


class ReloadCollector(Collector):
    """Of reloads alone: a supervisor does them for all its workers."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        reloads = CounterMetricFamily("slb_config_reloads", "Settings read anew.", labels=("result",))
        for result, count in list(self._metrics.config_reloads.items()):
            reloads.add_metric((result,), count)
        yield reloads


def _histograms(name: str, text: str, by_route: dict[str, Histogram]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, text, labels=("route",))
    for route, histogram in list(by_route.items()):
        family.add_metric((route,), histogram.buckets(), histogram.sum)
    return family


def health_families(metrics: Metrics) -> Iterator[Metric]:
    """What ejection and panic show."""
    up = GaugeMetricFamily("slb_upstream_up", "0 while it is ejected, or down.", labels=("upstream",))
    for member, is_up in metrics.upstreams_up():
        up.add_metric((member,), is_up)
    ejections = CounterMetricFamily(
        "slb_upstream_ejections", "Taken out for failing requests.", labels=("upstream", "reason")
    )
    for pair, count in list(metrics.ejections.items()):
        ejections.add_metric(pair, count)
    panic = GaugeMetricFamily(
        "slb_panic", "1 while too few upstreams are available and all of them serve.", labels=("route",)
    )
    panics = CounterMetricFamily("slb_panics", "Times a route began to panic.", labels=("route",))
    for route, count in list(metrics.panics.items()):
        panic.add_metric((route,), route in metrics.panicking)
        panics.add_metric((route,), count)
    yield from (up, ejections, panic, panics)

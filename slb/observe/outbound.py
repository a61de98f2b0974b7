"""What the client library counts: calls that went by the ring and calls that went to the fallback, apart."""

from collections import defaultdict
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from slb.observe.families import by_one, counters
from slb.observe.health import HealthCounts, health_families
from slb.observe.histogram import Histogram
from slb.observe.ring import Rings, ring_families

NO_ANSWER = 0
"""Stands for the status where none came; shown as `none`."""


class WayMetrics:
    """Of the requests that went one way: by status, errors by reason, time to the end of the body in seconds, and
    how many the caller gave up."""

    __slots__ = ("abandoned", "durations", "errors", "name", "requests")

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests: defaultdict[int, int] = defaultdict(int)
        self.errors: defaultdict[str, int] = defaultdict(int)
        self.durations = Histogram()
        self.abandoned = 0


class OutboundMetrics:
    """What one session counts. `ring`: requests whose upstream was picked here, by whichever policy. `out`,
    `waiting`, `percentage` and `rings` give what holds now; of `health`, ejections and panics
    are shown."""

    def __init__(self) -> None:
        self.ring = WayMetrics("ring")
        self.fallback = WayMetrics("fallback")
        self.retries: defaultdict[str, int] = defaultdict(int)
        self.fallbacks: defaultdict[str, int] = defaultdict(int)
        self.buffer_wait = Histogram()
        self.shed = 0
        self.out: Callable[[], int] = lambda: 0
        self.waiting: Callable[[], int] = lambda: 0
        self.percentage: Callable[[], float] = lambda: 0.0
        self.rings: Rings = tuple
        self.health = HealthCounts()


class OutboundCollector(Collector):
    """`OutboundMetrics` as families, made at each scrape: `registry.register(OutboundCollector(metrics))`."""

    def __init__(self, metrics: OutboundMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from self._ways()
        yield from self._counters()
        yield from self._buffer()
        yield from health_families(self._metrics.health)
        yield from ring_families(self._metrics.rings())

    def _ways(self) -> Iterator[Metric]:
        ways = (self._metrics.ring, self._metrics.fallback)
        requests = [((way.name, _code(code)), count) for way in ways for code, count in list(way.requests.items())]
        yield counters("slb_outbound_requests", "Requests sent; a retry is one more.", ("way", "code"), requests)
        errors = [((way.name, reason), count) for way in ways for reason, count in list(way.errors.items())]
        yield counters("slb_outbound_errors", "Requests that failed.", ("way", "reason"), errors)
        abandoned = [((way.name,), way.abandoned) for way in ways]
        yield counters("slb_outbound_abandoned", "Requests that the caller gave up.", ("way",), abandoned)
        durations = HistogramMetricFamily(
            "slb_outbound_duration_seconds", "From a request's start to the end of its answer.", labels=("way",)
        )
        for way in ways:
            durations.add_metric((way.name,), way.durations.buckets(), way.durations.sum)
        yield durations

    def _counters(self) -> Iterator[Metric]:
        metrics = self._metrics
        for name, text, counts in (
            ("slb_outbound_retries", "Second attempts.", metrics.retries),
            ("slb_outbound_fallbacks", "Requests sent to the fallback.", metrics.fallbacks),
        ):
            yield counters(name, text, ("reason",), by_one(counts))
        yield CounterMetricFamily("slb_outbound_shed", "Inbound requests refused at the cap.", value=metrics.shed)

    def _buffer(self) -> Iterator[Metric]:
        metrics = self._metrics
        yield GaugeMetricFamily("slb_outbound_inflight", "Calls that are out.", value=metrics.out())
        yield GaugeMetricFamily("slb_outbound_waiting", "Calls that wait in the buffer.", value=metrics.waiting())
        wait = HistogramMetricFamily("slb_outbound_wait_seconds", "Of calls that waited in the buffer.")
        wait.add_metric((), metrics.buffer_wait.buckets(), metrics.buffer_wait.sum)
        yield wait
        yield GaugeMetricFamily(
            "slb_outbound_percentage",
            "Of the calls, how many may go by the ring; 0 while it is switched off.",
            value=metrics.percentage(),
        )


def _code(status: int) -> str:
    return "none" if status == NO_ANSWER else str(status)

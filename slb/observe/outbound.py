"""What the client library counts: calls that went by the ring and calls that went to the fallback, apart."""

from collections import defaultdict
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from slb.observe.metrics import Histogram

RING = "ring"
"""The way of a request whose upstream was picked here. By whichever policy: the name is that of the usual one."""

FALLBACK = "fallback"

NO_CODE = "none"
"""Stands for the status where no answer came."""


class OutboundMetrics:
    """What one session counts. `out`, `waiting` and `percentage` give what holds now."""

    def __init__(self) -> None:
        self.requests: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.errors: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.durations: defaultdict[str, Histogram] = defaultdict(Histogram)
        self.abandoned: defaultdict[str, int] = defaultdict(int)
        self.retries: defaultdict[str, int] = defaultdict(int)
        self.fallbacks: defaultdict[str, int] = defaultdict(int)
        self.buffer_wait = Histogram()
        self.shed = 0
        self.out: Callable[[], int] = lambda: 0
        self.waiting: Callable[[], int] = lambda: 0
        self.percentage: Callable[[], float] = lambda: 0.0


class OutboundCollector(Collector):
    """`OutboundMetrics` as families, made at each scrape: `registry.register(OutboundCollector(metrics))`."""

    def __init__(self, metrics: OutboundMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._counters()
        yield from self._buffer()

    def _requests(self) -> Iterator[Metric]:
        metrics = self._metrics
        requests = CounterMetricFamily(
            "slb_outbound_requests", "Requests sent; a retry is one more.", labels=("way", "code")
        )
        for pair, count in list(metrics.requests.items()):
            requests.add_metric(pair, count)
        yield requests
        errors = CounterMetricFamily("slb_outbound_errors", "Requests that failed.", labels=("way", "reason"))
        for pair, count in list(metrics.errors.items()):
            errors.add_metric(pair, count)
        yield errors
        durations = HistogramMetricFamily(
            "slb_outbound_duration_seconds", "From a request's start to the end of its answer.", labels=("way",)
        )
        for way, histogram in list(metrics.durations.items()):
            durations.add_metric((way,), histogram.buckets(), histogram.sum)
        yield durations

    def _counters(self) -> Iterator[Metric]:
        metrics = self._metrics
        for name, text, label, counts in (
            ("slb_outbound_abandoned", "Requests the caller gave up.", "way", metrics.abandoned),
            ("slb_outbound_retries", "Second attempts.", "reason", metrics.retries),
            ("slb_outbound_fallbacks", "Calls sent to the fallback.", "reason", metrics.fallbacks),
        ):
            family = CounterMetricFamily(name, text, labels=(label,))
            for value, count in list(counts.items()):
                family.add_metric((value,), count)
            yield family
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

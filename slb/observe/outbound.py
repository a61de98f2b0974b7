"""What the client library counts: calls that went by the ring and calls that went to the fallback, apart."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from slb.observe.families import Histogram, counter, counters, families, read_gauge
from slb.observe.health import HealthCounts, health_families
from slb.observe.ring import Rings, ring_families

NO_ANSWER = 0  # stands for the status where none came; shown as `none`


@dataclass(slots=True)
class WayMetrics:
    """Of requests that went one way: by status, errors by reason, seconds to the body's end, abandoned ones."""

    name: str
    requests: defaultdict[int, int] = field(default_factory=partial(defaultdict, int))
    errors: defaultdict[str, int] = field(default_factory=partial(defaultdict, int))
    durations: Histogram = field(default_factory=Histogram)
    abandoned: int = 0


@dataclass
class OutboundMetrics:
    """What one session counts. `ring`: requests whose upstream was picked here. Of `health`, no checks are
    shown."""

    ring: WayMetrics = field(default_factory=partial(WayMetrics, "ring"))
    fallback: WayMetrics = field(default_factory=partial(WayMetrics, "fallback"))
    retries: defaultdict[str, int] = counter("slb_outbound_retries", "Second attempts.", "reason")
    retries_refused: defaultdict[str, int] = counter(
        "slb_outbound_retries_refused", "Second attempts that the retry budget did not allow.", "reason"
    )
    fallbacks: defaultdict[str, int] = counter("slb_outbound_fallbacks", "Requests sent to the fallback.", "reason")
    buffer_wait: Histogram = field(default_factory=Histogram)
    shed: int = counter("slb_outbound_shed", "Inbound requests refused at the cap.")
    out: Callable[[], int] = read_gauge("slb_outbound_inflight", "Calls that are out.")
    waiting: Callable[[], int] = read_gauge("slb_outbound_waiting", "Calls that wait in the buffer.")
    percentage: Callable[[], float] = read_gauge(
        "slb_outbound_percentage", "Of the calls, how many may go by the ring; 0 while it is switched off."
    )
    rings: Rings = tuple
    health: HealthCounts = field(default_factory=HealthCounts)


class OutboundCollector(Collector):
    """`OutboundMetrics` as families, made at each scrape: `registry.register(OutboundCollector(metrics))`."""

    def __init__(self, metrics: OutboundMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from self._ways()
        yield from families(self._metrics)
        wait = HistogramMetricFamily("slb_outbound_wait_seconds", "Of calls that waited in the buffer.")
        wait.add_metric((), self._metrics.buffer_wait.buckets(), self._metrics.buffer_wait.sum)
        yield wait
        yield from health_families(self._metrics.health)
        yield from ring_families(self._metrics.rings())

    def _ways(self) -> Iterator[Metric]:
        ways = (self._metrics.ring, self._metrics.fallback)
        sent = [(way.name, code, count) for way in ways for code, count in list(way.requests.items())]
        requests = [((way, "none" if code == NO_ANSWER else str(code)), count) for way, code, count in sent]
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

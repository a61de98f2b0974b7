"""How what was counted is shown to Prometheus at a scrape: the declared fields of each part as they are, and what
has to be computed first."""

import platform
from collections.abc import Iterator, Mapping
from typing import TypeVar

from prometheus_client.core import GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from slb import __version__
from slb.observe.families import Rows, batches, families, gauges, histograms
from slb.observe.health import check_families, health_families
from slb.observe.jobs import job_families
from slb.observe.metrics import Metrics
from slb.observe.quota import quota_families
from slb.observe.ring import ring_families
from slb.observe.traffic_families import traffic_families

_T = TypeVar("_T")


class MetricsCollector(Collector):
    """All there is to show of `metrics`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        metrics = self._metrics
        versions = (__version__, platform.python_version())
        text = "1, with the versions of slb and Python."
        yield gauges("slb_build_info", text, ("version", "python"), [(versions, 1)])
        yield from traffic_families(metrics.traffic)
        text = "Requests in flight: of this instance, or (global, all instances say the same) of the fleet."
        for part in batches(_inflight(metrics)):
            yield gauges("slb_upstream_inflight", text, ("upstream", "scope"), part)
        yield GaugeMetricFamily("slb_redis_up", "1 while Redis answers.", value=metrics.redis.answers)
        for counts in (metrics, metrics.clients, metrics.tls, metrics.redis):
            yield from families(counts)
        yield from health_families(metrics.health)
        yield from check_families(metrics.health)
        yield from admission_families(metrics)
        yield from SharedCollector(metrics).collect()
        yield from ring_families(metrics.rings())


def _inflight(metrics: Metrics) -> Rows:
    used = {member for route in list(metrics.traffic.routes.values()) for member in list(route.upstreams)}
    for member, count in metrics.inflight():
        if count or member in used:  # a series for each of a hundred thousand idle ones takes seconds to write
            yield (member, "local"), count
    for member, count in metrics.ledger.global_inflight():
        yield (member, "global"), count


class SharedCollector(Collector):
    """What a supervisor counts too: the API and its listeners, reloads, the quota router."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from families(self._metrics.process)
        yield from quota_families(self._metrics.quota)
        yield from job_families(self._metrics.jobs)


def admission_families(metrics: Metrics) -> Iterator[Metric]:
    """Of what waits for a slot, and of the ledger that gives them out."""
    yield from families(metrics.queue)
    waits = _of_routes(metrics, metrics.queue.wait)
    yield histograms("slb_queue_wait_seconds", "Of requests that had to wait for a slot.", waits)
    position = SummaryMetricFamily(
        "slb_queue_position", "How many of its class were before a request that had to wait.", labels=("route",)
    )
    for route, seen in _of_routes(metrics, metrics.queue.positions).items():
        position.add_metric((route,), seen["count"], seen["sum"])
    yield position
    yield from families(metrics.ledger)


def _of_routes(metrics: Metrics, by_route: Mapping[str, _T]) -> dict[str, _T]:
    """Without routes that have left the table: a request may end, and be counted, after its route has left."""
    return {route: counted for route, counted in list(by_route.items()) if metrics.traffic.is_route(route)}

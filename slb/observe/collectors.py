"""How what was counted is shown to Prometheus: declared fields as they are, and what has to be computed first."""

import platform
from collections.abc import Iterator, Mapping
from typing import TypeVar

from prometheus_client.core import GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from slb.build import build
from slb.observe.discovery import discovery_families
from slb.observe.dns import dns_families
from slb.observe.families import Rows, batches, counters, families, gauges, histograms
from slb.observe.health import check_families, health_families
from slb.observe.jobs import job_families
from slb.observe.metrics import Metrics
from slb.observe.quota import quota_families
from slb.observe.ring import ring_families
from slb.observe.traffic import CODES, Traffic

_T = TypeVar("_T")


class MetricsCollector(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        metrics = self._metrics
        versions = (build(), platform.python_version())
        text = "1, with the versions of slb, with the commit it was built of, and of Python."
        yield gauges("slb_build_info", text, ("version", "python"), [(versions, 1)])
        yield from traffic_families(metrics.traffic)
        text = "Requests in flight: of this instance, or (global, all instances say the same) of the fleet."
        for part in batches(_inflight(metrics)):
            yield gauges("slb_upstream_inflight", text, ("upstream", "scope"), part)
        yield GaugeMetricFamily("slb_redis_up", "1 while Redis answers.", value=metrics.redis.answers)
        for counts in (metrics, metrics.clients, metrics.redis, metrics.extproc, metrics.trace):
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
    """What a supervisor counts too: the API and its listeners, their TLS, reloads, the quota router."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from families(self._metrics.process)
        yield from families(self._metrics.tls)
        yield from quota_families(self._metrics.quota)
        yield from job_families(self._metrics.jobs)
        yield from discovery_families(self._metrics.discovery)
        yield from dns_families(self._metrics.dns)


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


_HISTOGRAMS = 10  # in one part of their family: each has as many samples as there are bounds


def traffic_families(traffic: Traffic) -> Iterator[Metric]:
    """Of the requests of one process. There can be many thousand series: families come in parts, made one by
    one."""
    yield from _requests(traffic)
    yield from _times(traffic)
    yield from _bytes(traffic)


def _requests(traffic: Traffic) -> Iterator[Metric]:
    totals = (
        ((route, code), count)
        for route, by_code in traffic.totals()
        for code, count in zip(CODES, by_code, strict=True)
    )
    text = "Requests answered or abandoned (4xx): all of a route's, for alerts."
    for some in batches(totals):
        yield counters("slb_route_requests", text, ("route", "code"), some)
    requests = (
        ((route, upstream, str(status), reason), count)
        for (route, upstream, status, reason), count in traffic.requests()
    )
    text = "The same, by who served them and how they ended (code 499: abandoned)."
    for part in batches(requests):
        yield counters("slb_requests", text, ("route", "upstream", "code", "reason"), part)


def _times(traffic: Traffic) -> Iterator[Metric]:
    routes = list(traffic.routes.values())
    durations = ((each.path, each.durations) for each in routes)
    first_bytes = ((each.path, each.first_bytes) for each in routes)
    for name, text, rows in (
        ("slb_request_duration_seconds", "From the request's head to its end.", durations),
        ("slb_time_to_first_byte_seconds", "From the request's head to the first byte of the answer.", first_bytes),
    ):
        for part in batches((row for row in rows if any(row[1].counts)), _HISTOGRAMS):
            yield histograms(name, text, dict(part))
    yield from _times_of_upstreams(traffic)


def _times_of_upstreams(traffic: Traffic) -> Iterator[Metric]:
    found = (
        ((route.path, upstream), sent, counts.seconds)
        for route in list(traffic.routes.values())
        for upstream, counts in list(route.upstreams.items())
        if upstream and (sent := counts.sent)
    )
    for part in batches(found):
        family = SummaryMetricFamily(
            "slb_upstream_request_duration_seconds",
            "From when a request was sent to the upstream to its end.",
            labels=("route", "upstream"),
        )
        for labels, sent, seconds in part:
            family.add_metric(labels, sent, seconds)
        yield family


def _bytes(traffic: Traffic) -> Iterator[Metric]:
    routes = list(traffic.routes.values())
    for name, text, by_route in (
        ("slb_request_bytes", "Of requests' bodies.", [(each.path, each.bytes_in) for each in routes]),
        ("slb_response_bytes", "Of replies' bodies.", [(each.path, each.bytes_out) for each in routes]),
    ):
        for part in batches(by_route):
            yield counters(name, text, ("route",), (((path,), count) for path, count in part))

"""How what was counted is shown to Prometheus: the name, the meaning and the labels of each metric of a process.

Families are made anew at each scrape. Those of health, of the quota router and of the rings stand beside what they
show, in `health`, `quota` and `ring`; the client library's in `outbound`.
"""

import platform
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from slb import __version__
from slb.observe.families import Rows, batches, by_one, counters, gauges, histograms
from slb.observe.health import check_families, health_families
from slb.observe.metrics import Metrics
from slb.observe.quota import quota_families
from slb.observe.ring import ring_families
from slb.observe.traffic_families import traffic_families

_T = TypeVar("_T")

_COUNTERS: Mapping[str, tuple[str, Callable[[Metrics], float]]] = {
    "slb_client_disconnects": ("Clients that left before their answer ended.", lambda it: it.client_disconnects),
    "slb_tls_reload_failures": ("Changed certificate files that were refused.", lambda it: it.tls_reload_failures),
    "slb_redis_reconnects": ("Connections made again.", lambda it: it.redis_reconnects),
    "slb_registrations_expired": (
        "Registrations this instance took out as their lease had ended.",
        lambda it: it.registrations_expired,
    ),
    "slb_full_syncs": ("Full syncs that succeeded.", lambda it: it.full_syncs),
}
_GAUGES: Mapping[str, tuple[str, Callable[[Metrics], float]]] = {
    "slb_client_connections": ("Open client connections.", lambda it: it.connections()),
    "slb_redis_up": ("1 while Redis answers.", lambda it: it.redis_answers),
    "slb_mirror_staleness_seconds": ("Since the mirror was last known to be true.", lambda it: it.staleness()),
    "slb_redis_polling": ("1 where notifications are not to be had.", lambda it: it.polling),
}
_BY_REASON: Mapping[str, tuple[str, Callable[[Metrics], Mapping[str, int]]]] = {
    "slb_retries": ("Attempts after the first.", lambda it: it.retries),
    "slb_retries_refused": ("Attempts that the retry budget did not allow.", lambda it: it.retries_refused),
    "slb_proxy_protocol_refused": (
        "Connections ended before they were at HTTP or TLS.",
        lambda it: it.proxy_protocol_refused,
    ),
    "slb_tls_handshake_failures": (
        "Clients that did not get through the TLS handshake.",
        lambda it: it.tls_handshake_failures,
    ),
}


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
        for name, (text, count) in _COUNTERS.items():
            yield CounterMetricFamily(name, text, value=count(metrics))
        for name, (text, figure) in _GAUGES.items():
            yield GaugeMetricFamily(name, text, value=figure(metrics))
        for name, (text, counts) in _BY_REASON.items():
            yield counters(name, text, ("reason",), by_one(counts(metrics)))
        text, ends = "When the certificate ends, in seconds since 1970.", by_one(metrics.tls_not_after)
        yield gauges("slb_tls_certificate_not_after_seconds", text, ("certificate",), ends)
        text, skipped = "Foreign or broken entries in Redis.", by_one(metrics.skipped)
        yield gauges("slb_skipped_entries", text, ("kind",), skipped)
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
    for member, count in metrics.global_inflight():
        yield (member, "global"), count


class SharedCollector(Collector):
    """Of the API and its listeners, of reloads and of the quota router: a supervisor counts these too."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        metrics = self._metrics
        failures = by_one(metrics.accept_failures)
        yield counters("slb_accept_failures", "Times nothing was accepted for a second.", ("listener",), failures)
        yield GaugeMetricFamily(
            "slb_api_connections", "Open connections to the API listener.", value=metrics.api_connections()
        )
        requests = [((str(code), reason), count) for (code, reason), count in list(metrics.api_requests.items())]
        text = "Requests to slb's own API, on either listener."
        yield counters("slb_api_requests", text, ("code", "reason"), requests)
        reloads = by_one(metrics.config_reloads)
        yield counters("slb_config_reloads", "Settings read anew.", ("result",), reloads)
        yield from quota_families(metrics.quota)


def admission_families(metrics: Metrics) -> Iterator[Metric]:
    """Of what waits for a slot, and of the ledger that gives them out."""
    yield from _waiting(metrics)
    yield from _ledger(metrics)


def _waiting(metrics: Metrics) -> Iterator[Metric]:
    depths = (((route, priority), count) for route, priority, count in metrics.queue_depth())
    text = "This instance's requests that wait for a slot."
    yield gauges("slb_queue_depth", text, ("route", "priority"), depths)
    pools = (((pool,), is_shared) for pool, is_shared in metrics.pools_shared())
    text = "1 while Redis decides who gets a pool's slots, 0 while this instance does."
    yield gauges("slb_ledger_shared", text, ("pool",), pools)
    waits = _of_routes(metrics, metrics.queue_wait)
    yield histograms("slb_queue_wait_seconds", "Of requests that had to wait for a slot.", waits)
    position = SummaryMetricFamily(
        "slb_queue_position", "How many of its class were before a request that had to wait.", labels=("route",)
    )
    for route, seen in _of_routes(metrics, metrics.queue_positions).items():
        position.add_metric((route,), seen["count"], seen["sum"])
    yield position
    yield counters("slb_shed", "Requests that got no slot.", ("reason",), by_one(metrics.shed))


def _ledger(metrics: Metrics) -> Iterator[Metric]:
    for name, text, value in (
        ("slb_ledger_reaped", "Dead instances whose slots were given back.", metrics.ledger_reaped),
        ("slb_ledger_drift", "By how much scores were not the sum of what is held.", metrics.ledger_drift),
        ("slb_ledger_repaired", "Damaged keys and fields of the ledger.", metrics.ledger_repaired),
        ("slb_ledger_grants_lapsed", "Grants that were not taken up in time.", metrics.grants_taken_back),
        ("slb_ledger_local", "Requests decided without Redis.", metrics.local_decisions),
        ("slb_ledger_local_grants", "Slots under a cap given out without Redis.", metrics.local_grants),
        ("slb_ledger_above_cap", "By how much upstreams have been seen to rise above caps.", metrics.above_cap),
    ):
        yield CounterMetricFamily(name, text, value=value)


def _of_routes(metrics: Metrics, by_route: Mapping[str, _T]) -> dict[str, _T]:
    """What a request adds after its route has left is shown no more."""
    return {route: counted for route, counted in list(by_route.items()) if metrics.traffic.is_route(route)}

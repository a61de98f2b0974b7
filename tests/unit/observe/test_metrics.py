"""What is counted, and how Prometheus reads it."""

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from slb.observe.collectors import MetricsCollector
from slb.observe.metrics import LATENCY_BOUNDS, Histogram, Metrics

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(metrics: Metrics) -> Samples:
    """What a scrape shows, as Prometheus would parse it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(MetricsCollector(metrics))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def ended(metrics: Metrics, upstream: str, status: int = 200, reason: str = "") -> None:
    metrics.request_ended("/p", upstream, status, reason, started=10.0, first_byte=10.02, ended=10.5)


def test_a_request_is_counted_by_route_upstream_code_and_reason(metrics: Metrics) -> None:
    ended(metrics, "a:80")
    ended(metrics, "a:80")
    ended(metrics, "", 503, "no_upstream")
    found = samples(metrics)
    assert value(found, "slb_requests_total", route="/p", upstream="a:80", code="200", reason="") == 2
    assert value(found, "slb_requests_total", route="/p", upstream="", code="503", reason="no_upstream") == 1


def test_a_request_to_the_api_is_counted_by_code_and_reason_and_is_no_traffic(metrics: Metrics) -> None:
    metrics.api_requests[404, "no_route"] += 2
    found = samples(metrics)
    assert value(found, "slb_api_requests_total", code="404", reason="no_route") == 2
    assert not [name for name, _ in found if name == "slb_requests_total"]


def test_how_long_requests_took_is_shown_per_route_and_never_per_upstream(metrics: Metrics) -> None:
    ended(metrics, "a:80")
    ended(metrics, "b:80")
    found = samples(metrics)
    assert value(found, "slb_request_duration_seconds_count", route="/p") == 2
    assert value(found, "slb_request_duration_seconds_sum", route="/p") == pytest.approx(1.0)
    assert value(found, "slb_request_duration_seconds_bucket", route="/p", le="0.25") == 0
    assert value(found, "slb_request_duration_seconds_bucket", route="/p", le="0.5") == 2
    assert value(found, "slb_time_to_first_byte_seconds_bucket", route="/p", le="0.025") == 2


def test_a_request_without_a_first_byte_is_not_in_that_histogram(metrics: Metrics) -> None:
    metrics.request_ended("/p", "", 502, "upstream_connect", 10.0, 0.0, 11.0)
    found = samples(metrics)
    assert value(found, "slb_time_to_first_byte_seconds_count", route="/p") is None
    assert value(found, "slb_request_duration_seconds_count", route="/p") == 1


def test_an_upstreams_series_end_with_it_and_sums_do_not_go_down(metrics: Metrics) -> None:
    for upstream in ("a:80", "a:80", "b:80"):
        ended(metrics, upstream)
    metrics.forget_upstreams(["a:80"])
    ended(metrics, "b:80")
    found = samples(metrics)
    assert value(found, "slb_requests_total", route="/p", upstream="a:80", code="200", reason="") is None
    assert value(found, "slb_requests_total", route="/p", upstream="b:80", code="200", reason="") == 2
    assert value(found, "slb_requests_total", route="/p", upstream="", code="200", reason="") == 2


def test_forgetting_nobody_changes_nothing(metrics: Metrics) -> None:
    ended(metrics, "a:80")
    before = samples(metrics)
    metrics.forget_upstreams([])
    metrics.forget_upstreams(["z:80"])
    assert samples(metrics) == before


@pytest.mark.parametrize("bound", [0.001, 1, 300])
def test_a_bucket_takes_in_its_own_bound(bound: float) -> None:
    histogram = Histogram()
    histogram.observe(bound)
    assert dict(histogram.buckets())[str(float(bound))] == 1


def test_buckets_are_cumulative_and_the_last_holds_everything() -> None:
    histogram = Histogram()
    for seconds in (0.0, 0.02, 7.0, 1e9):
        histogram.observe(seconds)
    counts = [count for _, count in histogram.buckets()]
    assert counts == sorted(counts)
    assert histogram.buckets()[-1] == ("+Inf", 4)
    assert len(counts) == len(LATENCY_BOUNDS) + 1


def test_gauges_are_read_when_they_are_asked_for(metrics: Metrics) -> None:
    busy = [("a:80", 3)]
    metrics.inflight = lambda: busy
    metrics.staleness = lambda: 1.5
    metrics.connections = lambda: 7
    metrics.redis_up = True
    found = samples(metrics)
    assert value(found, "slb_upstream_inflight", upstream="a:80", scope="local") == 3
    assert value(found, "slb_mirror_staleness_seconds") == 1.5
    assert value(found, "slb_client_connections") == 7
    assert value(found, "slb_redis_up") == 1
    busy.clear()
    assert value(samples(metrics), "slb_upstream_inflight", upstream="a:80", scope="local") is None


def test_a_scrape_while_requests_end_is_not_upset_by_new_series(metrics: Metrics) -> None:
    def inflight() -> Iterator[tuple[str, int]]:
        ended(metrics, "late:80")
        yield "late:80", 1

    ended(metrics, "a:80")
    metrics.inflight = inflight
    assert value(samples(metrics), "slb_upstream_inflight", upstream="late:80", scope="local") == 1


def test_every_name_is_ours_and_only_counters_end_in_total(metrics: Metrics) -> None:
    ended(metrics, "a:80")
    metrics.retries["upstream_connect"] += 1
    metrics.skipped["member"] = 1
    for family in MetricsCollector(metrics).collect():
        assert family.name.startswith("slb_")
        assert family.documentation
        totals = {sample.name.endswith("_total") for sample in family.samples}
        assert totals <= {family.type == "counter"}


def test_an_upstream_nobody_used_has_no_series_of_its_own(metrics: Metrics) -> None:
    ended(metrics, "used:80")
    metrics.inflight = lambda: [("used:80", 0), ("idle:80", 0), ("busy:80", 2)]
    shown = {
        upstream: value(samples(metrics), "slb_upstream_inflight", upstream=upstream, scope="local")
        for upstream in ("used:80", "idle:80", "busy:80")
    }
    assert shown == {"used:80": 0, "idle:80": None, "busy:80": 2}

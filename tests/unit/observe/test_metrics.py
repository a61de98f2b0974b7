"""What is counted, and how Prometheus reads it."""

import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from slb.build import build
from slb.observe.collectors import MetricsCollector
from slb.observe.families import LATENCY_BOUNDS, Histogram
from slb.observe.metrics import Metrics
from slb.observe.traffic import CODES

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


@dataclass(frozen=True)
class Upstream:
    member: str


@dataclass(frozen=True)
class Route:
    path: str = "/p"
    members: Sequence[Upstream] = ()


def table(**members: str) -> dict[str, Route]:
    """`table(p="a:80 b:80")`: the route /p of two upstreams."""
    return {
        f"/{name}": Route(f"/{name}", [Upstream(each) for each in text.split()]) for name, text in members.items()
    }


@dataclass(frozen=True)
class Request:
    route: Route = Route()
    started: float = 10.0
    sent_at: float = 10.25
    first_byte_at: float = 10.27
    bytes_in: int = 0
    bytes_out: int = 0


def ended(metrics: Metrics, upstream: str, status: int = 200, reason: str = "", route: str = "/p") -> None:
    metrics.traffic.request_ended(Request(Route(route)), upstream, status, reason, 10.5)


def total(metrics: Metrics, code: str, route: str = "/p") -> float | None:
    return value(samples(metrics), "slb_route_requests_total", route=route, code=code)


def labelled(metrics: Metrics, label: str, text: str) -> list[str]:
    """The samples with these labels."""
    return sorted({name for name, labels in samples(metrics) if (label, text) in labels})


def test_a_request_is_counted_by_route_upstream_code_and_reason(metrics: Metrics) -> None:
    ended(metrics, "a:80")
    ended(metrics, "a:80")
    ended(metrics, "", 503, "no_upstream")
    found = samples(metrics)
    assert value(found, "slb_requests_total", route="/p", upstream="a:80", code="200", reason="") == 2
    assert value(found, "slb_requests_total", route="/p", upstream="", code="503", reason="no_upstream") == 1


def test_a_request_to_the_api_is_counted_by_code_and_reason_and_is_no_traffic(metrics: Metrics) -> None:
    metrics.process.api_requests[404, "no_route"] += 2
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
    assert value(found, "slb_time_to_first_byte_seconds_bucket", route="/p", le="0.5") == 2


def test_a_request_without_a_first_byte_is_not_in_that_histogram(metrics: Metrics) -> None:
    request = Request(sent_at=0.0, first_byte_at=0.0)
    metrics.traffic.request_ended(request, "", 502, "upstream_connect", 11.0)
    found = samples(metrics)
    assert value(found, "slb_time_to_first_byte_seconds_count", route="/p") is None
    assert value(found, "slb_request_duration_seconds_count", route="/p") == 1


def test_an_upstreams_series_end_with_it_and_its_counts_become_no_others(metrics: Metrics) -> None:
    metrics.follow_routes(table(p="a:80 b:80"))
    for upstream in ("a:80", "a:80", "b:80", ""):
        ended(metrics, upstream, 502)
    metrics.follow_routes(table(p="b:80"))
    ended(metrics, "b:80", 502)
    found = samples(metrics)
    assert labelled(metrics, "upstream", "a:80") == []
    assert value(found, "slb_requests_total", route="/p", upstream="b:80", code="502", reason="") == 2
    assert value(found, "slb_requests_total", route="/p", upstream="", code="502", reason="") == 1
    assert total(metrics, "5xx") == 5


def test_a_routes_totals_are_there_before_its_first_request_and_never_go_down(metrics: Metrics) -> None:
    seen = []
    for members in ("a:80", "a:80 b:80", "b:80", "", "a:80"):
        metrics.follow_routes(table(p=members, q="c:80"))
        seen.append(total(metrics, "2xx"))
        ended(metrics, "a:80")
    assert seen == [0, 1, 2, 3, 4]
    assert [total(metrics, code) for code in CODES] == [0, 5, 0, 0, 0, 0]
    assert [total(metrics, code, "/q") for code in CODES] == [0] * len(CODES)


def test_what_no_route_took_has_totals_from_the_start_too(metrics: Metrics) -> None:
    assert [total(metrics, code, "") for code in CODES] == [0] * len(CODES)
    metrics.traffic.refused("", (404, "no_route"))
    assert total(metrics, "4xx", "") == 1


def test_all_series_of_a_route_end_with_it_and_it_starts_anew_when_it_returns(metrics: Metrics) -> None:
    metrics.follow_routes(table(p="a:80", q="a:80"))
    for route in ("/p", "/q"):
        ended(metrics, "a:80", route=route)
        metrics.queue.wait[route].observe(1.0)
        metrics.queue.positions[route].update(count=1, sum=2)
        metrics.health.panics[route] += 1
        metrics.health.panicking.add(route)
    metrics.follow_routes(table(q="a:80"))
    assert labelled(metrics, "route", "/p") == []
    assert metrics.health.panicking == {"/q"}
    metrics.follow_routes(table(p="a:80", q="a:80"))
    assert (total(metrics, "2xx"), total(metrics, "2xx", "/q")) == (0, 1)
    assert labelled(metrics, "route", "/p") == ["slb_route_requests_total"]
    ended(metrics, "a:80")
    assert value(samples(metrics), "slb_request_duration_seconds_count", route="/p") == 1


def test_what_ends_after_its_route_or_its_upstream_left_makes_no_series(metrics: Metrics) -> None:
    metrics.follow_routes(table(p="a:80"))
    ended(metrics, "gone:80")
    ended(metrics, "a:80", route="/gone")
    metrics.queue.wait["/gone"].observe(1.0)
    found = samples(metrics)
    assert labelled(metrics, "upstream", "gone:80") == labelled(metrics, "route", "/gone") == []
    assert value(found, "slb_requests_total", route="/p", upstream="", code="200", reason="") == 1
    assert value(found, "slb_requests_total", route="", upstream="", code="200", reason="") == 1
    assert value(found, "slb_request_bytes_total", route="") == 0


def test_an_upstream_that_leaves_one_of_its_routes_ends_there_alone(metrics: Metrics) -> None:
    metrics.follow_routes(table(p="a:80", q="a:80"))
    ended(metrics, "a:80")
    ended(metrics, "a:80", route="/q")
    metrics.follow_routes(table(p="b:80", q="a:80"))
    found = samples(metrics)
    assert [dict(labels)["route"] for _, labels in found if ("upstream", "a:80") in labels] == ["/q"] * 3


def test_ejections_and_checks_of_upstreams_that_left_stay_in_the_totals_alone(metrics: Metrics) -> None:
    assert value(samples(metrics), "slb_ejections_total") == 0
    assert value(samples(metrics), "slb_checks_total", result="failed") == 0
    for member in ("a:80", "b:80"):
        metrics.health.ejections[member, "502"] += 2
        metrics.health.checks[member, "failed"] += 3
    metrics.health.forget_upstreams(["a:80"])
    found = samples(metrics)
    assert labelled(metrics, "upstream", "a:80") == labelled(metrics, "upstream", "") == []
    assert value(found, "slb_upstream_ejections_total", upstream="b:80", reason="502") == 2
    assert value(found, "slb_health_checks_total", upstream="b:80", result="failed") == 3
    assert (value(found, "slb_ejections_total"), value(found, "slb_checks_total", result="failed")) == (4, 6)


def test_how_long_an_upstream_took_is_a_sum_and_a_count_since_it_was_sent_the_request(metrics: Metrics) -> None:
    ended(metrics, "a:80")
    ended(metrics, "a:80")
    metrics.traffic.request_ended(Request(sent_at=0.0), "a:80", 502, "upstream_connect", 10.5)
    found, name = samples(metrics), "slb_upstream_request_duration_seconds"
    assert value(found, f"{name}_count", route="/p", upstream="a:80") == 2
    assert value(found, f"{name}_sum", route="/p", upstream="a:80") == pytest.approx(0.5)


def test_bytes_of_bodies_are_counted_by_route(metrics: Metrics) -> None:
    for size in (3, 4):
        metrics.traffic.request_ended(Request(bytes_in=size, bytes_out=10 * size), "a:80", 200, "", 10.5)
    found = samples(metrics)
    assert value(found, "slb_request_bytes_total", route="/p") == 7
    assert value(found, "slb_response_bytes_total", route="/p") == 70


def test_the_versions_are_shown(metrics: Metrics) -> None:
    versions = {"version": build(), "python": platform.python_version()}
    assert value(samples(metrics), "slb_build_info", **versions) == 1


def test_forgetting_no_upstream_changes_nothing(metrics: Metrics) -> None:
    ended(metrics, "a:80")
    before = samples(metrics)
    metrics.health.forget_upstreams([])
    metrics.health.forget_upstreams(["z:80"])
    assert samples(metrics) == before


@pytest.mark.parametrize("bound", [0.001, 1, 300, 600])
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
    metrics.redis.staleness = lambda: 1.5
    metrics.clients.connections = lambda: 7
    metrics.redis.up = True
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
    metrics.redis.skipped["member"] = 1
    for family in MetricsCollector(metrics).collect():
        assert family.name.startswith("slb_")
        assert family.documentation
        totals = {sample.name.endswith("_total") for sample in family.samples}
        assert totals <= {family.type == "counter"}


def test_an_unused_upstream_has_no_series_of_its_own(metrics: Metrics) -> None:
    ended(metrics, "used:80")
    metrics.inflight = lambda: [("used:80", 0), ("idle:80", 0), ("busy:80", 2)]
    shown = {
        upstream: value(samples(metrics), "slb_upstream_inflight", upstream=upstream, scope="local")
        for upstream in ("used:80", "idle:80", "busy:80")
    }
    assert shown == {"used:80": 0, "idle:80": None, "busy:80": 2}

"""The workers' metrics added up."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from slb.observe.collectors import MetricsCollector
from slb.observe.metrics import Metrics
from slb.supervisor.sums import Families, Sums, parsed


def text_of(metrics: Metrics) -> str:
    registry = CollectorRegistry()
    registry.register(MetricsCollector(metrics))
    return generate_latest(registry).decode()


def worker(requests: int, redis_up: bool = True, staleness: float = 0.0) -> Metrics:
    metrics = Metrics()
    metrics.requests["/p", "10.0.0.1:80", 200, ""] = requests
    for _ in range(requests):
        metrics.durations["/p"].observe(0.02)
    metrics.redis_up = redis_up
    metrics.staleness = lambda: staleness
    metrics.inflight = lambda: [("10.0.0.1:80", 1)]
    return metrics


def value(families: Families, family: str, sample: str, **labels: str) -> float | None:
    return families[family].samples.get((sample, tuple(sorted(labels.items()))))


def requests_in(families: Families, upstream: str) -> float | None:
    return value(
        families, "slb_requests", "slb_requests_total", route="/p", upstream=upstream, code="200", reason=""
    )


def sums_of(*workers: Metrics) -> Sums:
    sums = Sums()
    for index, metrics in enumerate(workers):
        sums.read(index, text_of(metrics))
    return sums


def shown(sums: Sums) -> Families:
    return parsed(sums.text().decode())


def test_counters_histograms_and_requests_in_flight_are_added() -> None:
    families = shown(sums_of(worker(3), worker(4)))
    duration = "slb_request_duration_seconds"
    assert requests_in(families, "10.0.0.1:80") == 7
    assert value(families, duration, f"{duration}_count", route="/p") == 7
    assert value(families, duration, f"{duration}_bucket", route="/p", le="0.025") == 7
    assert value(families, duration, f"{duration}_bucket", route="/p", le="0.01") == 0
    inflight = "slb_upstream_inflight"
    assert value(families, inflight, inflight, upstream="10.0.0.1:80", scope="local") == 2


def test_what_all_say_of_the_whole_fleet_is_not_added() -> None:
    workers = [worker(1), worker(1)]
    for metrics, score in zip(workers, (4, 3), strict=True):
        metrics.global_inflight = lambda score=score: [("10.0.0.1:80", score)]  # type: ignore[misc]
        metrics.queue_depth = lambda: [("/p", "batch", 2)]
        metrics.pools_shared = lambda score=score: [("/p", score == 4)]  # type: ignore[misc]
    families = shown(sums_of(*workers))
    inflight, depth = "slb_upstream_inflight", "slb_queue_depth"
    assert value(families, inflight, inflight, upstream="10.0.0.1:80", scope="global") == 4
    assert value(families, inflight, inflight, upstream="10.0.0.1:80", scope="local") == 2
    assert value(families, depth, depth, route="/p", priority="batch") == 4
    assert value(families, "slb_ledger_shared", "slb_ledger_shared", pool="/p") == 0


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_states_the_worst_is_shown(order: tuple[int, int]) -> None:
    both = (worker(1, redis_up=True, staleness=0.5), worker(1, redis_up=False, staleness=9.5))
    families = shown(sums_of(*(both[index] for index in order)))
    assert value(families, "slb_redis_up", "slb_redis_up") == 0
    staleness = "slb_mirror_staleness_seconds"
    assert value(families, staleness, staleness) == 9.5


def test_counters_do_not_go_down_when_a_worker_dies() -> None:
    sums = sums_of(worker(3), worker(4))
    sums.ended(0)
    families = shown(sums)
    assert requests_in(families, "10.0.0.1:80") == 4
    assert requests_in(families, "") == 3
    sums.read("the next life of 0", text_of(worker(5)))
    assert requests_in(shown(sums), "10.0.0.1:80") == 9


def test_requests_in_flight_end_with_their_worker() -> None:
    sums = sums_of(worker(3), worker(4))
    sums.ended(0)
    inflight = "slb_upstream_inflight"
    assert value(shown(sums), inflight, inflight, upstream="10.0.0.1:80", scope="local") == 1


def test_the_sum_of_one_is_what_it_showed() -> None:
    metrics = worker(3)
    assert shown(sums_of(metrics)) == parsed(text_of(metrics))

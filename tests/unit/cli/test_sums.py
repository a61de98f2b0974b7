"""The workers' metrics added up."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from slb.job import ModelStats
from slb.observe.collectors import MetricsCollector
from slb.observe.exposition import text_of as text_in
from slb.observe.metrics import Metrics
from slb.supervisor.fleet import Fleet
from slb.supervisor.sums import Families, Sums, parsed

UPSTREAM = "10.0.0.1:80"
HISTOGRAM = "slb_request_duration_seconds"
DURATION = "slb_upstream_request_duration_seconds"


class Upstream:
    member = UPSTREAM


class Route:
    path = "/p"
    members = (Upstream(),)


class Request:
    route = Route()
    started = sent_at = first_byte_at = 10.0
    bytes_in = bytes_out = 0


def text_of(metrics: Metrics) -> str:
    registry = CollectorRegistry()
    registry.register(MetricsCollector(metrics))
    return generate_latest(registry).decode()


def worker(requests: int, redis_up: bool = True, staleness: float = 0.0) -> Metrics:
    metrics = Metrics()
    for _ in range(requests):
        metrics.traffic.request_ended(Request(), UPSTREAM, 200, "", 10.02)
    metrics.redis.up = redis_up
    metrics.redis.staleness = lambda: staleness
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


def test_figures_of_the_whole_fleet_are_not_added() -> None:
    workers = [worker(1), worker(1)]
    for metrics, score in zip(workers, (4, 3), strict=True):
        metrics.ledger.global_inflight = lambda score=score: [("10.0.0.1:80", score)]  # type: ignore[misc]
        metrics.queue.depth = lambda: [("/p", "batch", 2)]
        metrics.ledger.pools_shared = lambda score=score: [("/p", score == 4)]  # type: ignore[misc]
    families = shown(sums_of(*workers))
    inflight, depth = "slb_upstream_inflight", "slb_queue_depth"
    assert value(families, inflight, inflight, upstream="10.0.0.1:80", scope="global") == 4
    assert value(families, inflight, inflight, upstream="10.0.0.1:80", scope="local") == 2
    assert value(families, depth, depth, route="/p", priority="batch") == 4
    assert value(families, "slb_ledger_shared", "slb_ledger_shared", pool="/p") == 0


def test_what_each_worker_counts_of_the_same_events_is_not_added() -> None:
    workers = [worker(1), worker(1), worker(1)]
    for metrics, above in zip(workers, (2, 3, 0), strict=True):
        metrics.ledger.above_cap = above
    families = shown(sums_of(*workers))
    assert value(families, "slb_ledger_above_cap", "slb_ledger_above_cap_total") == 3


def test_what_each_worker_read_of_all_jobs_is_not_added() -> None:
    workers = [worker(1), worker(1)]
    for metrics, completed in zip(workers, (4, 5), strict=True):
        metrics.jobs.is_on, metrics.jobs.clock = True, lambda: 100.0
        stats = ModelStats(0, 3, 0, 0, 0, 0, 0, "one", 70.0, {"completed": completed})
        metrics.jobs.models = {"flux": stats}
    families = shown(sums_of(*workers))
    ended = {"model": "flux", "outcome": "completed"}
    assert value(families, "slb_job_outcomes", "slb_job_outcomes_total", **ended) == 5
    assert value(families, "slb_job_oldest_seconds", "slb_job_oldest_seconds", model="flux") == 30
    assert value(families, "slb_jobs", "slb_jobs", model="flux", state="queued") == 3


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_states_the_worst_is_shown(order: tuple[int, int]) -> None:
    both = (worker(1, redis_up=True, staleness=0.5), worker(1, redis_up=False, staleness=9.5))
    families = shown(sums_of(*(both[index] for index in order)))
    assert value(families, "slb_redis_up", "slb_redis_up") == 0
    staleness = "slb_mirror_staleness_seconds"
    assert value(families, staleness, staleness) == 9.5


def test_counters_do_not_change_when_a_worker_dies_and_its_next_life_adds_to_them() -> None:
    sums = sums_of(worker(3), worker(4))
    sums.ended(0)
    for _ in range(2):
        families = shown(sums)
        assert requests_in(families, "10.0.0.1:80") == 7
        assert requests_in(families, "") is None
        assert value(families, DURATION, f"{DURATION}_count", route="/p", upstream=UPSTREAM) == 7
    sums.read("the next life of 0", text_of(worker(5)))
    assert requests_in(shown(sums), "10.0.0.1:80") == 12


def test_an_upstreams_series_neither_goes_down_nor_ends_before_the_last_worker_let_go_of_it() -> None:
    workers = [worker(3), worker(4)]
    sums, seen = sums_of(*workers), []
    for index, metrics in enumerate(workers):
        metrics.follow_routes({})
        sums.read(index, text_of(metrics))
        seen.append(requests_in(shown(sums), UPSTREAM))
    assert seen == [7, None]


def test_a_series_that_one_worker_starts_again_adds_what_it_counts_from_then_on() -> None:
    sums = sums_of(worker(3), worker(4))
    sums.read(0, text_of(worker(2)))
    families = shown(sums)
    assert requests_in(families, UPSTREAM) == 9
    buckets = [
        count
        for (name, labels), count in families["slb_request_duration_seconds"].samples.items()
        if name.endswith("_bucket") and ("route", "/p") in labels
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 9


def test_totals_of_routes_in_the_sum_are_there_from_the_start() -> None:
    metrics = Metrics()
    metrics.follow_routes({"/p": Route()})
    families = shown(sums_of(metrics, worker(0)))
    assert value(families, "slb_route_requests", "slb_route_requests_total", route="/p", code="5xx") == 0


def test_what_a_dead_worker_alone_had_counted_without_a_route_stays() -> None:
    died = worker(1)
    died.retries["502"] += 2
    sums = sums_of(died, worker(1))
    sums.ended(0)
    assert value(shown(sums), "slb_retries", "slb_retries_total", reason="502") == 2


def test_requests_in_flight_end_with_their_worker() -> None:
    sums = sums_of(worker(3), worker(4))
    sums.ended(0)
    inflight = "slb_upstream_inflight"
    assert value(shown(sums), inflight, inflight, upstream="10.0.0.1:80", scope="local") == 1


def test_the_sum_of_one_is_what_it_showed() -> None:
    metrics = worker(3)
    assert shown(sums_of(metrics)) == parsed(text_of(metrics))


async def test_two_scrapes_at_once_count_nothing_twice() -> None:
    """What was read first would come last, and look like a counter that began anew."""
    values = iter((5, 7))

    async def own_metrics(open_metrics: bool) -> bytes:
        value = next(values)
        for _ in range(10 if value == 5 else 0):
            await asyncio.sleep(0)
        return b"# TYPE slb_full_syncs_total counter\nslb_full_syncs_total %d\n" % value

    fleet = Fleet([], Sums(), own_metrics, lambda _: None)
    texts = await asyncio.gather(fleet.metrics_text(False), fleet.metrics_text(False))
    assert [parsed(text.decode())["slb_full_syncs"].samples for text in texts] == [
        {("slb_full_syncs_total", ()): 5},
        {("slb_full_syncs_total", ()): 7},
    ]


def open_text_of(metrics: Metrics) -> str:
    return text_in(MetricsCollector(metrics).collect(), open_metrics=True).decode()


def test_of_the_workers_exemplars_the_latest_of_each_bucket_is_shown_where_the_scraper_reads_them() -> None:
    earlier, later = worker(1), worker(2)
    earlier.traffic.routes["/p"].durations.exemplify(0.02, "a" * 32, 100.0)
    earlier.traffic.routes["/p"].durations.exemplify(0.5, "b" * 32, 100.0)
    later.traffic.routes["/p"].durations.exemplify(0.02, "c" * 32, 200.0)
    sums = Sums()
    for source, metrics in (("later", later), ("earlier", earlier)):
        sums.read((source, 0), open_text_of(metrics))
    text = sums.text(open_metrics=True).decode()
    found = {key: exemplar.labels for key, exemplar in parsed(text)[HISTOGRAM].exemplars.items()}
    assert {dict(key[1])["le"]: labels["trace_id"] for key, labels in found.items()} == {
        "0.025": "c" * 32,
        "0.5": "b" * 32,
    }
    assert value(parsed(text), HISTOGRAM, f"{HISTOGRAM}_count", route="/p") == 3
    assert "trace_id" not in sums.text().decode()


def test_a_sum_is_the_same_in_both_formats_whichever_was_read_before() -> None:
    metrics, sums = worker(3), Sums()
    for text in (text_of(metrics), open_text_of(metrics), text_of(metrics)):
        sums.read(("one", 0), text)
    shown = [parsed(sums.text(is_open).decode()) for is_open in (False, True)]
    assert [{name: each.samples for name, each in families.items()} for families in shown] == [
        {name: each.samples for name, each in parsed(text_of(metrics)).items()}
    ] * 2

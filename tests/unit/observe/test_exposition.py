"""The text of a process, made beside its traffic."""

import asyncio
import sys

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from slb.observe.collectors import MetricsCollector
from slb.observe.exposition import text_of_process, wants_open_metrics
from slb.observe.metrics import Metrics
from tests.unit.observe.test_metrics import Request, Route, table

ROUTES = 300


def used(routes: int) -> Metrics:
    """Metrics of so many routes with two upstreams, both of them used."""
    metrics = Metrics()
    metrics.follow_routes(table(**{f"r{number}": "a:80 b:80" for number in range(routes)}))
    for number in range(routes):
        for upstream in ("a:80", "b:80"):
            metrics.traffic.request_ended(Request(Route(f"/r{number}")), upstream, 200, "", 10.5)
    return metrics


async def test_other_work_goes_on_while_a_large_text_is_made() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(count())
    text = await text_of_process(MetricsCollector(used(ROUTES)))
    beside.cancel()
    assert turns >= text.count(b"\n") / 1000


async def test_a_family_made_in_parts_has_one_head_and_each_sample_once() -> None:
    text = (await text_of_process(MetricsCollector(used(ROUTES)))).decode()
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert len(heads) == len(set(heads))
    samples = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(samples) == len(set(samples))
    for name, of_each in (("slb_route_requests_total", 6), ("slb_request_duration_seconds_count", 1)):
        assert sum(sample.startswith(name) for sample in samples) // of_each in (ROUTES, ROUTES + 1)
    assert sum(sample.startswith("slb_requests_total") for sample in samples) == 2 * ROUTES


async def test_it_is_what_the_client_library_would_write_with_the_metrics_of_the_process() -> None:
    metrics = used(3)
    text = (await text_of_process(MetricsCollector(metrics))).decode()
    whole = generate_latest(MetricsCollector(metrics)).decode()
    families = list(text_string_to_metric_families(text))
    ours = [each for each in families if each.name.startswith("slb_")]
    assert ours == list(text_string_to_metric_families(whole))
    if sys.platform == "linux":
        assert {"process_cpu_seconds", "process_open_fds"} <= {each.name for each in families}


async def test_in_open_metrics_a_large_text_is_one_too_and_has_exemplars() -> None:
    metrics = used(ROUTES)
    metrics.traffic.routes["/r7"].durations.exemplify(0.5, "a" * 32, 100.0)
    text = (await text_of_process(MetricsCollector(metrics), open_metrics=True)).decode()
    families = {each.name: each for each in open_metrics(text)}  # type: ignore[no-untyped-call]
    assert len(families["slb_requests"].samples) == 2 * ROUTES
    found = [each for each in families["slb_request_duration_seconds"].samples if each.exemplar]
    shown = [(each.labels["route"], each.labels["le"], each.exemplar and each.exemplar[:2]) for each in found]
    assert shown == [("/r7", "0.5", ({"trace_id": "a" * 32}, 0.5))]


async def test_text_for_others_has_no_exemplars() -> None:
    metrics = used(1)
    metrics.traffic.routes["/r0"].durations.exemplify(0.5, "a" * 32, 100.0)
    assert b"trace_id" not in await text_of_process(MetricsCollector(metrics))


@pytest.mark.parametrize(
    ("accept", "wants"),
    [
        ("application/openmetrics-text; version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("text/plain;version=0.0.4, application/openmetrics-text;q=0.2", True),
        ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_open_metrics_are_for_scrapers_that_name_them(accept: str, wants: bool) -> None:
    assert wants_open_metrics(accept) == wants

"""The text of a process, made beside its traffic."""

import asyncio
import sys

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from slb.observe.collectors import MetricsCollector
from slb.observe.exposition import text_of_process
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
    for name, of_each in (("slb_route_requests_total", 5), ("slb_request_duration_seconds_count", 1)):
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

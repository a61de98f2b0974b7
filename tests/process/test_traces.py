"""Traces of a real `slb serve`, as its collector gets them."""

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from slb import __version__
from slb.observe.exposition import OPEN_METRICS
from tests.process.commands import Commands, Serving
from tests.process.serving import in_flight, until_all_ready, with_upstream
from tests.support.collector import Collector, tree
from tests.support.waiting import eventually, until

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    made = await Collector().start()
    yield made
    await made.stop()


async def traced(slb: Commands, collector: Collector, *arguments: str, **env: str) -> Serving:
    """An instance with an upstream at /p, which traces as its environment says."""
    serving = await slb.serve(*arguments, env={"SLB_TRACE_ENDPOINT": collector.url, **env})
    await with_upstream(slb, serving, "--service-time", "200ms")
    return serving


async def test_a_request_is_sent_to_the_collector_with_who_recorded_it(slb: Commands, collector: Collector) -> None:
    headers = {"SLB_TRACE_HEADERS": "Authorization=Bearer%20hush", "SLB_TRACE_SERVICE": "edge"}
    serving = await traced(slb, collector, "--name", "one", SLB_TRACE_SHARE="0", **headers)
    assert (await slb.get(f"{serving.url}/p", traceparent=SAMPLED))[0] == 200
    spans = await collector.until(1)
    (found,) = tree(spans, PARENT)[1:]
    assert [name for name in found if isinstance(name, str)] == ["GET"]
    assert {each.trace for each in spans} == {TRACE}
    assert collector.headers[0]["Authorization"] == "Bearer hush"
    status = await slb.json(f"{serving.api}/status")
    (resource,) = collector.resources
    assert resource.pop("host.name")
    assert resource == {
        "service.name": "edge",
        "service.version": __version__,
        "service.instance.id": status["id"],
        "slb.instance": "one",
    }
    assert "hush" not in serving.process.log.read_text()


async def test_what_ended_last_is_sent_before_the_process_ends(slb: Commands, collector: Collector) -> None:
    serving = await traced(slb, collector, SLB_TRACE_SHARE="0")
    asked = asyncio.create_task(slb.get(f"{serving.url}/p", traceparent=SAMPLED))
    await in_flight(slb, serving, 1)
    assert await serving.process.stop() == 0
    assert (await asked)[0] == 200
    assert collector.requests == 1


async def test_a_collector_that_is_silent_does_not_hold_the_process_up(slb: Commands, collector: Collector) -> None:
    collector.answers = [None]
    serving = await traced(slb, collector, SLB_TRACE_SHARE="1")
    await eventually(lambda: len(collector.headers) > 0)
    assert (await slb.get(f"{serving.url}/p"))[0] == 200
    assert await serving.process.stop() == 0


async def test_workers_trace_and_their_sums_name_traces(slb: Commands, collector: Collector) -> None:
    serving = await traced(slb, collector, "--workers", "2", SLB_TRACE_SHARE="1")
    await until_all_ready(slb, serving)
    for _ in range(10):
        assert (await slb.get(f"{serving.url}/p"))[0] == 200
    before = collector.requests
    await until(lambda: scraped(slb, serving), lambda text: "# {trace_id=" in text)
    text = await scraped(slb, serving)
    list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]
    await eventually(lambda: collector.requests >= max(before, 10))
    named = set(re.findall(r'# \{trace_id="([0-9a-f]{32})"\}', text))
    await eventually(lambda: named <= {each.trace for each in collector.spans})
    status, plain = await slb.get(f"{serving.api}/metrics")
    assert (status, "trace_id" in plain, plain.endswith("# EOF\n")) == (200, False, False)


async def scraped(slb: Commands, serving: Serving) -> str:
    status, text = await slb.get(f"{serving.api}/metrics", Accept=OPEN_METRICS)
    assert status == 200
    return text

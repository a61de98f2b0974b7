"""What an autoscaler is told by real instances, of requests and jobs that really wait."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import orjson
import pytest

from tests.process.commands import Commands
from tests.process.dispatchers import Dispatchers
from tests.process.serving import until_all_ready
from tests.support.valkey import Valkey
from tests.support.waiting import until

SETTINGS = {
    "policy": "least_inflight",
    "max_inflight": 1,
    "when_full": "queue",
    "queue_timeout": "1h",
    "first_byte_timeout": "1h",
}


async def asked(slb: Commands, url: str, demand: int) -> Any:
    """The answer once it is this demand. On a busy machine it may be refused for a moment: Redis is late."""
    is_it = f'"demand":{demand},'
    _, text = await until(
        lambda: slb.get(url), lambda found: found[0] == 200 and is_it in found[1], 60, f"{url}: {is_it}"
    )
    return orjson.loads(text)


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_requests_of_all_instances_are_in_the_answer_of_each(
    slb: Commands, valkey: Valkey, workers: str
) -> None:
    one = await slb.until_ready(await slb.serve("--workers", workers, redis=valkey.url))
    await until_all_ready(slb, one)
    other = await slb.until_ready(await slb.serve(redis=valkey.url))
    await slb.upstream("a", "--register", one.api, "--path", "/p", "--service-time", "1h")
    for api in (one.api, other.api):
        await slb.until_status(f"{api}/routes/p", 200)
    async with slb.session.patch(f"{one.api}/routes/p", json=SETTINGS) as reply:
        assert reply.status == 200
    for api in (one.api, other.api):
        await slb.until_status(f"{api}/scale/p", 200)
    async with AsyncExitStack() as stack:
        for url in (one.url, one.url, other.url):
            request = asyncio.create_task(slb.session.get(f"{url}/p", timeout=None))
            stack.callback(request.cancel)
        for api in (one.api, other.api):
            shown = await asked(slb, f"{api}/scale/p", demand=3)
            assert shown["queued"] + shown["in_flight"] == 3
            assert (shown["upstreams"], shown["slots"], shown["load"]) == (1, 1, 3.0)


async def test_jobs_that_wait_are_in_the_answer_for_their_models_route(slb: Commands, valkey: Valkey) -> None:
    dispatchers = Dispatchers(slb, valkey)
    serving = await dispatchers.serve()
    body = {"model": "flux", "endpoint": "http://127.0.0.1:9/generate"}
    await dispatchers.ask("POST", f"{serving.api}/admin/register", body)
    await dispatchers.ask("PATCH", f"{serving.api}/upstreams/127.0.0.1:9", {"drain": True})
    for name in ("one", "two", "three"):
        await dispatchers.submit(serving, name)
    shown = await asked(slb, f"{serving.api}/scale/jobs/flux", demand=3)
    assert (shown["jobs"], shown["upstreams"], shown["slots"], shown["load"]) == (3, 0, 0, 3.0)
    await dispatchers.ask("PATCH", f"{serving.api}/admin/model-configs/flux", {"paused": True})
    await asked(slb, f"{serving.api}/scale/jobs/flux", demand=0)

"""What an autoscaler is told by real instances, of requests and jobs that really wait."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.process.commands import Commands
from tests.process.dispatchers import Dispatchers
from tests.process.serving import until_all_ready
from tests.support.valkey import Valkey


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
    settings = {"policy": "least_inflight", "max_inflight": 1, "when_full": "queue", "queue_timeout": "10m"}
    async with AsyncExitStack() as stack:
        async with slb.session.patch(f"{one.api}/routes/p", json=settings) as reply:
            assert reply.status == 200
        for url in (one.url, one.url, other.url):
            request = asyncio.create_task(slb.get(f"{url}/p"))
            stack.callback(request.cancel)
        for api in (one.api, other.api):
            shown = await slb.until_json(f"{api}/scale/p", lambda found: found["demand"] == 3)
            assert (shown["queued"], shown["in_flight"], shown["slots"], shown["load"]) == (2, 1, 1, 3.0)


async def test_jobs_that_wait_are_in_the_answer_for_their_models_route(slb: Commands, valkey: Valkey) -> None:
    dispatchers = Dispatchers(slb, valkey)
    serving = await dispatchers.serve()
    body = {"model": "flux", "endpoint": "http://127.0.0.1:9/generate"}
    await dispatchers.ask("POST", f"{serving.api}/admin/register", body)
    await dispatchers.ask("PATCH", f"{serving.api}/upstreams/127.0.0.1:9", {"drain": True})
    for name in ("one", "two", "three"):
        await dispatchers.submit(serving, name)
    shown = await slb.until_json(f"{serving.api}/scale/jobs/flux", lambda found: found["jobs"] == 3)
    assert (shown["demand"], shown["upstreams"], shown["slots"], shown["load"]) == (3, 0, 0, 3.0)
    await dispatchers.ask("PATCH", f"{serving.api}/admin/model-configs/flux", {"paused": True})
    await slb.until_json(f"{serving.api}/scale/jobs/flux", lambda found: found["demand"] == 0)

"""`slb upstream` as a process: it joins and leaves without a failed request."""

import asyncio

from tests.process.commands import Commands, Serving
from tests.support.valkey import Valkey
from tests.support.waiting import until


async def members(slb: Commands, serving: Serving) -> list[str]:
    route = await slb.json(f"{serving.api}/routes/p")
    return [member["member"] for member in route["members"]]


async def test_it_registers_itself_and_deregisters_when_stopped(slb: Commands, valkey: Valkey) -> None:
    serving = await slb.until_ready(await slb.serve(redis=valkey.url))
    leaving, first = await slb.upstream("a", "--register", serving.api, "--path", "/p")
    _, second = await slb.upstream("b", "--register", serving.api, "--path", "/p")
    await until(lambda: members(slb, serving), lambda found: sorted(found) == sorted([first, second]))
    leave = asyncio.create_task(leaving.stop())
    while not leave.done():
        status, text = await slb.get(f"{serving.url}/p")
        assert status == 200, text
    assert await leave == 0
    assert await members(slb, serving) == [second]


async def test_started_before_slb_it_waits_for_it(slb: Commands, valkey: Valkey) -> None:
    serving = await slb.until_ready(await slb.serve(redis=valkey.url))
    valkey.kill()
    await slb.until_status(f"{serving.api}/healthz", 200)
    await slb.upstream("a", "--register", serving.api, "--path", "/p")
    valkey.start()
    await slb.until_status(f"{serving.url}/p", 200)


async def test_by_the_data_listener_it_registers_with_the_token_only(slb: Commands, valkey: Valkey) -> None:
    closed = await slb.until_ready(await slb.serve(redis=valkey.url))
    words = ("--path", "/p", "--register")
    refused = await slb.run("upstream", *words, closed.url)
    assert refused.code == 1
    assert "only the API listener takes registrations" in refused.err
    serving = await slb.serve(redis=valkey.url, env={"SLB_API_TOKEN": "sesame"})
    _, member = await slb.upstream("a", *words, serving.url, "--token", "sesame")
    await slb.until_status(f"{serving.url}/p", 200)
    assert valkey.admin.smembers("slb_p") == {member}


async def test_a_registration_that_is_refused_is_one_line(slb: Commands, valkey: Valkey) -> None:
    serving = await slb.until_ready(await slb.serve(redis=valkey.url))
    result = await slb.run(
        "upstream", "--register", serving.api, "--path", "/p", "--advertise", serving.url.removeprefix("http://")
    )
    assert result.code == 1
    assert "own listener" in result.err
    assert len(result.err.splitlines()) == 1


async def test_as_a_gpu_server_it_runs_the_jobs_of_a_dispatcher(slb: Commands, valkey: Valkey) -> None:
    serving = await slb.until_ready(await slb.serve("--roles", "proxy,jobs", redis=valkey.url))
    manner = ("--slots", "2", "--direct-queue", "10", "--async", "--service-time", "50ms")
    _, member = await slb.upstream("a", *manner)
    config = {"model_type": "async", "poll_endpoint_template": "/status/{id}", "poll_interval": "20ms"}
    body = {"model": "flux", "endpoint": f"http://{member}/generate", "slots": 2}
    for method, path, asked in (
        ("PUT", "/admin/model-configs/flux", config),
        ("POST", "/admin/register", body),
        ("POST", "/queue/submit", {"model": "flux", "payload": "x", "job_id": "job"}),
    ):
        async with slb.session.request(method, f"{serving.api}{path}", json=asked) as reply:
            assert reply.status < 300, await reply.text()
    ended = await slb.until_json(f"{serving.api}/queue/jobs/job", lambda job: job["status"] == "completed")
    assert ended["result"]["upstream"] == "a"

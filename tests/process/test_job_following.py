"""What a GPU runs on its own when its dispatcher dies: another follows it, wherever slots are."""

import asyncio
import os
import signal

from tests.process.commands import Serving
from tests.process.dispatchers import MODEL, Dispatchers, MakeGpu
from tests.support.gpus import Gpu
from tests.support.waiting import eventually, within

CONFIG = {
    "model_type": "async",
    "poll_endpoint_template": "/status/{id}",
    "cancel_endpoint_template": "/cancel/{id}",
    "poll_interval": 0.05,
}


async def begun(jobs: Dispatchers, at: Serving, there: Gpu) -> None:
    """The job `long` runs at the GPU, and it is noted where."""
    await jobs.register(at, there, **CONFIG)
    await jobs.submit(at, "long")
    await eventually(lambda: there.asked > 0)


async def until_followed(jobs: Dispatchers, at: Serving) -> dict[str, object]:
    """The job, once the second attempt at it has begun."""
    async with within(30):
        while (job := await jobs.job(at, "long"))["attempts"] < 2:
            await asyncio.sleep(0.05)
    return dict(job)


async def test_it_is_followed_by_another_and_begins_once(jobs: Dispatchers, gpu: MakeGpu) -> None:
    one, other = [await jobs.serve() for _ in range(2)]
    there = await gpu(is_async=True, holds=True)
    await begun(jobs, one, there)
    one.process.kill()
    there.go.set()
    (ended,) = await jobs.until_ended(other, ["long"])
    assert (ended["status"], ended["result"]) == ("completed", "remote-long")
    assert there.begun == {"long": 1}


async def test_its_end_is_seen_while_other_work_has_the_slot(jobs: Dispatchers, gpu: MakeGpu) -> None:
    one, other = [await jobs.serve() for _ in range(2)]
    there = await gpu(is_async=True, holds=True)
    await begun(jobs, one, there)
    queues = {"policy": "least_inflight", "max_inflight": 1, "when_full": "queue", "pool": f"/jobs/{MODEL}"}
    await jobs.ask("PATCH", f"{other.api}/routes/generate", queues)
    target = there.endpoint.removesuffix("/generate")
    await jobs.ask("POST", f"{other.api}/register", {"path": "/generate", "target": target})
    online = asyncio.ensure_future(jobs.slb.session.post(f"{other.url}/generate", json=1))
    one.process.kill()
    await until_followed(jobs, other)
    await eventually(lambda: there.running == 1)  # the request has the slot that the dead instance had
    url = f"{other.api}/fleet/upstreams/{target.removeprefix('http://')}"
    await jobs.slb.until_json(url, lambda found: found["inflight"] == 2 and not found["unknown"], timeout=60)
    there.done.add("remote-long")
    (ended,) = await jobs.until_ended(other, ["long"])
    assert (ended["status"], ended["result"]) == ("completed", "remote-long")
    assert not online.done()
    there.go.set()
    async with within(30):
        assert (await online).status == 200
    await jobs.submit(other, "next")  # no slot is lost
    (ended,) = await jobs.until_ended(other, ["next"])
    assert there.begun == {"long": 1, "online": 1, "next": 1}


async def test_a_follower_takes_the_slot_that_is_free_and_is_shown_where_the_job_runs(
    jobs: Dispatchers, gpu: MakeGpu
) -> None:
    one, other = [await jobs.serve() for _ in range(2)]
    there, elsewhere = await gpu(is_async=True, holds=True), await gpu(is_async=True, holds=True)
    await begun(jobs, one, there)
    await jobs.register(one, elsewhere)
    one.process.kill()
    job = await until_followed(jobs, other)
    assert f"http://{job['upstream']}/generate" == there.endpoint
    for id_ in ("second", "third"):
        await jobs.submit(other, id_)
    await eventually(lambda: elsewhere.begun["second"] == 1)
    await eventually(lambda: elsewhere.asked > 3)
    assert there.begun == {"long": 1}  # its slot is the follower's: `third` waits
    there.done.add("remote-long")
    await eventually(lambda: there.begun["third"] == 1)
    for each in (there, elsewhere):
        each.go.set()
    await jobs.until_ended(other, ["long", "second", "third"])


async def test_it_is_followed_while_its_model_is_paused_and_its_gpu_drains(jobs: Dispatchers, gpu: MakeGpu) -> None:
    one, other = [await jobs.serve() for _ in range(2)]
    there = await gpu(is_async=True, holds=True)
    await begun(jobs, one, there)
    member = there.endpoint.removeprefix("http://").removesuffix("/generate")
    await jobs.ask("PATCH", f"{one.api}/upstreams/{member}", {"drain": True})
    await jobs.ask("PUT", f"{one.api}/admin/model-configs/{MODEL}", {**CONFIG, "paused": True})
    os.kill(one.process.pid, signal.SIGKILL)
    await until_followed(jobs, other)
    there.go.set()
    (ended,) = await jobs.until_ended(other, ["long"])
    assert (ended["status"], there.begun) == ("completed", {"long": 1})


async def test_an_instance_that_stops_leaves_it_to_another_at_once(jobs: Dispatchers, gpu: MakeGpu) -> None:
    one, other = await jobs.serve("--drain-timeout", "100ms"), await jobs.serve()
    there = await gpu(is_async=True, holds=True)
    await begun(jobs, one, there)
    await one.process.stop()
    asked = there.asked
    await eventually(lambda: there.asked > asked)
    there.go.set()
    (ended,) = await jobs.until_ended(other, ["long"])
    assert (ended["status"], ended["attempts"], there.begun) == ("completed", 1, {"long": 1})


async def test_cancelled_by_then_it_is_cancelled_at_its_gpu(jobs: Dispatchers, gpu: MakeGpu) -> None:
    one, other = [await jobs.serve() for _ in range(2)]
    there = await gpu(is_async=True, holds=True)
    await begun(jobs, one, there)
    one.process.kill()
    await until_followed(jobs, other)
    assert (await jobs.ask("DELETE", f"{other.api}/queue/jobs/long"))["was"] == "processing"
    await eventually(lambda: there.cancelled == ["remote-long"])


async def test_where_its_gpu_has_left_it_is_tried_elsewhere(jobs: Dispatchers, gpu: MakeGpu) -> None:
    one, other = [await jobs.serve() for _ in range(2)]
    there, elsewhere = await gpu(is_async=True, holds=True), await gpu(is_async=True)
    await begun(jobs, one, there)
    member = there.endpoint.removeprefix("http://").removesuffix("/generate")
    os.kill(one.process.pid, signal.SIGSTOP)
    await jobs.ask("DELETE", f"{other.api}/register", {"path": f"/jobs/{MODEL}", "target": member})
    await jobs.register(other, elsewhere)
    one.process.kill()
    (ended,) = await jobs.until_ended(other, ["long"])
    assert (ended["status"], elsewhere.begun) == ("completed", {"long": 1})

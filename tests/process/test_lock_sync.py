"""A GPU that still runs what slb gave up: its slot is free when it says so."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.process.commands import Commands, Serving
from tests.support.gpus import Gpu
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

ROLES = ("--roles", "proxy,jobs", "--drain-timeout", "1s")
SYNC = {"health_endpoint": "/health", "sync_interval": "100ms"}


@pytest.fixture
async def gpu() -> AsyncIterator[Gpu]:
    """A GPU of one slot, whose jobs run on when their caller leaves."""
    async with AsyncExitStack() as stack:
        made = Gpu(holds=True, goes_on=True)
        await made.server.start_server()
        stack.push_async_callback(made.server.close)
        stack.callback(made.go.set)
        yield made


@pytest.fixture
async def instance(slb: Commands, valkey: Valkey) -> Serving:
    return await slb.until_ready(await slb.serve(*ROLES, redis=valkey.url))


async def ask(slb: Commands, instance: Serving, method: str, path: str, body: Any = None) -> None:
    async with slb.session.request(method, f"{instance.api}{path}", json=body) as reply:
        assert reply.status < 300, await reply.text()


async def set_up(slb: Commands, instance: Serving, gpu: Gpu, **config: Any) -> None:
    """Two jobs wait for the GPU, and it has the first."""
    await ask(slb, instance, "PUT", "/admin/model-configs/flux", config)
    await ask(slb, instance, "POST", "/admin/register", {"model": "flux", "endpoint": gpu.endpoint})
    for id_ in ("first", "second"):
        await ask(slb, instance, "POST", "/queue/submit", {"model": "flux", "payload": id_, "job_id": id_})
    await eventually(lambda: gpu.begun["first"] == 1)


async def held_back(slb: Commands, instance: Serving) -> float:
    _, metrics = await slb.get(f"{instance.api}/metrics")
    (line,) = [each for each in metrics.splitlines() if each.startswith('slb_job_slots_held_back{model="flux"}')]
    return float(line.split()[-1])


async def test_the_slot_of_a_cancelled_job_is_held_back_while_its_gpu_runs_it(
    slb: Commands, valkey: Valkey, instance: Serving, gpu: Gpu
) -> None:
    await set_up(slb, instance, gpu, **SYNC)
    await ask(slb, instance, "DELETE", "/queue/jobs/first")
    await eventually(lambda: gpu.looks >= 5)
    assert gpu.begun == {"first": 1}
    assert await held_back(slb, instance) == 1
    gpu.go.set()
    await slb.until_json(f"{instance.api}/queue/jobs/second", lambda job: job["status"] == "completed")
    assert (gpu.begun, gpu.most) == ({"first": 1, "second": 1}, 1)
    assert await held_back(slb, instance) == 0


async def test_the_slot_of_an_attempt_that_timed_out_is_free_at_the_latest_after_as_long_again(
    slb: Commands, valkey: Valkey, instance: Serving, gpu: Gpu
) -> None:
    await set_up(slb, instance, gpu, **SYNC, max_processing_time="1s", max_retries=0)
    await slb.until_json(f"{instance.api}/queue/jobs/first", lambda job: job["status"] == "dead_lettered")
    await eventually(lambda: gpu.begun["second"] == 1)
    assert gpu.looks >= 2
    assert gpu.most == 2


async def test_without_a_health_endpoint_the_slot_is_free_at_once(
    slb: Commands, valkey: Valkey, instance: Serving, gpu: Gpu
) -> None:
    await set_up(slb, instance, gpu)
    await ask(slb, instance, "DELETE", "/queue/jobs/first")
    await eventually(lambda: gpu.begun["second"] == 1)
    assert gpu.looks == 0


async def test_what_a_silent_instance_had_at_an_idle_gpu_begins_again_before_its_lease_is_over(
    slb: Commands, valkey: Valkey, instance: Serving, gpu: Gpu
) -> None:
    other = await slb.until_ready(await slb.serve(*ROLES, redis=valkey.url))
    await set_up(slb, instance, gpu, **SYNC)
    os.kill(instance.process.pid, signal.SIGSTOP)
    try:
        gpu.go.set()  # its answer is for an instance that does not read it
        await slb.until_json(f"{other.api}/queue/jobs/second?model=flux", lambda job: job["status"] == "completed")
        ended = await slb.json(f"{other.api}/queue/jobs/first?model=flux")
        assert (ended["status"], ended["attempts"], ended["failures"]) == ("completed", 2, 0)
        assert '"event":"job_gpu_idle"' in other.process.log.read_text()
    finally:
        os.kill(instance.process.pid, signal.SIGCONT)
    assert (gpu.begun, gpu.most) == ({"first": 2, "second": 1}, 1)


async def test_a_job_whose_gpu_is_registered_and_away_is_tried_elsewhere(
    slb: Commands, valkey: Valkey, instance: Serving
) -> None:
    """It is to be followed there, by another instance than the one that began it."""
    async with AsyncExitStack() as stack:
        there, elsewhere = [Gpu(is_async=True, holds=holds) for holds in (True, False)]
        for each in (there, elsewhere):
            await each.server.start_server()
            stack.push_async_callback(each.server.close)
        config = {"model_type": "async", "poll_endpoint_template": "/status/{id}", "poll_interval": "50ms"}
        await set_up(slb, instance, there, **config, max_processing_time="1s", retry_backoff="10ms")
        await eventually(lambda: there.asked > 0)  # the instance has noted where it runs
        other = await slb.until_ready(await slb.serve(*ROLES, redis=valkey.url))
        await ask(slb, other, "POST", "/admin/register", {"model": "flux", "endpoint": elsewhere.endpoint})
        instance.process.kill()
        await there.server.close()
        for id_ in ("first", "second"):
            url = f"{other.api}/queue/jobs/{id_}?model=flux"
            await slb.until_json(url, lambda job: job["status"] == "completed")
        assert there.begun["first"] == elsewhere.begun["first"] == 1

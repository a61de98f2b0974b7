"""Jobs across processes: whatever dies, each one that was acknowledged ends, and once."""

import asyncio
import os
import re
import signal
import time
from itertools import pairwise

import orjson
import pytest

from tests.process.dispatchers import MODEL, Dispatchers, MakeGpu
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, within


async def test_jobs_of_two_instances_share_the_slots_and_each_runs_once(jobs: Dispatchers, gpu: MakeGpu) -> None:
    one, other = [await jobs.serve() for _ in range(2)]
    gpus = [await gpu() for _ in range(2)]
    for each in gpus:
        await jobs.register(one, each)
    ids = [f"job-{number}" for number in range(40)]
    await asyncio.gather(*(jobs.submit((one, other)[number % 2], id_) for number, id_ in enumerate(ids)))
    ended = await jobs.until_ended(other, ids)
    assert [each["result"] for each in ended] == [{"of": id_} for id_ in ids]
    assert gpus[0].begun + gpus[1].begun == dict.fromkeys(ids, 1)
    assert [each.most for each in gpus] == [1, 1]
    assert gpus[0].headers["X-Source"] == "dispatcher"


@pytest.mark.parametrize("model", ["llama3:8b", "a@b", "q-._+x", "org/llama:8b@v1"])
async def test_jobs_of_a_model_run_whatever_its_id_has_in_it(jobs: Dispatchers, gpu: MakeGpu, model: str) -> None:
    one, here = await jobs.serve(), await gpu()
    await jobs.ask("POST", f"{one.api}/admin/register", {"model": model, "endpoint": here.endpoint})
    await jobs.submit(one, "job", model=model)
    ended = await jobs.ask("GET", f"{one.api}/queue/jobs/job?wait=60s")
    assert (ended["status"], ended["model"], ended["result"]) == ("completed", model, {"of": "job"})
    assert list((await jobs.ask("GET", f"{one.api}/queue/stats"))["models"]) == [model]


@pytest.mark.parametrize("answer", [b'{"image": "x"}\n', b'{\r\n  "image":\r  "x"\n}\n\n'])
async def test_line_ends_in_a_gpus_answer_end_no_event(jobs: Dispatchers, gpu: MakeGpu, answer: bytes) -> None:
    one, here = await jobs.serve(), await gpu()
    here.answers = [(200, answer)]
    await jobs.register(one, here)
    await jobs.submit(one, "job")
    await jobs.until_ended(one, ["job"])
    async with within(20), jobs.slb.session.get(f"{one.api}/queue/events?job_id=job") as reply:
        lines = re.split("\r\n|\r|\n", (await reply.content.read()).decode())  # as WHATWG's EventSource does
    assert [each.partition(":")[0] for each in lines] == ["id", "event", "data", "", ""]
    assert orjson.loads(lines[2].removeprefix("data: "))["result"] == {"image": "x"}


async def test_the_jobs_of_a_killed_dispatcher_begin_again_elsewhere(jobs: Dispatchers, gpu: MakeGpu) -> None:
    one, other = [await jobs.serve() for _ in range(2)]
    held = [await gpu(holds=True) for _ in range(2)]
    for each in held:
        await jobs.register(one, each)
    ids = [f"job-{number}" for number in range(6)]
    for id_ in ids:
        await jobs.submit(one, id_)
    await eventually(lambda: all(each.running == 1 for each in held))
    one.process.kill()
    for each in held:
        each.go.set()
    ended = await jobs.until_ended(other, ids)
    assert [each["status"] for each in ended] == ["completed"] * 6
    begun = held[0].begun + held[1].begun
    assert set(begun) == set(ids)
    assert sum(begun.values()) <= 6 + 2  # what ran at the kill, and no other, began twice
    assert [each.most for each in held] == [1, 1]


async def test_no_acknowledged_job_is_lost_with_redis(jobs: Dispatchers, gpu: MakeGpu, valkey: Valkey) -> None:
    one = await jobs.serve()
    here = await gpu(holds=True)
    await jobs.register(one, here)
    ids = [f"job-{number}" for number in range(20)]
    for id_ in ids:
        await jobs.submit(one, id_)
    await eventually(lambda: here.running == 1)
    valkey.kill()
    here.go.set()  # it ends while Redis is away
    await eventually(lambda: here.running == 0)
    valkey.start()
    async with within(30):
        while (await jobs.slb.get(f"{one.api}/queue/stats"))[0] != 200:
            await asyncio.sleep(0.05)
    ended = await jobs.until_ended(one, ids)
    assert [each["status"] for each in ended] == ["completed"] * 20
    assert here.begun == dict.fromkeys(ids, 1)


async def test_what_ended_while_redis_was_away_is_known_to_the_next_instance_and_runs_once(
    jobs: Dispatchers, gpu: MakeGpu, valkey: Valkey
) -> None:
    one = await jobs.serve()
    here = await gpu(holds=True)
    await jobs.register(one, here)
    for id_ in ("first", "second"):
        await jobs.submit(one, id_)
    await eventually(lambda: here.running == 1)
    valkey.kill()
    here.go.set()
    data = jobs.slb.directory / "data"
    await eventually(lambda: any(b'"first"' in each.read_bytes() for each in data.glob("job-outcomes-*.jsonl")))
    one.process.kill()
    valkey.start()
    is_back = time.time()
    again = await jobs.serve()
    ended = await jobs.until_ended(again, ["first", "second"])
    assert ended[0]["completed_at"] < is_back < ended[1]["completed_at"]
    assert [each["result"] for each in ended] == [{"of": "first"}, {"of": "second"}]
    assert here.begun == {"first": 1, "second": 1}
    await eventually(lambda: not list(data.glob("job-outcomes-*")))


async def test_what_a_dead_instance_wrote_down_is_told_by_another_of_its_machine(
    jobs: Dispatchers, gpu: MakeGpu, valkey: Valkey
) -> None:
    one = await jobs.serve()
    here = await gpu(holds=True)
    await jobs.register(one, here)
    await jobs.submit(one, "first")
    await eventually(lambda: here.running == 1)
    other = await jobs.serve()
    valkey.kill()
    here.go.set()
    data = jobs.slb.directory / "data"
    await eventually(lambda: any(b'"first"' in each.read_bytes() for each in data.glob("job-outcomes-*.jsonl")))
    one.process.kill()
    valkey.start()
    async with within(30):
        while (await jobs.slb.get(f"{other.api}/queue/stats"))[0] != 200:
            await asyncio.sleep(0.05)
    (ended,) = await jobs.until_ended(other, ["first"])
    assert (ended["result"], here.begun) == ({"of": "first"}, {"first": 1})


async def test_a_job_that_is_cancelled_while_it_runs_leaves_its_slot_to_the_next(
    jobs: Dispatchers, gpu: MakeGpu
) -> None:
    one = await jobs.serve()
    here = await gpu(holds=True)
    await jobs.register(one, here)
    for id_ in ("first", "second"):
        await jobs.submit(one, id_)
    await eventually(lambda: here.begun["first"] == 1)
    cancelled = await jobs.ask("DELETE", f"{one.api}/queue/jobs/first")
    assert cancelled == {"job_id": "first", "status": "cancelled", "was": "processing"}
    await eventually(lambda: here.dropped == 1)
    await eventually(lambda: here.begun["second"] == 1)
    await jobs.ask("DELETE", f"{one.api}/queue/jobs/first", wanted=409)
    async with jobs.slb.session.get(f"{one.api}/metrics") as reply:
        assert 'slb_job_attempts_total{model="flux",outcome="dropped"} 1.0' in await reply.text()
    await eventually(lambda: '"outcome":"dropped"' in one.process.log.read_text())  # written with others


async def test_a_busy_gpu_costs_a_job_no_attempt_and_a_failing_one_does(jobs: Dispatchers, gpu: MakeGpu) -> None:
    one = await jobs.serve()
    here = await gpu()
    here.answers = [(503, {}), (500, {"error": "out of memory"})]
    await jobs.register(one, here, retry_backoff=0.05, max_retries=3)
    await jobs.submit(one, "job", metadata={"user": 7})
    (ended,) = await jobs.until_ended(one, ["job"])
    assert (ended["status"], ended["attempts"], ended["failures"]) == ("completed", 2, 1)
    assert ended["metadata"] == {"user": 7}
    assert here.begun["job"] == 3


async def test_a_gpu_that_stays_busy_is_left_alone_for_longer_and_its_job_waits(
    jobs: Dispatchers, gpu: MakeGpu
) -> None:
    one = await jobs.serve()
    here = await gpu()
    here.answers = [(503, {})] * 3
    await jobs.register(one, here)
    await jobs.submit(one, "job")
    await eventually(lambda: here.begun["job"] == 3)
    await eventually(lambda: '"outcome":"busy"' in one.process.log.read_text())  # written with others
    waiting = await jobs.job(one, "job")
    assert (waiting["status"], waiting["attempts"]) == ("queued", 0)
    await jobs.until_ended(one, ["job"])
    first, second, third = (later - earlier for earlier, later in pairwise(here.begun_at))
    assert (first > 0.9, second > 1.9, third > 3.9) == (True, True, True)  # it may be late, and not early


async def test_an_instance_that_stops_lets_its_jobs_end_and_takes_no_more(jobs: Dispatchers, gpu: MakeGpu) -> None:
    one, other = [await jobs.serve() for _ in range(2)]
    here = await gpu(holds=True)
    await jobs.register(one, here)
    for id_ in ("first", "second"):
        await jobs.submit(one, id_)
    await eventually(lambda: here.running == 1)
    os.kill(one.process.pid, signal.SIGTERM)
    await jobs.slb.until_status(f"{one.api}/readyz", 503)
    here.go.set()
    ended = await jobs.until_ended(other, ["first", "second"])
    assert [each["status"] for each in ended] == ["completed"] * 2
    assert here.begun == {"first": 1, "second": 1}


async def test_a_route_without_a_cap_gives_each_job_its_slot_at_once(jobs: Dispatchers, gpu: MakeGpu) -> None:
    one = await jobs.serve()
    here = await gpu()
    target = here.endpoint.removesuffix("/generate")
    await jobs.ask("POST", f"{one.api}/register", {"path": f"/jobs/{MODEL}", "target": target})
    ids = [f"job-{number}" for number in range(50)]
    for id_ in ids:
        await jobs.submit(one, id_)
    await jobs.until_ended(one, ids)
    assert here.begun == dict.fromkeys(ids, 1)


async def test_when_a_waiting_job_will_have_ended_is_known_once_another_has(
    jobs: Dispatchers, gpu: MakeGpu
) -> None:
    one, other = [await jobs.serve() for _ in range(2)]
    here = await gpu(holds=True)
    await jobs.register(one, here)
    for id_ in ("first", "second", "third"):
        await jobs.submit(one, id_)
    await eventually(lambda: here.running == 1)
    assert (await jobs.job(other, "third"))["eta"] is None
    here.go.set()
    await jobs.until_ended(one, ["first", "second", "third"])
    here.go.clear()
    for id_ in ("fourth", "fifth"):
        await jobs.submit(one, id_)
    await eventually(lambda: here.running == 1)
    waiting = await jobs.job(other, "fifth")
    assert (waiting["position"], waiting["status"]) == (0, "queued")
    assert waiting["eta"] >= 0
    assert "eta" not in await jobs.job(other, "fourth")
    here.go.set()
    await jobs.until_ended(one, ["fourth", "fifth"])


async def test_what_is_set_on_a_new_model_holds_at_every_instance_from_its_first_job_on(
    jobs: Dispatchers, gpu: MakeGpu
) -> None:
    one, other = [await jobs.serve() for _ in range(2)]
    there = await gpu(is_async=True)
    config = {"model_type": "async", "poll_endpoint_template": "/status/{id}", "poll_interval": 0.05}
    await jobs.register(one, there, **config)
    async with within(20):
        while (await jobs.slb.get(f"{other.api}/routes/jobs/{MODEL}"))[0] != 200:
            await asyncio.sleep(0.001)
    await jobs.submit(other, "first")
    (ended,) = await jobs.until_ended(other, ["first"])
    assert (ended["status"], ended["result"]) == ("completed", "remote-first")


async def test_what_is_set_on_models_is_back_after_redis_has_lost_its_data(
    jobs: Dispatchers, gpu: MakeGpu, valkey: Valkey
) -> None:
    one = await jobs.serve()
    here = await gpu(is_async=True)
    await jobs.register(one, here, model_type="async", poll_endpoint_template="/status/{id}", poll_interval=0.05)
    await jobs.ask("PUT", f"{one.api}/admin/model-configs/still", {"paused": True})
    before = await jobs.ask("GET", f"{one.api}/admin/model-configs")
    valkey.admin.flushall()
    await jobs.submit(one, "job")
    (ended,) = await jobs.until_ended(one, ["job"])
    assert (ended["status"], ended["attempts"]) == ("completed", 1)
    assert await jobs.ask("GET", f"{one.api}/admin/model-configs") == before
    fresh = await jobs.serve()
    assert await jobs.ask("GET", f"{fresh.api}/admin/model-configs") == before


async def test_jobs_of_a_model_that_nothing_is_known_of_are_seen_after_a_restart(jobs: Dispatchers) -> None:
    one = await jobs.serve()
    await jobs.ask("PUT", f"{one.api}/admin/model-configs/{MODEL}", {"max_retries": 3})
    await jobs.submit(one, "job")
    await jobs.ask("DELETE", f"{one.api}/admin/model-configs/{MODEL}")
    one.process.kill()
    fresh = await jobs.serve()
    assert (await jobs.job(fresh, "job"))["status"] == "queued"
    assert list((await jobs.ask("GET", f"{fresh.api}/queue/stats"))["models"]) == [MODEL]

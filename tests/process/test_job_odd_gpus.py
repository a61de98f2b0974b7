"""GPUs that answer in words of their own: a job ends with its GPU's word for that, and with no other."""

import asyncio
from typing import Any

import pytest

from tests.process.commands import Serving
from tests.process.dispatchers import MODEL, Dispatchers, MakeGpu
from tests.support.gpus import Gpu
from tests.support.waiting import eventually, within

ASYNC = {"model_type": "async", "poll_endpoint_template": "/status/{id}", "poll_interval": 0.05}


async def test_a_job_in_runpods_words_is_polled_and_its_progress_is_shown(jobs: Dispatchers, gpu: MakeGpu) -> None:
    one = await jobs.serve()
    there = await gpu(is_async=True, holds=True)
    there.answers = [(200, {"id": "x", "status": "IN_QUEUE"})]
    half = {"status": "IN_PROGRESS", "progress": 0.5, "output": ["a"]}
    there.polls = [(200, {"id": "x", "status": "IN_QUEUE"}), (200, {"progress": 0.3}), (200, []), (200, half)]
    await jobs.register(one, there, **ASYNC)
    await jobs.submit(one, "job")
    async with within(60):
        while (job := await jobs.job(one, "job")).get("progress") != 0.5:
            await asyncio.sleep(0.05)
    assert (job["status"], job["output"]) == ("processing", ["a"])
    events = f"{one.api}/queue/events?job_id=job&model={MODEL}"
    async with jobs.slb.session.get(events) as stream, within(60):
        while b'"progress":0.5' not in await stream.content.readline():
            pass
    there.polls = [(200, {"status": "COMPLETED", "output": ["a", "b"]})]
    (ended,) = await jobs.until_ended(one, ["job"])
    assert (ended["status"], ended["result"]["output"]) == ("completed", ["a", "b"])
    assert not ended.keys() & {"progress", "output"}
    assert there.begun == {"job": 1}


@pytest.mark.parametrize("word", ["FAILED", "TIMED_OUT", "canceled"])
async def test_a_word_of_failure_is_a_failed_attempt(jobs: Dispatchers, gpu: MakeGpu, word: str) -> None:
    one = await jobs.serve()
    there = await gpu(is_async=True)
    there.polls = [(200, {"status": word, "error": "CUDA OOM"})]
    await jobs.register(one, there, **ASYNC, max_retries=0)
    await jobs.submit(one, "job")
    (ended,) = await jobs.until_ended(one, ["job"])
    assert (ended["status"], ended["error"]) == ("dead_lettered", "CUDA OOM")


async def test_a_job_runs_on_behind_an_answer_that_says_nothing_of_it(jobs: Dispatchers, gpu: MakeGpu) -> None:
    one = await jobs.serve()
    there = await gpu(is_async=True)
    odd: list[tuple[int, Any]] = [(200, b"<html>"), (200, b""), (204, b""), (302, b""), (408, b""), (404, b"")]
    there.polls = [each for answer in odd for each in (answer, (200, {"status": "running"}))]
    await jobs.register(one, there, **ASYNC)
    await jobs.submit(one, "job")
    (ended,) = await jobs.until_ended(one, ["job"])
    assert (ended["status"], ended["attempts"], there.begun) == ("completed", 1, {"job": 1})


async def test_the_slot_of_what_its_gpu_may_still_run_is_not_given_to_another_job(
    jobs: Dispatchers, gpu: MakeGpu
) -> None:
    one = await jobs.serve()
    there = await gpu(is_async=True, holds=True)
    there.polls = [(200, b"<html>")] * 5
    await jobs.register(one, there, **ASYNC, sync_interval=0.1, retry_backoff=0.05)
    await jobs.submit(one, "first")
    await eventually(lambda: there.asked > 0)
    await jobs.submit(one, "second")
    await eventually(lambda: there.asked > 10)
    assert there.begun == {"first": 1}
    there.done.add("remote-first")
    await eventually(lambda: sum(there.begun.values()) == 2)
    there.go.set()
    assert [job["status"] for job in await jobs.until_ended(one, ["first", "second"])] == ["completed"] * 2


async def test_a_report_without_a_word_for_an_end_is_progress(jobs: Dispatchers, gpu: MakeGpu) -> None:
    one, two = await jobs.serve(), await jobs.serve()
    there = await gpu(is_async=True)
    await jobs.register(one, there, model_type="async", poll_interval=0.05)
    await jobs.submit(one, "job")
    await eventually(lambda: there.begun["job"] == 1)

    async def report(answer: object) -> None:
        url = f"{two.api}/tasks/callback/job?model={MODEL}"
        async with jobs.slb.session.post(url, json=answer, headers={"X-Job-Attempt": "1.1"}) as reply:
            assert reply.status == 200

    await report({"progress": 0.4})
    job = await jobs.job(two, "job")
    assert (job["status"], job["progress"]) == ("processing", 0.4)
    await report({"status": "success", "result": 7})
    await report({"progress": 0.9})  # it was sent before, and comes late
    (ended,) = await jobs.until_ended(two, ["job"])
    assert (ended["status"], ended["result"]) == ("completed", 7)


@pytest.mark.parametrize("status", [404, 401, 405, 409, 421])
async def test_a_gpu_that_refuses_all_jobs_costs_none_while_another_takes_them(
    jobs: Dispatchers, gpu: MakeGpu, status: int
) -> None:
    one = await jobs.serve()
    sick, well = await gpu(), await gpu()
    sick.answers = [(status, {"detail": "no"})] * 1000
    for each in (sick, well):
        await jobs.register(one, each, retry_backoff=0.05)
    ids = [f"job-{number}" for number in range(20)]
    for id_ in ids:
        await jobs.submit(one, id_)
    assert {job["status"] for job in await jobs.until_ended(one, ids)} == {"completed"}
    assert sum(well.begun.values()) == len(ids)


async def two_slots(jobs: Dispatchers, at: Serving, there: Gpu, **config: Any) -> None:
    await jobs.ask("PUT", f"{at.api}/admin/model-configs/{MODEL}", config)
    await jobs.ask("POST", f"{at.api}/admin/register", {"model": MODEL, "endpoint": there.endpoint, "slots": 2})


@pytest.mark.parametrize("head", [{}, {"Retry-After": "1"}])
async def test_jobs_that_a_gpu_has_no_time_for_do_not_stop_the_others_and_end(
    jobs: Dispatchers, gpu: MakeGpu, head: dict[str, str]
) -> None:
    one = await jobs.serve()
    there = await gpu()
    poison, others = ["bad-0", "bad-1"], [f"job-{number}" for number in range(20)]
    there.refused, there.refused_with = dict.fromkeys(poison, (429, {"error": "too long"})), head
    await two_slots(jobs, one, there, retry_backoff=0.05, max_busy_answers=2)
    for id_ in (*poison, *others):
        await jobs.submit(one, id_)
    assert {job["status"] for job in await jobs.until_ended(one, others)} == {"completed"}
    for number in range(20):  # that it is the job is known by others that are taken
        if all(["completed_at" in await jobs.job(one, id_) for id_ in poison]):
            break
        await jobs.submit(one, f"more-{number}")
        await jobs.until_ended(one, [f"more-{number}"])
        await asyncio.sleep(0.5)
    for job in await jobs.until_ended(one, poison):
        assert (job["status"], job["busy_answers"], job["attempts"]) == ("dead_lettered", 2, 1)
        assert job["error"] == (
            'GPUs were busy for it 2 times while they took others: status 429: {"error": "too long"}'
        )
    assert len(there.begun) >= 22


async def test_a_gpu_that_has_no_time_for_any_job_is_busy_and_none_of_them_ends(
    jobs: Dispatchers, gpu: MakeGpu
) -> None:
    one = await jobs.serve()
    there = await gpu()
    ids = [f"job-{number}" for number in range(6)]
    there.refused = dict.fromkeys(ids, (503, {}))
    await two_slots(jobs, one, there, retry_backoff=0.05, max_busy_answers=1)
    for id_ in ids:
        await jobs.submit(one, id_)
    await eventually(lambda: len(there.order) > 8, 40)
    assert len(there.begun) > 3
    shown = [await jobs.job(one, id_) for id_ in ids]
    assert {job["status"] for job in shown} <= {"queued", "retrying", "processing"}
    assert any(job.get("error") == "status 503: {}" for job in shown)
    there.refused.clear()
    assert {job["status"] for job in await jobs.until_ended(one, ids)} == {"completed"}

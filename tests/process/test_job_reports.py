"""GPUs that report by themselves how a job goes, and are never asked."""

from tests.process.dispatchers import Dispatchers, MakeGpu
from tests.support.waiting import eventually


async def test_a_job_ends_with_what_its_gpu_reports_at_any_instance(jobs: Dispatchers, gpu: MakeGpu) -> None:
    one, two = await jobs.serve(), await jobs.serve()
    here = await gpu(is_async=True)
    await jobs.register(one, here, model_type="async", poll_interval=0.05)
    await jobs.submit(one, "one")
    await eventually(lambda: here.begun["one"] == 1)

    async def report(answer: object, attempt: str = "1.1", job: str = "one") -> int:
        url = f"{two.api}/tasks/callback/{job}?model=flux"
        async with jobs.slb.session.post(url, json=answer, headers={"X-Job-Attempt": attempt}) as reply:
            return reply.status

    assert await report({"status": "success", "result": 0}, attempt="7.1") == 409
    assert await report({"status": "success", "result": 0}, attempt="") == 400
    assert await report({"status": "success", "result": 0}, job="none") == 404
    assert await report({"status": "running"}) == 200
    assert await report({"status": "success", "result": {"url": "x"}}) == 200
    (ended,) = await jobs.until_ended(two, ["one"])
    assert (ended["status"], ended["result"], here.asked) == ("completed", {"url": "x"}, 0)
    assert await report({"status": "success", "result": 0}) == 409

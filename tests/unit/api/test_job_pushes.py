"""Jobs that wait for tasks of Cloud Tasks: from their submission to the answer of the push, with the stand-in of
tests/support/cloud_tasks.py, real slots and a GPU of the tests' own."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import orjson
import pytest

from slb.admission.gates import Gates
from slb.api.parts import ApiParts
from slb.control.connection import Connection
from slb.control.ledger import Ledger
from slb.jobs.cloud_tasks import SECRET_HEADER, CloudTasks, Target, TaskTiming
from slb.jobs.gpu_call import Answer as GpuAnswer
from slb.jobs.gpu_call import GpuRequest
from slb.jobs.pushes import Pushes, by_secret
from slb.jobs.service import JobService
from slb.jobs.task_parts import NO_TASKS, TaskParts
from tests.support.cloud_tasks import CloudTasksStub
from tests.support.waiting import eventually, patience, until_found
from tests.unit.api.conftest import Api, ApiMaker, Json
from tests.unit.api.jobs_rig import job_service

FLUX = "/admin/model-configs/flux"
BUFFERED = {"buffer": "cloud-tasks", "retry_backoff": "20ms", "longest_backoff": "20ms", "max_retries": 3}
QUEUE = "projects/acme/locations/europe-west1/queues/gpu-flux"
SECRET = {SECRET_HEADER: "known to both"}
TIMING = TaskTiming(slot_within=patience(0.5), hold=0.2, lost=0.5, look=0.05)


class Gpu:
    """`begun`: how often each job was; jobs stay while `go` is not set; `answers` come first, as statuses."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.go = asyncio.Event()
        self.go.set()
        self.answers: list[int] = []

    async def __call__(self, request: GpuRequest) -> GpuAnswer:
        self.begun[request.headers["X-Job-Id"]] += 1
        if self.answers:
            return GpuAnswer(self.answers.pop(0), b"{}")
        await self.go.wait()
        return GpuAnswer(200, orjson.dumps({"status": "success", "result": orjson.loads(request.body)}))


class Rig(NamedTuple):
    api: Api
    stub: CloudTasksStub
    gpu: Gpu
    service: JobService

    @property
    def limit(self) -> int:
        """How many tasks may be under way at once."""
        queue = self.stub.queues.get(QUEUE)
        return queue.limits["maxConcurrentDispatches"] if queue else 0

    async def submit(self, *ids: str) -> None:
        for id_ in ids:
            body = {"model": "flux", "payload": id_, "job_id": id_}
            answer = await self.api.call("POST", "/queue/submit", body)
            assert (answer.status, answer.json["status"], answer.json["position"]) == (202, "buffered", -1)

    async def register(self, slots: int) -> None:
        """A GPU; its slots are known to Cloud Tasks on return. Before the first one Cloud Tasks knows of none,
        which is a limit of 1 as well."""
        await eventually(lambda: self.told > 0)
        told = self.told
        body = {"model": "flux", "endpoint": "http://127.0.0.1:9/generate", "slots": slots}
        assert (await self.api.call("POST", "/admin/register", body)).status == 200
        await eventually(lambda: self.told > told and self.limit == slots)

    @property
    def told(self) -> int:
        """How often Cloud Tasks was told what the queue may do."""
        return sum(method == "PATCH" for method, *_ in self.stub.calls)

    async def job(self, id_: str) -> Json:
        return (await self.api.call("GET", f"/queue/jobs/{id_}")).json

    async def until(self, id_: str, status: str) -> Json:
        async def look() -> Json | None:
            job = await self.job(id_)
            return job if job["status"] == status else None

        return await until_found(look)

    async def push(self, id_: str, head: Mapping[str, str] = SECRET, model: str = "flux") -> tuple[int, str]:
        """What a task's push is answered with."""
        answer = await self.api.call("POST", "/tasks/handle", {"model": model, "job_id": id_}, headers=head)
        return answer.status, answer.json.get("error", "")


def parts_of(stub: CloudTasksStub, timing: TaskTiming) -> TaskParts:
    queues, url = QUEUE.removesuffix("-flux"), "http://slb.example/tasks/handle"
    secret = SECRET[SECRET_HEADER]
    return TaskParts(CloudTasks(Target(queues, stub.url, url, secret=secret), None), by_secret(secret), timing)


@asynccontextmanager
async def make_rig(
    serve: ApiMaker, parts: ApiParts, stub: CloudTasksStub, tasks: TaskParts, folder: Path
) -> AsyncIterator[Rig]:
    gpu = Gpu()
    ledger = Ledger(parts.connection, "here", parts.metrics, Random(1))
    gates = Gates(ledger, parts.mirror, parts.metrics, lambda: 1, Random(1))
    service = job_service(parts, gates, folder, gpu, tasks)
    working = [asyncio.create_task(work) for work in (ledger.run(), gates.run(), service.runtime.run())]
    api = await serve(jobs=service)
    stub.resolves["http://slb.example"] = f"http://{api.host}:{api.port}"
    yield Rig(api, stub, gpu, service)
    gpu.go.set()
    await service.runtime.leave(0.0)
    await stub.stop()
    for task in working:
        task.cancel()
    await asyncio.wait(working)


@pytest.fixture
async def stub() -> CloudTasksStub:
    return await CloudTasksStub().start()


@pytest.fixture
async def rig(
    serve: ApiMaker, connection: Connection, parts: ApiParts, stub: CloudTasksStub, tmp_path: Path
) -> AsyncIterator[Rig]:
    """The model `flux` is buffered; no GPU is registered."""
    async with make_rig(serve, parts, stub, parts_of(stub, TIMING), tmp_path) as rig:
        assert (await rig.api.call("PUT", FLUX, BUFFERED)).status == 200
        yield rig


async def test_a_job_runs_when_its_task_is_sent_and_the_task_is_done_when_it_has_ended(rig: Rig) -> None:
    await rig.register(2)
    await rig.submit(*(f"job-{number}" for number in range(9)))
    for number in range(9):
        job = await rig.until(f"job-{number}", "completed")
        assert (job["result"], job["task_retries"]) == (f"job-{number}", 0)
    await eventually(lambda: rig.stub.answers == [200] * 9)
    assert set(rig.gpu.begun.values()) == {1}
    assert (rig.limit, rig.stub.queues[QUEUE].most) == (2, 2)
    assert rig.stub.tasks == {}


async def test_a_queue_follows_the_slots_of_its_model(rig: Rig) -> None:
    await eventually(lambda: rig.limit == 1)  # no upstream is registered
    await rig.register(3)
    await rig.register(5)
    assert [method for method, *_ in rig.stub.calls] == ["PATCH"] * 3


async def test_a_push_that_finds_no_slot_is_sent_again_later_and_burns_no_attempt(rig: Rig) -> None:
    await rig.register(1)
    rig.stub.queues[QUEUE].limits["maxConcurrentDispatches"] = 9  # somebody has changed it by hand
    rig.gpu.go.clear()
    await rig.submit("one", "two")
    await eventually(lambda: rig.stub.answers.count(429) >= 2)
    waiting, running = Counter(rig.gpu.begun), {"one", "two"}
    ((first, _),) = waiting.items()
    (other,) = running - {first}
    assert (await rig.job(first))["status"] == "processing"
    rig.gpu.go.set()
    job = await rig.until(other, "completed")
    assert (job["attempts"], rig.gpu.begun[other]) == (1, 1)
    assert job["task_retries"] >= 1


async def test_a_task_that_is_sent_twice_runs_its_job_once(rig: Rig) -> None:
    await rig.register(1)
    rig.gpu.go.clear()
    await rig.submit("one")
    pushes = [asyncio.create_task(rig.push("one")) for _ in range(3)]
    await eventually(lambda: rig.gpu.begun["one"] == 1)
    rig.gpu.go.set()
    assert await asyncio.gather(*pushes) == [(200, "")] * 3
    assert rig.gpu.begun == {"one": 1}
    assert await rig.push("one") == (200, "")
    assert await rig.push("none") == (200, "")  # it is no job, or none any more


async def test_a_task_whose_deadline_passes_while_its_job_runs_waits_for_the_same_attempt(rig: Rig) -> None:
    rig.stub.deadline = 0.3
    await rig.register(1)
    rig.gpu.go.clear()
    await rig.submit("one")
    await eventually(lambda: rig.stub.answers.count(0) >= 2)
    rig.gpu.go.set()
    job = await rig.until("one", "completed")
    await eventually(lambda: rig.stub.answers[-1] == 200)
    assert (rig.gpu.begun["one"], job["attempts"]) == (1, 1)
    assert job["task_retries"] >= 1


async def test_a_push_whose_caller_has_left_ends(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    running, take = Counter[str](), Pushes.take

    async def counted(*given: Any) -> None:
        running[given[2]] += 1
        try:
            await take(*given)
        finally:
            running[given[2]] -= 1

    monkeypatch.setattr(Pushes, "take", counted)
    await rig.register(1)
    rig.gpu.go.clear()
    await rig.submit("one")
    await eventually(lambda: rig.gpu.begun["one"] == 1)
    before = running["one"]
    push = asyncio.create_task(rig.push("one"))
    await eventually(lambda: running["one"] == before + 1)
    push.cancel()
    await asyncio.wait([push])
    await eventually(lambda: running["one"] == before)
    rig.gpu.go.set()
    await rig.until("one", "completed")


async def test_a_job_that_takes_longer_than_its_push_may_goes_on(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slb.jobs.pushes.deadline_of", lambda config: 5.2)
    await rig.register(1)
    rig.gpu.go.clear()
    await rig.submit("one")
    await eventually(lambda: rig.stub.answers.count(503) >= 2)
    assert await rig.push("one") == (503, "job_unended")
    rig.gpu.go.set()
    await rig.until("one", "completed")
    assert rig.gpu.begun["one"] == 1


async def test_an_attempt_that_failed_is_made_again_while_its_task_waits(rig: Rig) -> None:
    await rig.register(1)
    rig.gpu.answers = [500, 503, 500]
    await rig.submit("one")
    job = await rig.until("one", "completed")
    assert (job["attempts"], job["failures"]) == (3, 2)
    await eventually(lambda: rig.stub.answers == [200])
    rig.gpu.answers = [500] * 4
    await rig.submit("dead")
    await rig.until("dead", "dead_lettered")
    await eventually(lambda: rig.stub.answers == [200, 200])
    assert (await rig.api.call("POST", "/admin/dlq/dead/retry")).status == 200
    assert (await rig.until("dead", "completed"))["attempts"] == 5  # without another task


async def test_a_task_that_cannot_be_made_is_made_later(rig: Rig) -> None:
    await rig.register(1)
    rig.stub.refuses = 503
    await rig.submit("one")
    await eventually(lambda: sum(method == "POST" for method, *_ in rig.stub.calls) >= 2)
    assert (await rig.job("one"))["status"] == "buffered"
    rig.stub.refuses = None
    await rig.until("one", "completed")


async def test_a_queue_that_somebody_has_removed_is_made_again(rig: Rig) -> None:
    await rig.register(3)
    rig.stub.queues.clear()
    await rig.submit("one")
    await rig.until("one", "completed")
    assert rig.limit == 3


async def test_a_task_that_was_lost_is_made_again_and_one_that_was_not_stays_the_only_one(rig: Rig) -> None:
    await rig.register(1)
    rig.stub.holds = True
    await rig.submit("one")
    await eventually(lambda: len(rig.stub.tasks) == 1)
    await eventually(lambda: sum(method == "GET" for method, *_ in rig.stub.calls) >= 2)
    (name,) = rig.stub.tasks
    await rig.stub.lose_tasks()
    await eventually(lambda: bool(rig.stub.tasks))
    assert name not in rig.stub.tasks
    rig.stub.holds = False
    await rig.stub.let_go()
    await rig.until("one", "completed")
    assert rig.gpu.begun["one"] == 1


async def test_a_job_that_is_cancelled_before_its_task_comes_is_not_run(rig: Rig) -> None:
    await rig.register(1)
    rig.stub.holds = True
    await rig.submit("one")
    await eventually(lambda: len(rig.stub.tasks) == 1)
    assert (await rig.api.call("DELETE", "/queue/jobs/one")).json["was"] == "buffered"
    rig.stub.holds = False
    await rig.stub.let_go()
    await eventually(lambda: rig.stub.answers == [200])
    assert rig.gpu.begun == {}


async def test_jobs_go_on_without_tasks_when_their_model_has_another_buffer(rig: Rig) -> None:
    await rig.register(1)
    rig.stub.refuses = 403
    await rig.submit("one")
    assert (await rig.api.call("PUT", FLUX, {})).status == 200
    job = await rig.until("one", "completed")
    assert "task_retries" not in job


@pytest.mark.parametrize("head", [{}, {SECRET_HEADER: "another"}, {SECRET_HEADER: ""}, {"Authorization": "x"}])
async def test_what_cloud_tasks_has_not_sent_is_refused(rig: Rig, head: Mapping[str, str]) -> None:
    assert await rig.push("one", head) == (401, "unauthorized")


async def test_a_push_that_cannot_be_read_is_refused_by_name(rig: Rig) -> None:
    assert await rig.push("one", model="none") == (404, "unknown_model")
    assert await rig.push("a.b") == (400, "bad_request")
    stats = (await rig.api.call("GET", "/queue/stats")).json["models"]["flux"]
    assert stats["buffered"] == 0


async def test_an_instance_that_leaves_answers_its_pushes(rig: Rig) -> None:
    await rig.register(1)
    rig.gpu.go.clear()
    await rig.submit("one")
    await eventually(lambda: rig.gpu.begun["one"] == 1)
    push = asyncio.create_task(rig.push("one"))
    leaving = asyncio.create_task(rig.service.runtime.leave(0.5))
    assert await push == (503, "draining")
    await leaving


async def test_a_task_is_made_at_once(
    serve: ApiMaker, connection: Connection, parts: ApiParts, stub: CloudTasksStub, tmp_path: Path
) -> None:
    async with make_rig(serve, parts, stub, parts_of(stub, TaskTiming(look=3600.0)), tmp_path) as rig:
        assert (await rig.api.call("PUT", FLUX, BUFFERED)).status == 200
        await rig.submit("one")
        await eventually(lambda: len(rig.stub.tasks) == 1)


async def test_a_model_is_not_buffered_where_there_are_no_settings_for_it(
    serve: ApiMaker, connection: Connection, parts: ApiParts, stub: CloudTasksStub, tmp_path: Path
) -> None:
    async with make_rig(serve, parts, stub, NO_TASKS, tmp_path) as rig:
        answer = await rig.api.call("PUT", FLUX, BUFFERED)
        assert (answer.status, answer.json["detail"]) == (400, "buffer: jobs_tasks_queues is not set here")
        assert await rig.push("one") == (401, "unauthorized")

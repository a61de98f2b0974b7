"""What is asked of Cloud Tasks, against the stand-in of tests/support/cloud_tasks.py."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from slb.errors import TasksFailed
from slb.job import Buffered, ModelConfig
from slb.jobs.cloud_tasks import CloudTasks, Target, deadline_of, queue_of, task_of
from tests.support.cloud_tasks import CloudTasksStub

QUEUES = "projects/acme/locations/europe-west1/queues/gpu"
ONE = Buffered("one", "1", 0)
VECTORS = Path(__file__).parents[2] / "vectors"
RECORDED = ("method", "path", "query", "body")


@pytest.fixture
async def stub() -> AsyncIterator[CloudTasksStub]:
    stub = await CloudTasksStub().start()
    stub.holds = True
    yield stub
    await stub.stop()


@pytest.fixture
async def tasks(stub: CloudTasksStub) -> AsyncIterator[CloudTasks]:
    async def token() -> str:
        return "access"

    target = Target(QUEUES, stub.url, "https://slb.example/tasks/handle", account="slb@acme.example")
    made = CloudTasks(target, token)
    yield made
    await made.aclose()


async def test_calls_are_those_that_googles_own_library_makes(stub: CloudTasksStub) -> None:
    target = Target(QUEUES, stub.url, "https://slb.example/tasks/handle")
    by_account = CloudTasks(target._replace(account="slb@acme.example"), None)
    by_secret = CloudTasks(target._replace(secret="known to both"), None)
    config = ModelConfig(max_processing_time=600.0)
    await by_account.put_queue("flux", 3)
    await by_account.create("flux", config, ONE, 1)
    await by_secret.create("flux", config, ONE, 1)
    await by_secret.has("flux", ONE, 1)
    await asyncio.gather(by_account.aclose(), by_secret.aclose())
    text = (VECTORS / "cloud_tasks.json").read_text()
    recorded = orjson.loads(text.replace('"httpMethod": 1', '"httpMethod": "POST"'))  # it writes their numbers
    assert stub.calls == [tuple(each[name] for name in RECORDED) for each in recorded["calls"]]


async def test_a_queue_has_as_many_tasks_under_way_as_its_model_has_slots(
    tasks: CloudTasks, stub: CloudTasksStub
) -> None:
    await tasks.put_queue("flux", 3)
    (name, queue), *_ = stub.queues.items()
    assert (name, queue.limits["maxConcurrentDispatches"]) == (f"{QUEUES}-flux", 3)
    assert queue.retries["maxAttempts"] == -1  # a task that is given up would leave its job waiting
    await tasks.put_queue("flux", 0)
    assert queue.limits["maxConcurrentDispatches"] == 1  # 0 would be none at all, or any number
    await tasks.put_queue("flux", 10_000)
    assert queue.limits["maxConcurrentDispatches"] == 5000
    assert stub.credentials == {"Bearer access"}


async def test_a_task_is_made_once_and_found_while_it_waits(tasks: CloudTasks, stub: CloudTasksStub) -> None:
    config = ModelConfig(max_processing_time=60.0)
    await tasks.put_queue("flux", 1)
    assert not await tasks.has("flux", ONE, 1)
    assert await tasks.create("flux", config, ONE, 1)
    assert await tasks.has("flux", ONE, 1)
    assert not await tasks.create("flux", config, ONE, 1)
    assert await tasks.create("flux", config, ONE, 2)
    task = stub.tasks[task_of(f"{QUEUES}-flux", ONE, 1)]
    assert task["dispatchDeadline"] == "90s"
    assert task["httpRequest"]["oidcToken"]["serviceAccountEmail"] == "slb@acme.example"


async def test_what_the_api_refuses_is_told_in_its_words(tasks: CloudTasks, stub: CloudTasksStub) -> None:
    with pytest.raises(TasksFailed, match="status 404: NOT_FOUND: the message") as caught:
        await tasks.create("flux", ModelConfig(), ONE, 1)
    assert caught.value.status == 404
    stub.refuses = 403
    with pytest.raises(TasksFailed, match="status 403"):
        await tasks.put_queue("flux", 1)
    await stub.stop()
    with pytest.raises(TasksFailed) as caught:
        await tasks.has("flux", ONE, 1)
    assert caught.value.status == 0
    await stub.start()


@pytest.mark.parametrize("model", ["flux", "a" * 128, "llama-3.1/8b", "x:y@z+w", "a_b", "a.b"])
def test_every_model_has_a_queue_of_its_own_whose_name_may_be(model: str) -> None:
    name = queue_of(f"{QUEUES}-{'p' * 36}", model).rpartition("/")[2]
    assert re.fullmatch("[A-Za-z0-9-]{1,100}", name)
    assert queue_of(QUEUES, model) != queue_of(QUEUES, model + "x")
    assert queue_of(QUEUES, "a.b") != queue_of(QUEUES, "a_b")


def test_tasks_of_different_jobs_and_later_ones_of_a_job_have_other_names() -> None:
    jobs = [ONE, Buffered("two", "1", 0), Buffered("one", "2", 0)]
    names = [task_of("q", job, number) for job in jobs for number in (1, 2)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("q/tasks/[0-9a-f]{32}", each) for each in names)


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"max_processing_time": 60.0}, 90.0),
        ({"max_processing_time": 0.1}, 30.1),
        ({"max_processing_time": 7200.0}, 1800.0),
        (
            {
                "model_type": "async",
                "poll_endpoint_template": "/s/{id}",
                "max_processing_time": 10.0,
                "max_poll_time": 100.0,
            },
            140.0,
        ),
    ],
)
def test_a_push_may_take_as_long_as_its_job_within_half_an_hour(fields: dict[str, object], seconds: float) -> None:
    assert deadline_of(ModelConfig.model_validate(fields)) == pytest.approx(seconds)

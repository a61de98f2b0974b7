"""Jobs that wait in Cloud Tasks, by the stand-in of tests/support/cloud_tasks.py: `slb serve` with its settings."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from tests.process.commands import Commands, Serving
from tests.support.cloud_tasks import CloudTasksStub
from tests.support.gpus import Gpu
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, until_found

QUEUES = "projects/acme/locations/europe-west1/queues/gpu"
ACCOUNT = "slb@acme.example"


@pytest.fixture
async def stub() -> AsyncIterator[CloudTasksStub]:
    stub = await CloudTasksStub().start()
    yield stub
    await stub.stop()


@pytest.fixture
async def gpu() -> AsyncIterator[Gpu]:
    gpu = Gpu(holds=True)
    await gpu.server.start_server()
    yield gpu
    gpu.go.set()
    await gpu.server.close()


async def serve(slb: Commands, valkey: Valkey, stub: CloudTasksStub) -> Serving:
    env = {
        "SLB_JOBS_TASKS_QUEUES": QUEUES,
        "SLB_JOBS_TASKS_URL": "http://slb.example/",
        "SLB_JOBS_TASKS_ACCOUNT": ACCOUNT,
        "SLB_JOBS_TASKS_API": stub.url,
        "SLB_JOBS_TASKS_KEYS": f"{stub.url}/certs",
        "SLB_API_TOKEN": "of-the-api",
    }
    serving = await slb.until_ready(await slb.serve("--roles", "proxy,jobs", redis=valkey.url, env=env))
    stub.resolves["http://slb.example"] = serving.api
    return serving


async def ask(slb: Commands, serving: Serving, method: str, path: str, body: Any = None) -> Any:
    data, head = None if body is None else orjson.dumps(body), {"Authorization": "Bearer of-the-api"}
    async with slb.session.request(method, serving.api + path, data=data, headers=head) as reply:
        assert reply.status in (200, 202), await reply.text()
        return await reply.json()


async def test_a_job_outlives_the_instance_whose_push_it_was_and_runs_by_way_of_another(
    slb: Commands, valkey: Valkey, stub: CloudTasksStub, gpu: Gpu
) -> None:
    other, one = [await serve(slb, valkey, stub) for _ in range(2)]
    await ask(slb, one, "PUT", "/admin/model-configs/flux", {"buffer": "cloud-tasks"})
    await ask(slb, one, "POST", "/admin/register", {"model": "flux", "endpoint": gpu.endpoint, "slots": 2})
    await eventually(lambda: f"{QUEUES}-flux" in stub.queues)
    ids = [f"job-{number}" for number in range(6)]
    for id_ in ids:
        await ask(slb, one, "POST", "/queue/submit", {"model": "flux", "payload": id_, "job_id": id_})
    await eventually(lambda: gpu.running == 2)
    one.process.kill()
    stub.resolves["http://slb.example"] = other.api
    gpu.go.set()
    for id_ in ids:

        async def ended(id_: str = id_) -> Any:
            job = await ask(slb, other, "GET", f"/queue/jobs/{id_}")
            return job if "completed_at" in job else None

        job = await until_found(ended, 60)
        assert (job["status"], job["result"]) == ("completed", {"of": id_})
    await eventually(lambda: stub.answers.count(200) == 6)
    assert stub.tasks == {}
    assert sum(gpu.begun.values()) <= 6 + 2  # what ran at the kill, and no other, began twice
    assert all(each["Authorization"].startswith("Bearer ey") for each in stub.headers)


async def test_a_push_needs_a_token_of_the_account_and_not_that_of_the_api(
    slb: Commands, valkey: Valkey, stub: CloudTasksStub
) -> None:
    serving = await serve(slb, valkey, stub)
    url, body = f"{serving.api}/tasks/handle", b'{"model": "flux", "job_id": "one"}'
    right = stub.key.token("http://slb.example/tasks/handle", ACCOUNT)
    for token, wanted in ((right, 404), ("of-the-api", 401), (stub.key.token(url, ACCOUNT), 401)):
        head = {"Authorization": f"Bearer {token}", "X-Forwarded-For": "192.0.2.1"}
        async with slb.session.post(url, data=body, headers=head) as reply:
            assert reply.status == wanted, await reply.text()


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({}, "set jobs_tasks_url"),
        ({"URL": "https://slb.example"}, "set jobs_tasks_account or jobs_tasks_secret"),
        ({"URL": "https://slb.example", "ACCOUNT": ACCOUNT, "SECRET": "s"}, "and not both"),
        ({"URL": "ftp://slb.example"}, "jobs_tasks_url"),
    ],
)
async def test_settings_that_do_not_fit_together_are_named(slb: Commands, more: dict[str, str], named: str) -> None:
    env = {"SLB_JOBS_TASKS_QUEUES": QUEUES, **{f"SLB_JOBS_TASKS_{name}": each for name, each in more.items()}}
    result = await slb.run("check-config", env=env)
    assert (result.code != 0, named in result.err) == (True, True), result

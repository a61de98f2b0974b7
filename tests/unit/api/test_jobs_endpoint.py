"""The job dispatcher as its callers speak to it. Nothing runs here: tests/process/test_jobs.py has GPUs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slb.api.parts import ApiParts
from slb.control.connection import Connection
from slb.jobs.service import JobService
from tests.support.waiting import eventually, until
from tests.unit.api.conftest import Api, ApiMaker, Json
from tests.unit.api.jobs_rig import FLUX, api_of_jobs


@pytest.fixture
async def jobs(serve: ApiMaker, connection: Connection, parts: ApiParts, tmp_path: Path) -> AsyncIterator[Api]:
    """The API with the role on, and the model `flux`, which is paused."""
    async with api_of_jobs(serve, connection, parts, tmp_path) as api:
        yield api


async def submit(jobs: Api, **more: Json) -> Json:
    answer = await jobs.call("POST", "/queue/submit", {"model": "flux", "payload": {"prompt": "x"}, **more})
    assert answer.status == 202, answer.json
    return answer.json


async def refused(
    jobs: Api, status: int, reason: str, method: str, path: str, body: Json = None, **head: str
) -> str:
    """The detail."""
    answer = await jobs.call(method, path, body, headers=head)
    assert (answer.status, answer.json["error"]) == (status, reason), answer.json
    detail: str = answer.json["detail"]
    return detail


async def test_a_job_is_acknowledged_with_its_place_and_can_be_asked_for(jobs: Api) -> None:
    await submit(jobs, job_id="first")
    second = await submit(jobs, metadata=[1])
    assert (second["status"], second["position"], second["is_new"]) == ("queued", 1, True)
    shown = (await jobs.call("GET", f"/queue/jobs/{second['job_id']}")).json
    assert (shown["status"], shown["position"], shown["attempts"], shown["metadata"]) == ("queued", 1, 0, [1])
    assert "result" not in shown
    assert shown["eta"] is None  # nothing runs there


async def test_the_same_job_again_is_known_and_another_under_its_id_is_refused(jobs: Api) -> None:
    await submit(jobs, job_id="one")
    again = await submit(jobs, job_id="one")
    assert (again["is_new"], again["status"]) == (False, "queued")
    body = {"model": "flux", "payload": {"prompt": "other"}, "job_id": "one"}
    assert "'one'" in await refused(jobs, 422, "idempotency_reused", "POST", "/queue/submit", body)


@pytest.mark.parametrize("field", ["payload", "metadata"])
async def test_what_is_nested_too_deep_to_be_kept_is_refused_and_in_a_list_alone(jobs: Api, field: str) -> None:
    verdicts = set()
    for depth in range(245, 260):
        nested: Json = []
        for _ in range(depth - 1):
            nested = [nested]
        body = {"model": "flux", "payload": 1, field: nested}
        answer = await jobs.call("POST", "/queue/submit", body)
        listed = await jobs.call("POST", "/queue/submit-many", [{"model": "flux", "payload": 1}, body])
        assert (answer.status, listed.status) in {(202, 202), (400, 202)}, (depth, answer.json, listed.json)
        first, second = listed.json["jobs"]
        assert first["status"] == "queued"
        if answer.status == 400:
            assert "payload" in answer.json["detail"]
            assert second == {"error": "bad_request", "detail": answer.json["detail"]}
        verdicts.add(answer.status)
    assert verdicts == {202, 400}
    assert (await jobs.call("GET", "/queue/jobs?model=flux")).status == 200


@pytest.mark.parametrize("key", ['"k-1"', "k-1"])
async def test_an_idempotency_key_is_the_jobs_id_quoted_or_bare(jobs: Api, key: str) -> None:
    body = {"model": "flux", "payload": 1}
    answer = await jobs.call("POST", "/queue/submit", body, headers={"Idempotency-Key": key})
    assert answer.json["job_id"] == "k-1"
    await refused(
        jobs, 400, "bad_request", "POST", "/queue/submit", {**body, "job_id": "x"}, **{"Idempotency-Key": key}
    )


@pytest.mark.parametrize(
    ("body", "status", "reason", "named"),
    [
        ({"model": "none"}, 404, "unknown_model", "flux"),
        ({"priority": "urgent"}, 400, "bad_request", "high, normal"),
        ({"deadline": "soon"}, 400, "bad_request", "deadline"),
        ({"callback_url": "ftp://x"}, 400, "bad_request", "callback_url"),
        ({"job_id": "a.b"}, 400, "bad_request", "job_id"),
        ({"other": 1}, 400, "bad_request", "other"),
        ({"payload": "x" * 200}, 413, "payload_too_large", "100"),
    ],
)
async def test_what_cannot_be_taken_is_refused_by_name(
    jobs: Api, body: Json, status: int, reason: str, named: str
) -> None:
    await jobs.call("PUT", FLUX, {"paused": True, "payload_limit": 100})
    whole = {"model": "flux", "payload": 1, **body}
    assert named in await refused(jobs, status, reason, "POST", "/queue/submit", whole)


async def test_of_many_jobs_each_has_a_verdict_of_its_own(jobs: Api) -> None:
    many = [{"model": "flux", "payload": 1, "job_id": "a"}, {"model": "none", "payload": 1}, {"payload": 1}]
    answer = await jobs.call("POST", "/queue/submit-many", many)
    first, *others = answer.json["jobs"]
    assert (answer.status, first["job_id"]) == (202, "a")
    assert [each["error"] for each in others] == ["unknown_model", "bad_request"]
    await refused(jobs, 400, "bad_request", "POST", "/queue/submit-many", {"model": "flux"})


async def test_jobs_are_listed_page_by_page_and_counted(jobs: Api) -> None:
    many = [{"model": "flux", "payload": 1, "job_id": f"job-{number:03}"} for number in range(250)]
    await jobs.call("POST", "/queue/submit-many", many)
    first = (await jobs.call("GET", "/queue/jobs?model=flux")).json
    second = (await jobs.call("GET", f"/queue/jobs?model=flux&cursor={first['cursor']}")).json
    assert [each["job_id"] for each in first["jobs"] + second["jobs"]] == [each["job_id"] for each in many]
    assert second["cursor"] is None
    stats = (await jobs.call("GET", "/queue/stats")).json["models"]["flux"]
    assert (stats["queued"], stats["oldest"], stats["paused"]) == (250, "job-000", True)
    await refused(jobs, 400, "bad_request", "GET", "/queue/jobs?model=flux&status=all")
    await refused(jobs, 404, "unknown_model", "GET", "/queue/jobs?model=none")


async def test_a_job_is_cancelled_once(jobs: Api) -> None:
    await submit(jobs, job_id="one")
    answer = await jobs.call("DELETE", "/queue/jobs/one")
    assert answer.json == {"job_id": "one", "status": "cancelled", "was": "queued"}
    await refused(jobs, 409, "job_ended", "DELETE", "/queue/jobs/one")
    await refused(jobs, 404, "unknown_job", "DELETE", "/queue/jobs/none")
    await refused(jobs, 404, "unknown_job", "GET", "/queue/jobs/none")


async def test_waiting_for_a_job_ends_with_it(jobs: Api) -> None:
    await submit(jobs, job_id="one")
    asked = asyncio.create_task(jobs.call("GET", "/queue/jobs/one?wait=60s"))
    await asyncio.sleep(0)
    await jobs.call("DELETE", "/queue/jobs/one")
    assert (await asked).json["status"] == "cancelled"
    await refused(jobs, 400, "bad_request", "GET", "/queue/jobs/one?wait=long")


class Running:
    """How many calls of a method run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self.now = 0
        method = getattr(owner, name)

        async def counted(*given: Json) -> Json:
            self.now += 1
            try:
                return await method(*given)
            finally:
                self.now -= 1

        monkeypatch.setattr(owner, name, counted)


@pytest.mark.parametrize("call", ["GET /queue/jobs/one?wait=60s", "POST /queue/run"])
async def test_a_wait_ends_where_its_caller_has_left(jobs: Api, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, (method, path) = Running(monkeypatch, JobService, "wait"), call.split()
    await submit(jobs, job_id="one")
    body = {"model": "flux", "job_id": "one", "payload": {"prompt": "x"}}
    asked = asyncio.create_task(jobs.call(method, path, body))
    await eventually(lambda: waits.now == 1)
    asked.cancel()  # it closes the connection
    await eventually(lambda: waits.now == 0)
    assert (await jobs.call("GET", "/queue/jobs/one")).json["status"] == "queued"


async def test_run_answers_as_a_submit_where_the_caller_prefers_that(jobs: Api) -> None:
    body = {"model": "flux", "payload": 1, "job_id": "one"}
    answer = await jobs.call("POST", "/queue/run", body, headers={"Prefer": "respond-async"})
    assert (answer.status, answer.json["status"]) == (202, "queued")
    answer = await jobs.call("POST", "/queue/run?wait=10ms", body)
    assert (answer.status, answer.json["status"]) == (202, "queued")


async def test_what_holds_for_a_model_is_set_shown_and_taken_back(jobs: Api) -> None:
    seed = {"model_type": "async", "poll_endpoint_template": "/status/{id}", "poll_interval": 5.0, "max_retries": 3}
    shown = (await jobs.call("PUT", FLUX, seed)).json["config"]
    assert seed.items() <= shown.items()
    assert (shown["max_poll_time"], shown["paused"]) == (600.0, False)
    assert (await jobs.call("GET", FLUX)).json["config"] == shown
    assert (await jobs.call("DELETE", FLUX)).json == {"model": "flux", "removed": True}
    await refused(jobs, 404, "unknown_model", "GET", FLUX)
    assert "max_retries" in await refused(jobs, 400, "bad_request", "PUT", FLUX, {"max_retries": -1})
    template = {"poll_endpoint_template": "/status"}
    assert "poll_endpoint_template" in await refused(jobs, 400, "bad_request", "PUT", FLUX, template)


async def test_a_registered_gpu_is_an_upstream_of_the_models_route(jobs: Api) -> None:
    body = {"model": "zimg", "server": "a", "endpoint": "http://10.0.0.7:8000/make", "slots": 2}
    answer = await jobs.call("POST", "/admin/register", body)
    assert answer.json == {"model": "zimg", "path": "/jobs/zimg", "target": "10.0.0.7:8000", "added": True}
    route = (await jobs.call("GET", "/routes/jobs/zimg")).json
    assert [each["member"] for each in route["members"]] == ["10.0.0.7:8000"]
    assert (await jobs.call("GET", "/admin/model-configs/zimg")).json["config"]["endpoint"] == "/make"
    for endpoint in ("10.0.0.7", "http://169.254.169.254/x", "http://10.0.0.7/x?y=1"):
        await refused(jobs, 400, "bad_request", "POST", "/admin/register", {**body, "endpoint": endpoint})


async def test_a_model_that_has_neither_settings_nor_gpus_nor_jobs_is_forgotten(jobs: Api) -> None:
    async def known() -> set[str]:
        return set((await jobs.call("GET", "/queue/stats")).json["models"])

    for model in ("empty", "used"):
        assert (await jobs.call("PUT", f"/admin/model-configs/{model}", {"paused": True})).status == 200
    await submit(jobs, model="used", job_id="waits")
    assert await known() == {"flux", "empty", "used"}
    for model in ("empty", "used"):
        assert (await jobs.call("DELETE", f"/admin/model-configs/{model}")).status == 200
    await until(known, lambda found: found == {"flux", "used"})
    found = (await jobs.call("GET", "/queue/jobs/waits")).json
    assert found.get("status") == "queued", found
    assert (await jobs.call("PUT", "/admin/model-configs/empty", {"paused": True})).status == 200
    await submit(jobs, model="empty", job_id="anew")
    assert await known() == {"flux", "empty", "used"}

"""Jobs as their callers ask for them, wait for them and cancel them. Nothing runs here: tests/process/test_jobs.py
has GPUs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slb.api.parts import ApiParts
from slb.control.connection import Connection
from slb.jobs.service import JobService
from slb.tokens import Right, Token, digest_of
from tests.support.waiting import eventually
from tests.unit.api.conftest import Api, ApiMaker, Json
from tests.unit.api.jobs_rig import api_of_jobs, as_holder, refused, submit


@pytest.fixture
async def jobs(serve: ApiMaker, connection: Connection, parts: ApiParts, tmp_path: Path) -> AsyncIterator[Api]:
    """The API with the role on, and the model `flux`, which is paused."""
    async with api_of_jobs(serve, connection, parts, tmp_path) as api:
        yield api


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


async def test_jobs_of_all_models_are_listed_and_those_that_ended_in_one_way(jobs: Api) -> None:
    async def listed(query: str) -> list[str]:
        answer = await jobs.call("GET", f"/queue/jobs{query}")
        assert answer.status == 200, answer.json
        return [f"{each['model']} {each['job_id']}" for each in answer.json["jobs"]]

    await jobs.call("PUT", "/admin/model-configs/zimg", {"paused": True})
    for model, id_ in (("zimg", "a"), ("flux", "b"), ("flux", "c"), ("zimg", "d")):
        await submit(jobs, model=model, job_id=id_)
    assert await listed("") == ["flux b", "flux c", "zimg a", "zimg d"]
    for id_ in ("b", "d"):
        await jobs.call("DELETE", f"/queue/jobs/{id_}")
    assert await listed("?status=cancelled") == ["flux b", "zimg d"] == await listed("?status=ended")
    assert await listed("?status=cancelled&model=zimg") == ["zimg d"]
    assert await listed("?status=completed") == [] == await listed("?status=failed&model=flux")
    await refused(jobs, 400, "bad_request", "GET", "/queue/jobs?cursor=200")


async def test_a_job_is_cancelled_once(jobs: Api) -> None:
    await submit(jobs, job_id="one")
    answer = await jobs.call("DELETE", "/queue/jobs/one")
    assert answer.json == {"job_id": "one", "status": "cancelled", "was": "queued"}
    await refused(jobs, 409, "job_ended", "DELETE", "/queue/jobs/one")
    await refused(jobs, 404, "unknown_job", "DELETE", "/queue/jobs/none")
    await refused(jobs, 404, "unknown_job", "GET", "/queue/jobs/none")


async def test_where_two_models_have_a_job_of_one_id_its_model_is_to_be_named(jobs: Api) -> None:
    await jobs.call("PUT", "/admin/model-configs/zimg", {"paused": True})
    for model in ("flux", "zimg"):
        assert (await submit(jobs, model=model, job_id="one"))["is_new"]
    for method, path in (
        ("GET", "/queue/jobs/one"),
        ("DELETE", "/queue/jobs/one"),
        ("GET", "/queue/events?job_id=one"),
        ("POST", "/tasks/callback/one"),
        ("POST", "/admin/dlq/one/retry"),
        ("DELETE", "/admin/dlq/one"),
    ):
        attempt = {"X-Job-Attempt": "1.1"}
        assert "flux, zimg" in await refused(jobs, 409, "ambiguous_job", method, path, {}, **attempt)
    assert (await jobs.call("DELETE", "/queue/jobs/one?model=zimg")).json["was"] == "queued"
    shown = [(await jobs.call("GET", f"/queue/jobs/one?model={model}")).json for model in ("flux", "zimg")]
    assert [(each["model"], each["status"]) for each in shown] == [("flux", "queued"), ("zimg", "cancelled")]


async def test_waiting_for_a_job_ends_with_it(jobs: Api) -> None:
    await submit(jobs, job_id="one")
    asked = asyncio.create_task(jobs.call("GET", "/queue/jobs/one?wait=60s"))
    await asyncio.sleep(0)
    await jobs.call("DELETE", "/queue/jobs/one")
    assert (await asked).json["status"] == "cancelled"
    await refused(jobs, 400, "bad_request", "GET", "/queue/jobs/one?wait=long")


async def test_a_wait_longer_than_the_longest_is_refused_before_anything_is_submitted(jobs: Api) -> None:
    for method, path in (("GET", "/queue/jobs/one"), ("POST", "/queue/run")):
        assert "60s" in await refused(jobs, 400, "bad_request", method, f"{path}?wait=5m", {"model": "flux"})
    assert (await jobs.call("GET", "/queue/stats")).json["models"]["flux"]["queued"] == 0


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


async def test_a_report_that_is_nested_too_deep_to_be_kept_is_refused(jobs: Api) -> None:
    report: Json = []
    for _ in range(300):
        report = [report]
    await submit(jobs, job_id="one")
    token = {"X-Job-Attempt": "1.1"}
    detail = await refused(jobs, 400, "bad_request", "POST", "/tasks/callback/one", report, **token)
    assert "nested" in detail


async def test_who_registers_gpus_reports_of_jobs_at_its_own_routes_alone(
    serve: ApiMaker, connection: Connection, parts: ApiParts, tmp_path: Path
) -> None:
    tokens = {
        "root": Token(rights=("admin",), sha256=(digest_of("root"),)),
        "app": Token(rights=("jobs",), sha256=(digest_of("app"),)),
        "pods": Token(rights=("register",), prefixes=("/jobs/flux",), sha256=(digest_of("pods"),)),
    }
    async with api_of_jobs(serve, connection, parts, tmp_path, settings={"tokens": tokens}) as jobs:
        await jobs.call("PUT", "/admin/model-configs/zimg", {"paused": True}, headers=as_holder("root"))
        for model in ("flux", "zimg"):
            body = {"model": model, "payload": 1, "job_id": f"of-{model}"}
            await jobs.call("POST", "/queue/submit", body, headers=as_holder("app"))

        async def report(token: str, job: str) -> str:
            head = {"X-Job-Attempt": "1.1", **as_holder(token)}
            reason: str = (await jobs.call("POST", f"/tasks/callback/{job}", {}, headers=head)).json["error"]
            return reason

        assert [await report("pods", job) for job in ("of-flux", "of-zimg", "none")] == [
            "stale_attempt",
            "forbidden",
            "unknown_job",
        ]
        assert await report("app", "of-zimg") == "stale_attempt"


async def test_what_was_submitted_is_shown_where_it_is_asked_for(jobs: Api) -> None:
    await submit(jobs, job_id="one", payload={"seed": 2**63})
    assert "payload" not in (await jobs.call("GET", "/queue/jobs/one")).json
    assert (await jobs.call("GET", "/queue/jobs/one?payload=true")).json["payload"] == {"seed": 2**63}
    assert "payload" in await refused(jobs, 400, "bad_request", "GET", "/queue/jobs/one?payload=yes")


async def test_a_wait_without_a_unit_is_in_seconds(jobs: Api) -> None:
    await submit(jobs, job_id="one")
    for wait in ("0.01", "1"):
        assert (await jobs.call("GET", f"/queue/jobs/one?wait={wait}")).json["status"] == "queued"
    for wait in ("61", "-1", "1e9", "nan", "5x"):
        assert "wait" in await refused(jobs, 400, "bad_request", "GET", f"/queue/jobs/one?wait={wait}")


async def test_a_failed_job_is_removed_and_its_id_is_free(jobs: Api) -> None:
    for id_ in ("one", "two"):
        await submit(jobs, job_id=id_, deadline=0.01)
        ended = (await jobs.call("GET", f"/queue/jobs/{id_}?wait=20")).json
        assert ended["status"] == "failed"
    assert (await jobs.call("DELETE", "/admin/dlq/one")).json == {"job_id": "one", "removed": True}
    await refused(jobs, 404, "unknown_job", "GET", "/queue/jobs/one")
    assert (await submit(jobs, job_id="one", payload={"other": 1}))["is_new"] is True
    assert (await jobs.call("POST", "/admin/dlq/two/retry")).json == {"retried": 1}
    assert (await jobs.call("GET", "/queue/jobs/two")).json["status"] == "queued"
    assert (await jobs.call("GET", "/queue/jobs?status=failed")).json["jobs"] == []
    await refused(jobs, 404, "unknown_job", "POST", "/admin/dlq/two/retry")


@pytest.mark.parametrize("visibility", ["own", "all"])
async def test_a_token_sees_its_own_jobs_alone_where_that_is_set(
    serve: ApiMaker, connection: Connection, parts: ApiParts, tmp_path: Path, visibility: str
) -> None:
    rights: dict[str, tuple[Right, ...]] = {"root": ("admin",), "us": ("jobs",), "them": ("jobs",)}
    tokens = {name: Token(rights=each, sha256=(digest_of(name),)) for name, each in rights.items()}
    settings = {"tokens": tokens, "jobs_visibility": visibility}
    async with api_of_jobs(serve, connection, parts, tmp_path, settings=settings) as jobs:

        async def call(token: str, method: str, path: str, body: Json = None) -> tuple[int, Json]:
            answer = await jobs.call(method, path, body, headers=as_holder(token))
            return answer.status, answer.json

        for name in ("us", "them"):
            ours = [{"model": "flux", "payload": name, "job_id": f"{name}-{number}"} for number in range(2)]
            assert (await call(name, "POST", "/queue/submit", ours[0]))[0] == 202
            assert (await call(name, "POST", "/queue/submit-many", ours[1:]))[0] == 202
        is_own = visibility == "own"
        found = (404, "unknown_job") if is_own else (200, None)
        listed = {job["job_id"] for job in (await call("us", "GET", "/queue/jobs"))[1]["jobs"]}
        assert listed == {"us-0", "us-1"} | (set() if is_own else {"them-0", "them-1"})
        for path in ("/queue/jobs/them-0?payload=true", "/queue/jobs/them-0?wait=0.01"):
            status, answer = await call("us", "GET", path)
            assert (status, answer.get("error")) == found
            assert (await call("root", "GET", path))[0] == 200
        same = {"model": "flux", "payload": "them", "job_id": "them-0"}
        status, answer = await call("us", "POST", "/queue/submit", same)
        assert (status, answer.get("error")) == ((422, "idempotency_reused") if is_own else (202, None))
        assert (await call("them", "POST", "/queue/submit", same))[1]["is_new"] is False
        report = await jobs.call(
            "POST", "/tasks/callback/them-0", {}, headers=as_holder("us") | {"X-Job-Attempt": "1.1"}
        )
        assert report.json["error"] == ("unknown_job" if is_own else "stale_attempt")
        if is_own:
            assert (await call("us", "GET", "/queue/events?job_id=them-0"))[1]["error"] == "unknown_job"
            assert (await call("us", "GET", "/queue/events?model=flux"))[1]["error"] == "forbidden"
        assert (await call("us", "GET", "/queue/jobs/us-0"))[1]["status"] == "queued"
        status, answer = await call("us", "DELETE", "/queue/jobs/them-0")
        assert (status, answer.get("error")) == found
        assert (await call("root", "DELETE", "/queue/jobs/them-1"))[0] == 200
        assert (await call("us", "DELETE", "/queue/jobs/us-0"))[0] == 200

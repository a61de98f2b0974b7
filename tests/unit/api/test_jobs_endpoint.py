"""The job dispatcher as its callers speak to it. Nothing runs here: tests/process/test_jobs.py has GPUs."""

import asyncio
import hashlib
import io
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from random import Random

import orjson
import pytest

from slb.admission.gates import Gates
from slb.api.job_bodies import MOST_OF_MANY, MOST_OF_ONE, MOST_SUBMITTED
from slb.api.parts import ApiParts
from slb.control.connection import Connection
from slb.control.ledger import Ledger
from slb.job import MOST_PAYLOAD
from slb.jobs.service import JobService
from slb.observe.metrics import Metrics
from tests.support.waiting import eventually, until
from tests.unit.api.conftest import Api, ApiMaker, Json
from tests.unit.api.jobs_rig import FLUX, api_of_jobs, job_service


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
    await submit(jobs, job_id="two")
    again = await submit(jobs, job_id="two")
    assert (again["is_new"], again["status"], again["position"]) == (False, "queued", 1)
    await jobs.call("DELETE", "/queue/jobs/two")
    again = await submit(jobs, job_id="two")
    assert (again["is_new"], again["status"], again["position"]) == (False, "cancelled", -1)
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
    ("key", "text"),
    [
        ("a.b/c=", "a.b/c="),
        ("x" * 129, "x" * 129),
        (r'"say \"hi\" \\"', 'say "hi" \\'),
        ("-k", "-k"),
        ('"a', '"a'),
    ],
)
async def test_an_idempotency_key_that_is_no_id_becomes_one(jobs: Api, key: str, text: str) -> None:
    id_ = "key:" + hashlib.sha256(text.encode()).hexdigest()
    for is_new in (True, False):
        body = {"model": "flux", "payload": 1}
        answer = await jobs.call("POST", "/queue/submit", body, headers={"Idempotency-Key": key})
        assert (answer.status, answer.json["job_id"], answer.json["is_new"]) == (202, id_, is_new)
    assert (await jobs.call("GET", f"/queue/jobs/{id_}")).status == 200


async def test_an_idempotency_key_that_is_empty_is_refused(jobs: Api) -> None:
    body = {"model": "flux", "payload": 1}
    await refused(jobs, 400, "bad_request", "POST", "/queue/submit", body, **{"Idempotency-Key": '""'})


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


@pytest.mark.parametrize(
    "url",
    ["http://", "http:///x", "http://:80/", "http://[::1", "http://a:99999/", "http://a:0/", "http://a:b/"],
)
async def test_a_callback_url_without_a_host_or_a_port_that_can_be_is_refused(jobs: Api, url: str) -> None:
    body = {"model": "flux", "payload": 1, "callback_url": url}
    assert "callback_url: " in await refused(jobs, 400, "bad_request", "POST", "/queue/submit", body)


@pytest.mark.parametrize("url", ["http://a", "https://[::1]:65535/x?y=%2F#z", "http://a.example:1"])
async def test_a_callback_url_of_a_host_is_taken(jobs: Api, url: str) -> None:
    await submit(jobs, callback_url=url)


async def test_of_many_jobs_each_has_a_verdict_of_its_own(jobs: Api) -> None:
    many = [{"model": "flux", "payload": 1, "job_id": "a"}, {"model": "none", "payload": 1}, {"payload": 1}]
    answer = await jobs.call("POST", "/queue/submit-many", many)
    first, *others = answer.json["jobs"]
    assert (answer.status, first["job_id"]) == (202, "a")
    assert [each["error"] for each in others] == ["unknown_model", "bad_request"]
    await refused(jobs, 400, "bad_request", "POST", "/queue/submit-many", {"model": "flux"})


async def test_where_redis_takes_none_of_many_the_answer_is_503(
    serve: ApiMaker, parts: ApiParts, tmp_path: Path
) -> None:
    nowhere = Connection("redis://127.0.0.1:1/0", Metrics())
    ledger = Ledger(nowhere, "here", parts.metrics, Random(1))
    gates = Gates(ledger, parts.mirror, parts.metrics, lambda: 1, Random(1))
    api = await serve(jobs=job_service(replace(parts, connection=nowhere), gates, tmp_path))
    many = [{"model": "flux", "payload": 1}] * 2
    answer = await api.call("POST", "/queue/submit-many", many)
    assert (answer.status, answer.json["error"]) == (503, "redis_down")
    assert answer.headers["Retry-After"] == "1"
    answer = await api.call("POST", "/queue/submit-many", [*many, {"payload": 1}])
    assert [each["error"] for each in answer.json["jobs"]] == ["redis_down", "redis_down", "bad_request"]
    assert (await api.call("POST", "/queue/submit-many", [])).json == {"jobs": []}
    await nowhere.aclose()


async def test_a_payload_at_its_limit_is_taken_however_it_is_written(jobs: Api) -> None:
    at_limit = {"model": "flux", "payload": "é" * (MOST_PAYLOAD // 2 - 1)}  # as JSON, two quotes more
    for body in (orjson.dumps(at_limit), json.dumps(at_limit).encode()):
        answer = await jobs.call("POST", "/queue/submit", io.BytesIO(body))
        assert answer.status == 202, answer.json
    over = {"model": "flux", "payload": "x" * (MOST_PAYLOAD - 1)}
    await refused(jobs, 413, "payload_too_large", "POST", "/queue/submit", io.BytesIO(orjson.dumps(over)))
    assert str(MOST_OF_ONE) in await refused(
        jobs, 413, "body_too_large", "POST", "/queue/run", io.BytesIO(b" " * (MOST_OF_ONE + 1))
    )


@pytest.mark.parametrize("field", ["payload", "metadata"])
@pytest.mark.parametrize("number", [str(1 << 64), str(-(1 << 63) - 1), "1" * 300])
async def test_an_integer_over_64_bits_is_refused_and_not_changed(jobs: Api, field: str, number: str) -> None:
    text = f'{{"model": "flux", "payload": 1, "metadata": 1, "{field}": {{"a": [0, {number}]}}}}'
    detail = await refused(jobs, 400, "bad_request", "POST", "/queue/submit", text.encode())
    assert field in detail
    assert "64-bit" in detail


async def test_long_numbers_that_can_be_written_come_back_as_they_were(jobs: Api) -> None:
    many = [(1 << 64) - 1, -(1 << 63), 12345678901234567890.5, "[123456789012345678901234567890"]
    id_ = (await submit(jobs, metadata=many))["job_id"]
    assert (await jobs.call("GET", f"/queue/jobs/{id_}")).json["metadata"] == many
    deep = b'{"model": "flux", "payload": %s%d%s}' % (b"[" * 1000, 1 << 64, b"]" * 1000)
    await refused(jobs, 400, "bad_request", "POST", "/queue/submit", deep)


async def test_many_jobs_are_taken_at_once_whose_body_is_long(jobs: Api) -> None:
    job = {"model": "flux", "payload": "x" * 5_000}
    many = orjson.dumps([job | {"job_id": f"{number}"} for number in range(MOST_SUBMITTED)])
    calls = (jobs.call("POST", "/queue/submit-many", io.BytesIO(many)) for _ in range(3))
    answers = await asyncio.gather(*calls)
    for answer in answers:
        assert answer.status == 202, answer.json
        assert {each["status"] for each in answer.json["jobs"]} == {"queued"}
    assert (await jobs.call("GET", "/queue/stats")).json["models"]["flux"]["queued"] == MOST_SUBMITTED
    assert str(MOST_OF_MANY) in await refused(
        jobs, 413, "body_too_large", "POST", "/queue/submit-many", io.BytesIO(b" " * (MOST_OF_MANY + 1))
    )


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


async def test_what_holds_for_a_model_is_set_shown_and_taken_back(jobs: Api) -> None:
    seed = {"model_type": "async", "poll_endpoint_template": "/status/{id}", "poll_interval": 5.0, "max_retries": 3}
    shown = (await jobs.call("PUT", FLUX, seed)).json["config"]
    assert seed.items() <= shown.items()
    assert (shown["max_poll_time"], shown["paused"]) == (600.0, True)
    assert (await jobs.call("GET", FLUX)).json["config"] == shown
    assert (await jobs.call("DELETE", FLUX)).json == {"model": "flux", "removed": True}
    await refused(jobs, 404, "unknown_model", "GET", FLUX)
    assert "max_retries" in await refused(jobs, 400, "bad_request", "PUT", FLUX, {"max_retries": -1})
    template = {"poll_endpoint_template": "/status"}
    assert "poll_endpoint_template" in await refused(jobs, 400, "bad_request", "PUT", FLUX, template)


async def test_single_settings_of_a_model_are_changed_and_null_resets_them(jobs: Api) -> None:
    await jobs.call("PUT", FLUX, {"max_retries": 3, "endpoint": "/make", "fallback_models": ["zimg"]})
    answer = await jobs.call("PATCH", FLUX, {"max_poll_time": "2m", "max_retries": None, "paused": None})
    assert answer.status == 200, answer.json
    config = answer.json["config"]
    assert (config["max_poll_time"], config["max_retries"], config["paused"]) == (120.0, 50, False)
    assert (config["endpoint"], config["fallback_models"]) == ("/make", ["zimg"])
    assert (await jobs.call("PATCH", FLUX, {"endpoint": None})).json["config"]["endpoint"] == "/generate"
    await refused(jobs, 404, "unknown_model", "PATCH", "/admin/model-configs/none", {"paused": True})
    for change in ({"max_retries": -1}, {"other": None}, {"fallback_models": ["flux"]}):
        assert next(iter(change)) in await refused(jobs, 400, "bad_request", "PATCH", FLUX, change)
    assert (await jobs.call("GET", FLUX)).json["config"]["max_poll_time"] == 120.0
    many = ({"max_retries": 7}, {"max_poll_time": 7}, {"paused": True})
    await asyncio.gather(*(jobs.call("PATCH", FLUX, change) for change in many))
    config = (await jobs.call("GET", FLUX)).json["config"]
    assert (config["max_retries"], config["max_poll_time"], config["paused"]) == (7, 7.0, True)


async def test_a_registered_gpu_is_an_upstream_of_the_models_route(jobs: Api) -> None:
    body = {"model": "zimg", "server": "a", "endpoint": "http://10.0.0.7:8000/make", "slots": 2}
    answer = await jobs.call("POST", "/admin/register", body)
    assert answer.json == {"model": "zimg", "path": "/jobs/zimg", "target": "10.0.0.7:8000", "added": True}
    route = (await jobs.call("GET", "/routes/jobs/zimg")).json
    assert [each["member"] for each in route["members"]] == ["10.0.0.7:8000"]
    assert (await jobs.call("GET", "/admin/model-configs/zimg")).json["config"]["endpoint"] == "/make"
    for endpoint in ("10.0.0.7", "http://169.254.169.254/x", "http://10.0.0.7/x?y=1"):
        await refused(jobs, 400, "bad_request", "POST", "/admin/register", {**body, "endpoint": endpoint})


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://\u2100.com/x", "http://10.0.0.7/a b", "http://10.0.0.7/\xe9"]
)
async def test_a_gpu_whose_url_no_job_can_be_posted_to_is_refused_by_the_field(jobs: Api, url: str) -> None:
    body = {"model": "zimg", "endpoint": url}
    detail = await refused(jobs, 400, "bad_request", "POST", "/admin/register", body)
    assert detail.startswith("endpoint: ")
    assert "zimg" not in (await jobs.call("GET", "/queue/stats")).json["models"]


async def test_a_report_that_is_nested_too_deep_to_be_kept_is_refused(jobs: Api) -> None:
    report: Json = []
    for _ in range(300):
        report = [report]
    await submit(jobs, job_id="one")
    token = {"X-Job-Attempt": "1.1"}
    detail = await refused(jobs, 400, "bad_request", "POST", "/tasks/callback/one", report, **token)
    assert "nested" in detail


async def test_the_path_that_a_gpu_has_set_stays_until_another_is_named(jobs: Api) -> None:
    async def path() -> str:
        config = (await jobs.call("GET", zimg)).json["config"]
        return f"{config['endpoint']} {config['max_retries']}"

    zimg, body = "/admin/model-configs/zimg", {"model": "zimg", "endpoint": "http://10.0.0.7:8000/make"}
    assert (await jobs.call("POST", "/admin/register", body)).status == 200
    await jobs.call("PUT", zimg, {"max_retries": 3})
    assert await path() == "/make 3"
    assert (await jobs.call("DELETE", zimg)).json["removed"] is True
    assert await path() == "/make 50"
    assert (await jobs.call("DELETE", zimg)).json["removed"] is False
    other = {"model": "zimg", "endpoint": "http://10.0.0.8:8000/other"}
    detail = await refused(jobs, 400, "bad_request", "POST", "/admin/register", other)
    assert "/other" in detail
    assert "/make" in detail
    assert (await jobs.call("POST", "/admin/register", {**other, "endpoint": "http://10.0.0.8:8000"})).status == 200
    assert await path() == "/make 50"
    await jobs.call("PUT", zimg, {"endpoint": "/other"})
    assert (await jobs.call("POST", "/admin/register", other)).status == 200
    assert await path() == "/other 50"
    await refused(jobs, 400, "bad_request", "PUT", zimg, ["endpoint"])


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

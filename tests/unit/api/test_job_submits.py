"""Jobs as they are submitted: what is taken, under which id, and what is refused by name."""

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
from slb.observe.metrics import Metrics
from tests.unit.api.conftest import Api, ApiMaker, Json
from tests.unit.api.jobs_rig import FLUX, api_of_jobs, job_service, refused, submit


@pytest.fixture
async def jobs(serve: ApiMaker, connection: Connection, parts: ApiParts, tmp_path: Path) -> AsyncIterator[Api]:
    """The API with the role on, and the model `flux`, which is paused."""
    async with api_of_jobs(serve, connection, parts, tmp_path) as api:
        yield api


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

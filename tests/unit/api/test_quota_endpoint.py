"""The quota router as its callers speak to it."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from slb.control.ask_lane import AskTiming
from slb.control.connection import Connection
from slb.errors import RedisUnavailable
from slb.observe.metrics import Metrics
from slb.observe.quota import QuotaCounts
from slb.quota.service import QuotaService
from slb.quotas import Limits, Rules
from tests.unit.api.conftest import Api, ApiMaker, Json

ANEW: dict[str, Any] = {"headers": {"Connection": "close"}}
"""The next request has a connection of its own."""

GPT = {"max_tokens_per_minute": 60_000, "max_concurrent_requests": 2}


@pytest.fixture
async def router(serve: ApiMaker, connection: Connection) -> AsyncIterator[Api]:
    """The API with the role on, and the model `gpt`."""
    timing = AskTiming(deadline=10)
    quota = QuotaService(connection, Rules(), None, QuotaCounts(), Random(1), timing)
    running = asyncio.create_task(quota.run())
    router = await serve(quota=quota)
    assert (await router.call("PUT", "/models/gpt", GPT)).status == 200
    yield router
    running.cancel()
    await asyncio.wait([running])


async def schedule(router: Api, tokens: Json, **more: Json) -> Json:
    answer = await router.call("POST", "/schedule", {"estimated_tokens": tokens, **more})
    assert answer.status == 200, answer.json
    return answer.json


async def test_a_caller_is_given_a_model_or_a_wait_and_nothing_besides(router: Api) -> None:
    first = await schedule(router, 1800)
    assert set(first) == {"model_backend_id", "task_id", "lease_ttl_ms"}
    assert first["lease_ttl_ms"] == Rules().lease
    assert first["model_backend_id"] == "gpt"
    assert first["task_id"].startswith("tsk_")
    wait = await schedule(router, 9000)
    assert set(wait) == {"wait_for_ms"}
    assert 50 <= wait["wait_for_ms"] <= 1100


async def test_completing_is_answered_alike_each_time(router: Api) -> None:
    task = (await schedule(router, 1800))["task_id"]
    for _ in range(2):
        answer = await router.call("POST", "/complete", {"task_id": task, "actual_tokens": 1000})
        assert (answer.status, answer.json) == (200, {"ok": True, "state": "completed"})
    shown = await router.call("GET", "/models/gpt")
    assert shown.json["in_flight"] == 0
    assert shown.json["tokens_last_minute"] == 1000


async def test_a_heartbeat_answers_whether_there_is_a_lease(router: Api) -> None:
    task = (await schedule(router, 1))["task_id"]
    assert (await router.call("POST", "/heartbeat", {"task_id": task})).json == {"ok": True}
    await router.call("POST", "/complete", {"task_id": task})
    answer = await router.call("POST", "/heartbeat", {"task_id": task})
    assert (answer.status, answer.json) == (200, {"ok": False, "reason": "not_found", "state": "completed"})


async def test_what_no_redis_was_asked_for_was_not_written(serve: ApiMaker) -> None:
    nowhere = Connection("redis://127.0.0.1:1/0", Metrics())
    quota = QuotaService(nowhere, Rules(), None, QuotaCounts(), Random(1))
    running = asyncio.create_task(quota.run())
    router = await serve(quota=quota)
    for _ in range(2):
        answer = await router.call("PUT", "/models/gpt", GPT)
        assert (answer.status, answer.json["error"]) == (503, "redis_down")
        assert answer.json["detail"].endswith("; nothing was written, asking again is safe")
    running.cancel()
    await asyncio.wait([running])
    await nowhere.aclose()


async def test_a_model_that_was_put_but_cannot_be_shown_may_have_been_written(serve: ApiMaker) -> None:
    async def put(*_: Any) -> Limits:
        return Limits(60_000, 2)

    async def models() -> None:
        raise RedisUnavailable("gone", reached=False)

    router = await serve(quota=SimpleNamespace(put=put, models=models))
    answer = await router.call("PUT", "/models/gpt", GPT)
    assert answer.json["detail"] == "gone; it may or may not have been written, asking again is safe"


@pytest.mark.parametrize("path", ["/complete", "/heartbeat"])
async def test_a_task_that_was_never_given_is_unknown(router: Api, path: str) -> None:
    answer = await router.call("POST", path, {"task_id": "tsk_never"})
    assert (answer.status, answer.json["error"]) == (404, "unknown_task")


@pytest.mark.parametrize(
    ("tokens", "status", "reason"),
    [
        (-1, 400, "bad_request"),
        (0, 400, "bad_request"),
        (1.5, 400, "bad_request"),
        (2.0, 400, "bad_request"),
        (True, 400, "bad_request"),
        ("5", 400, "bad_request"),
        (None, 400, "bad_request"),
        ([5], 400, "bad_request"),
        (10**30, 400, "bad_request"),
        (10_001, 422, "estimate_exceeds_limit"),
        (2**53 - 1, 422, "estimate_exceeds_limit"),
    ],
)
async def test_estimates_that_are_none_are_refused_by_name(
    router: Api, tokens: Json, status: int, reason: str
) -> None:
    answer = await router.call("POST", "/schedule", {"estimated_tokens": tokens})
    assert (answer.status, answer.json["error"]) == (status, reason)
    assert "estimated_tokens" in answer.json["detail"]
    assert status == 400 or f"estimated_tokens={tokens}: " in answer.json["detail"]
    assert (await router.call("GET", "/models/gpt")).json["in_flight"] == 0


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"estimated_tokens": 1, "models": []},
        {"estimated_tokens": 1, "models": "gpt"},
        {"estimated_tokens": 1, "models": ["a b"]},
        {"estimated_tokens": 1, "idempotency_key": ""},
        {"estimated_tokens": 1, "idempotency_key": "a\nb"},
        {"estimated_tokens": 1, "priority": 3},
        [],
        5,
    ],
)
async def test_bodies_that_are_not_what_they_have_to_be_are_refused(router: Api, body: Json) -> None:
    answer = await router.call("POST", "/schedule", body)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")


async def test_the_refusal_of_an_estimate_over_all_limits_names_the_model_that_takes_most(router: Api) -> None:
    for model, burst in (("large", 20_000), ("small", 10)):
        await router.call("PUT", f"/models/{model}", {**GPT, "burst": burst})
    for models, largest in (
        (None, "large has the largest, 20000"),
        (["small", "gpt"], "gpt has the largest, 10000"),
    ):
        more = {"models": models} if models else {}
        answer = await router.call("POST", "/schedule", {"estimated_tokens": 20_001, **more})
        assert (answer.status, answer.json["error"]) == (422, "estimate_exceeds_limit")
        assert answer.json["detail"].endswith(largest)


async def test_a_model_that_is_not_there_is_unknown(router: Api) -> None:
    answer = await router.call("POST", "/schedule", {"estimated_tokens": 1, "models": ["gpt", "other"]})
    assert (answer.status, answer.json["error"]) == (404, "unknown_model")
    assert answer.json["detail"].startswith("models: other is not among those set ")
    for method in ("GET", "DELETE"):
        answer = await router.call(method, "/models/other")
        assert (answer.status, answer.json["error"]) == (404, "unknown_model")


async def test_a_router_without_models_answers_with_that_reason(router: Api) -> None:
    assert (await router.call("DELETE", "/models/gpt")).json == {"id": "gpt", "removed": True}
    answer = await router.call("POST", "/schedule", {"estimated_tokens": 1})
    assert (answer.status, answer.json["error"]) == (409, "no_models")


async def test_a_key_gives_the_same_task_again_and_no_other_estimate(router: Api) -> None:
    first = await schedule(router, 10, idempotency_key="Ω 1")
    assert await schedule(router, 10, idempotency_key="Ω 1") == first
    for other in ({"estimated_tokens": 11}, {"estimated_tokens": 10, "models": ["gpt"]}):
        answer = await router.call("POST", "/schedule", {**other, "idempotency_key": "Ω 1"})
        assert (answer.status, answer.json["error"]) == (409, "idempotency_mismatch")


@pytest.mark.parametrize("actual", [-1, 1.5, "x", 10**12])
async def test_actual_tokens_that_are_none_are_refused_and_the_task_goes_on(router: Api, actual: Json) -> None:
    task = (await schedule(router, 10))["task_id"]
    answer = await router.call("POST", "/complete", {"task_id": task, "actual_tokens": actual})
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert (await router.call("POST", "/heartbeat", {"task_id": task})).json == {"ok": True}


async def test_a_put_changes_what_it_names_and_shows_all(router: Api) -> None:
    answer = await router.call("PUT", "/models/gpt", {"weight": 3, "paused": True, "burst": 500})
    assert answer.json == {
        "id": "gpt",
        "weight": 3,
        "max_concurrent_requests": 2,
        "max_tokens_per_minute": 60_000,
        "burst": 500,
        "paused": True,
        "in_flight": 0,
        "tokens": 500.0,
        "waiting": 0,
        "tokens_last_minute": 0,
    }
    answer = await schedule(router, 10)
    assert answer["reason"] == "paused"
    assert 1000 <= answer["wait_for_ms"] <= 1100
    assert (await router.call("PUT", "/models/gpt", {"burst": None})).json["burst"] == 10_000


@pytest.mark.parametrize(
    "body",
    [
        {"max_tokens_per_minute": 0},
        {"max_tokens_per_minute": 10**10},
        {"max_tokens_per_minute": None},
        {"max_concurrent_requests": -1},
        {"max_concurrent_requests": 1.5},
        {"weight": 0},
        {"burst": 0},
        {"paused": "yes"},
        {"max_token_per_minute": 5},
    ],
)
async def test_limits_that_are_none_are_refused_by_name_and_nothing_is_written(router: Api, body: Json) -> None:
    before = (await router.call("GET", "/models")).json
    answer = await router.call("PUT", "/models/gpt", {"weight": 9, **body})
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert next(iter(body)) in answer.json["detail"]
    after = (await router.call("GET", "/models")).json
    assert [each["weight"] for each in after["models"]] == [each["weight"] for each in before["models"]] == [1]


async def test_a_new_model_needs_both_limits(router: Api) -> None:
    answer = await router.call("PUT", "/models/new", {"max_tokens_per_minute": 5})
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert "max_concurrent_requests" in answer.json["detail"]
    assert (await router.call("GET", "/models/new")).status == 404


@pytest.mark.parametrize("put", ["a/b", "a%2Fb", "a%2fb", "%61/b"])
@pytest.mark.parametrize("other", ["a/b", "a%2Fb"])
async def test_a_slash_in_an_id_may_be_encoded_or_not(router: Api, put: str, other: str) -> None:
    await router.call("GET", "/models", **ANEW)
    assert (await router.call("PUT", f"/models/{put}", GPT, **ANEW)).json["id"] == "a/b"
    assert (await router.call("GET", f"/models/{other}", **ANEW)).json["id"] == "a/b"
    assert (await schedule(router, 10, models=["a/b"]))["model_backend_id"] == "a/b"
    assert (await router.call("DELETE", f"/models/{other}", **ANEW)).json == {"id": "a/b", "removed": True}
    assert (await router.call("GET", f"/models/{put}", **ANEW)).status == 404


async def test_elsewhere_an_encoded_slash_is_refused_still(router: Api) -> None:
    for path in ("/routes/a%2Fb", "/tasks%2F", "/routes//models/a%2Fb"):
        reply = await router.raw(b"GET %b HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % path.encode())
        assert reply.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "path",
    ["a%20b", "a/../b", "a/..", "a%2F..%2Fb", "a/./b", "a//b", "a/", "a%252Fb", "%FF", "a" * 129, "", ".", ".."],
)
async def test_what_is_no_id_is_refused_by_name(router: Api, path: str) -> None:
    for method in ("GET", "PUT", "DELETE"):
        answer = await router.call(method, f"/models/{path}", GPT if method == "PUT" else None)
        assert (answer.status, answer.json["error"]) == (400, "bad_request")
        assert "model id" in answer.json["detail"]


@pytest.mark.parametrize("model", ["a/../b", "a/", "a//b", "", "a" * 129])
async def test_what_is_no_id_is_refused_where_it_is_asked_for_too(router: Api, model: str) -> None:
    answer = await router.call("POST", "/schedule", {"estimated_tokens": 1, "models": [model]})
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert "model id" in answer.json["detail"]


@pytest.mark.parametrize("model", ["a/...", "a/.b", "a/..b", "org/model-3.1/v2.", "a" * 128])
async def test_dots_are_part_of_an_id_where_they_mean_nothing_else(router: Api, model: str) -> None:
    assert (await router.call("PUT", f"/models/{model}", GPT)).json["id"] == model
    assert (await schedule(router, 1, models=[model]))["model_backend_id"] == model


@pytest.mark.parametrize("path", ["/complete", "/heartbeat"])
@pytest.mark.parametrize(
    "body", [{}, {"task_id": ""}, {"task_id": 7}, {"task_id": None}, {"task_id": "t" * 10_240}]
)
async def test_a_task_id_that_is_none_is_refused_by_name(router: Api, path: str, body: Json) -> None:
    answer = await router.call("POST", path, body)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert "task_id" in answer.json["detail"]
    assert len(answer.body) < 20_000


async def test_only_abandoned_tasks_are_listed(router: Api) -> None:
    assert (await router.call("GET", "/tasks?state=abandoned")).json == {"tasks": [], "left_off": 0}
    for query in ("", "?state=running", "?state=abandoned&x=1", "?limit=5", "?state=abandoned&state=abandoned"):
        assert (await router.call("GET", f"/tasks{query}")).status == 400


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "x", "", "1e3", "99999999999999999999"])
async def test_a_page_has_from_one_to_a_thousand_rows(router: Api, limit: str) -> None:
    answer = await router.call("GET", f"/tasks?state=abandoned&limit={limit}")
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert "limit" in answer.json["detail"]


async def test_the_advice_has_its_two_fields(router: Api) -> None:
    assert (await router.call("GET", "/advice")).json == {"backpressure_score": 0.0, "suggested_parallelism": 2}


async def test_the_document_has_the_router_where_the_role_is_on(router: Api, api: Api) -> None:
    paths = (await router.call("GET", "/openapi.json")).json["paths"]
    assert {"/schedule", "/complete", "/heartbeat", "/tasks", "/advice", "/models", "/models/{model}"} <= set(paths)
    assert set(paths["/schedule"]["post"]["responses"]) >= {"200", "400", "404", "409", "422"}
    assert "/schedule" not in (await api.call("GET", "/openapi.json")).json["paths"]
    assert (await api.call("POST", "/schedule", {"estimated_tokens": 1})).status == 404


async def test_a_dry_run_of_limits_is_refused_like_a_change_and_writes_nothing(router: Api) -> None:
    before = (await router.call("GET", "/models/gpt")).json["max_tokens_per_minute"]
    for method, body in (("PUT", {"max_tokens_per_minute": 6000}), ("DELETE", None)):
        assert (await router.call(method, "/models/gpt?dry_run=true", body)).json == {"dry_run": True}
    assert (await router.call("PUT", "/models/gpt?dry_run=true", {"max_tokens_per_minute": -1})).status == 400
    assert (await router.call("GET", "/models/gpt")).json["max_tokens_per_minute"] == before

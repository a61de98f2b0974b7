"""What each right of a token opens, and what it leaves shut."""

from collections.abc import Mapping
from typing import Any, get_args
from unittest.mock import Mock

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from slb.api.application import api_endpoints, make_api, make_data_api
from slb.api.callers import HOLDER, named
from slb.api.replies import Answered
from slb.tokens import RIGHTS, Right, Token, digest_of
from tests.unit.api.conftest import Answer, Api, ApiMaker

TOKENS: Mapping[str, Token] = {
    **{
        right: Token(rights=(right,), sha256=(digest_of(right),))
        for right in get_args(Right)
        if right not in ("register", "admin")
    },
    "ci": Token(rights=("register",), prefixes=("/models/flux",), sha256=(digest_of("ci"),)),
    "root": Token(rights=("admin",), sha256=(digest_of("root"),)),
}
"""Each with its name for its secret."""

NEEDED: Mapping[str, set[str]] = {
    "register": {
        "POST /register", "DELETE /register", "POST /admin/register", "POST /tasks/callback/{id}",
        "PUT /routes/{path}", "PATCH /routes/{path}", "DELETE /routes/{path}",
    },
    "read": {
        "GET /routes", "GET /routes/{path}", "GET /written", "GET /upstreams", "GET /upstreams/{member}",
        "GET /instances",
        "GET /status", "GET /metrics", "GET /scale/{path}", "GET /queue/stats", "GET /tasks",
        "GET /admin/model-configs", "GET /admin/model-configs/{model}",
        "GET /fleet", "GET /fleet/events", "GET /fleet/history",
        "GET /fleet/history/routes/{path}", "GET /fleet/history/upstreams/{member}",
        "GET /fleet/changes", "GET /explain/{request_id}",
        "GET /fleet/upstreams/{member}", "GET /explain",
        "GET /advice", "GET /models", "GET /models/{model}",
    },
    "metrics": {"GET /metrics", "GET /scale/{path}"},
    "quota": {
        "POST /schedule", "POST /complete", "POST /heartbeat", "GET /tasks", "GET /advice", "GET /models",
        "GET /models/{model}",
    },
    "jobs": {
        "POST /queue/submit", "POST /queue/submit-many", "POST /queue/run", "GET /queue/jobs",
        "GET /queue/jobs/{id}", "DELETE /queue/jobs/{id}", "GET /queue/stats", "GET /queue/events",
        "GET /admin/dlq", "GET /admin/model-configs",
        "GET /admin/model-configs/{model}", "POST /tasks/callback/{id}",
    },
    "admin": {
        "PATCH /upstreams/{member}", "PUT /models/{model}", "DELETE /models/{model}", "POST /admin/dlq/retry-all",
        "POST /admin/dlq/{id}/retry", "DELETE /admin/dlq/{id}", "PUT /admin/model-configs/{model}",
        "PATCH /admin/model-configs/{model}", "DELETE /admin/model-configs/{model}",
    },
}  # fmt: skip
ANY = {"GET /", "GET /openapi.json", "GET /token"}
OPEN = {"GET /healthz", "GET /readyz", "POST /tasks/handle"}


async def call(api: Api, token: str, method: str, path: str, body: Any = None) -> Answer:
    return await api.call(method, path, body, headers={"Authorization": f"Bearer {token}"})


@pytest.fixture
async def guarded(serve: ApiMaker) -> Api:
    return await serve(settings={"tokens": TOKENS})


def test_every_endpoint_is_opened_by_the_rights_that_users_expect() -> None:
    opened: dict[str, set[str]] = {each: set() for each in (*RIGHTS, "any", "open")}
    for endpoint in api_endpoints(Mock()):
        every = ("open",) if endpoint.is_open else ("any",) if endpoint.rights == RIGHTS else endpoint.rights
        for right in every:
            opened[right].add(f"{endpoint.method} {endpoint.path}")
    assert opened == {**NEEDED, "any": ANY, "open": OPEN}


@pytest.mark.parametrize("path", ["/routes", "/upstreams", "/instances", "/status", "/metrics", "/", "/token"])
@pytest.mark.parametrize("token", [*TOKENS, "nobody"])
async def test_a_token_gets_what_its_rights_open_and_else_is_told_which_is_missing(
    guarded: Api, token: str, path: str
) -> None:
    answer = await call(guarded, token, "GET", path)
    if token == "nobody":
        assert (answer.status, answer.json["error"]) == (401, "unauthorized")
    elif token in ("root", "read") or f"GET {path}" in NEEDED.get(token, set()) | ANY:
        assert answer.status == 200
    else:
        assert (answer.status, answer.json["error"]) == (403, "forbidden")
        assert answer.json["detail"].startswith(f"the token {token} lacks the right ")
        assert answer.json["detail"].endswith("metrics or read" if path == "/metrics" else "read")


async def test_head_needs_what_get_needs(guarded: Api) -> None:
    assert (await call(guarded, "metrics", "HEAD", "/status")).status == 403
    assert (await call(guarded, "read", "HEAD", "/status")).status == 200


async def test_what_is_not_there_is_not_forbidden(guarded: Api) -> None:
    assert (await call(guarded, "metrics", "GET", "/nowhere")).status == 404
    assert (await call(guarded, "metrics", "PUT", "/status")).status == 405
    assert (await call(guarded, "nobody", "GET", "/nowhere")).status == 401


async def test_the_one_token_of_the_setting_stays_and_may_all(serve: ApiMaker) -> None:
    api = await serve(settings={"tokens": TOKENS, "api_token": "old"})
    assert (await call(api, "old", "PATCH", "/routes/p", {"retries": "2"})).status == 200
    assert (await call(api, "old", "GET", "/token")).json == {
        "name": "api_token",
        "rights": ["admin"],
        "prefixes": [],
    }


async def test_a_token_is_told_what_it_may(guarded: Api, api: Api) -> None:
    shown = (await call(guarded, "ci", "GET", "/token")).json
    assert shown == {"name": "ci", "rights": ["register"], "prefixes": ["/models/flux"]}
    assert (await api.call("GET", "/token")).json == {"name": "", "rights": ["admin"], "prefixes": []}


@pytest.mark.parametrize("make", [make_api, make_data_api])
async def test_upstreams_are_registered_and_deregistered_below_the_prefixes_alone(
    serve: ApiMaker, make: Any
) -> None:
    api = await serve(make, settings={"tokens": TOKENS})
    for path, status in (("/models/flux", 200), ("/models/flux/dev", 200), ("/models/flux2", 403), ("/", 403)):
        for method in ("POST", "DELETE"):
            answer = await call(api, "ci", method, "/register", {"path": path, "target": "10.0.0.1"})
            assert answer.status == status, (method, path)
            if status == 403:
                assert answer.json["detail"] == f"path: the token ci lacks the right register for {path}"
    assert (await call(api, "read", "POST", "/register", {"path": "/", "target": "10.0.0.1"})).status == 403


async def test_a_path_in_another_spelling_is_the_same_path(guarded: Api) -> None:
    body = {"path": "/models/flux/../llama", "target": "10.0.0.1"}
    answer = await call(guarded, "ci", "POST", "/register", body)
    assert answer.json["detail"] == "path: the token ci lacks the right register for /models/llama"
    assert (await call(guarded, "ci", "DELETE", "/routes/models/flux%2e/../../x")).status in (400, 403)


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_a_list_is_written_whole_or_not_at_all(guarded: Api, method: str) -> None:
    await call(guarded, "root", "POST", "/register", {"path": "/models/flux", "target": "10.0.0.9:80"})
    before = await guarded.stored()
    entries = [
        {"ip_address": "10.0.0.9", "port": 80, "path": "/models/flux"},
        {"ip_address": "10.0.0.2", "port": 80, "path": "/other"},
    ]
    answer = await call(guarded, "ci", method, "/register", entries)
    assert answer.status == 403
    assert answer.json["detail"] == "[1].path: the token ci lacks the right register for /other"
    assert await guarded.stored() == before


async def test_who_may_register_at_a_route_may_set_and_remove_it(guarded: Api) -> None:
    assert (await call(guarded, "ci", "PUT", "/routes/models/flux", {"retries": "2"})).status == 200
    assert (await call(guarded, "ci", "PATCH", "/routes/models/flux", {"retries": None})).status == 200
    assert (await call(guarded, "ci", "PATCH", "/routes/other", {"retries": "2"})).status == 403
    assert (await call(guarded, "ci", "DELETE", "/routes/other")).status == 403
    await call(guarded, "ci", "POST", "/register", {"path": "/models/flux", "target": "10.0.0.1"})
    assert (await call(guarded, "ci", "DELETE", "/routes/models/flux")).status == 200


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_no_route_takes_slots_of_a_pool_that_its_token_does_not_cover(guarded: Api, method: str) -> None:
    answer = await call(guarded, "ci", method, "/routes/models/flux", {"pool": "/models/llama"})
    assert answer.json["detail"] == "pool: the token ci lacks the right register for /models/llama"
    assert (await call(guarded, "ci", method, "/routes/models/flux", {"pool": "/models/flux/all"})).status == 200
    assert (await call(guarded, "root", method, "/routes/models/flux", {"pool": "/models/llama"})).status == 200


async def test_attributes_of_an_upstream_that_others_route_to_stay_as_they_are(guarded: Api) -> None:
    shared = {"target": "10.0.0.1:80", "weight": 2}
    await call(guarded, "root", "POST", "/register", {"path": "/models/llama", **shared})
    own = {"path": "/models/flux", **shared}
    assert (await call(guarded, "ci", "POST", "/register", own)).status == 200, "nothing would change"
    answer = await call(guarded, "ci", "POST", "/register", {**own, "weight": 9, "slots": 3})
    assert answer.status == 403
    assert answer.json["detail"].startswith("weight, slots: 10.0.0.1:80 has routes")
    assert "llama" not in answer.json["detail"]
    assert (
        await call(guarded, "ci", "POST", "/register", {**own, "target": "10.0.0.2:80", "weight": 9})
    ).status == 200
    assert (
        await call(guarded, "ci", "POST", "/register", {**own, "target": "10.0.0.2:80", "weight": 8})
    ).status == 200


async def test_answers_are_logged_with_the_name_of_the_token(serve: ApiMaker) -> None:
    answered: list[Answered] = []
    api = await serve(settings={"tokens": TOKENS}, on_answer=answered.append)
    for token in ("ci", "nobody", "metrics"):
        await call(api, token, "POST", "/register", {"path": "/models/flux", "target": "10.0.0.1"})
    assert [(each.status, each.token) for each in answered] == [(200, "ci"), (401, ""), (403, "metrics")]


async def test_lines_of_changes_name_who_made_them(guarded: Api, api: Api) -> None:
    with capture_logs() as lines:
        await call(guarded, "ci", "POST", "/register", {"path": "/models/flux", "target": "10.0.0.1"})
        await call(guarded, "ci", "PATCH", "/routes/models/flux", {"retries": "2"})
        await call(guarded, "root", "PATCH", "/upstreams/10.0.0.1:80", {"drain": True})
        await call(guarded, "ci", "DELETE", "/register", {"path": "/models/flux", "target": "10.0.0.1"})
        await call(guarded, "root", "DELETE", "/routes/models/flux")
        await api.call("PATCH", "/routes/p", {"retries": "2"})
    assert [
        (line["event"], line.get("by")) for line in lines if line["event"].startswith(("upstream_", "route_"))
    ] == [
        ("upstream_added", "ci"),
        ("route_settings_changed", "ci"),
        ("upstream_changed", "root"),
        ("upstream_removed", "ci"),
        ("route_removed", "root"),
        ("route_settings_changed", None),
    ]


async def test_a_handler_is_told_who_asks(serve: ApiMaker) -> None:
    seen: list[Mapping[str, str]] = []

    def make(parts: Any) -> web.Application:
        app = make_api(parts)

        @web.middleware
        async def look(request: web.Request, handler: Any) -> web.StreamResponse:
            seen.append({"name": request[HOLDER].name, **named(request)})
            reply: web.StreamResponse = await handler(request)
            return reply

        app.middlewares.append(look)
        return app

    api = await serve(make, settings={"tokens": TOKENS})
    await call(api, "read", "GET", "/status")
    assert seen == [{"name": "read", "by": "read"}]


async def test_openapi_names_the_rights(guarded: Api) -> None:
    paths = (await call(guarded, "metrics", "GET", "/openapi.json")).json["paths"]
    assert paths["/metrics"]["get"]["security"] == [{}, {"token": ["metrics"]}, {"token": ["read"]}]
    assert paths["/upstreams/{member}"]["patch"]["security"] == [{}, {"token": ["admin"]}]
    assert paths["/healthz"]["get"]["security"] == []
    listed = (await call(guarded, "metrics", "GET", "/")).json["endpoints"]
    assert {each["path"]: each["rights"] for each in listed}["/metrics"] == ["metrics", "read"]

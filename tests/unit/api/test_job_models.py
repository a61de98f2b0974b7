"""The models of the job dispatcher: what is set on them, and the GPUs that are registered for them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slb.api.parts import ApiParts
from slb.control.connection import Connection
from tests.support.waiting import until
from tests.unit.api.conftest import Api, ApiMaker
from tests.unit.api.jobs_rig import FLUX, api_of_jobs, refused, submit


@pytest.fixture
async def jobs(serve: ApiMaker, connection: Connection, parts: ApiParts, tmp_path: Path) -> AsyncIterator[Api]:
    """The API with the role on, and the model `flux`, which is paused."""
    async with api_of_jobs(serve, connection, parts, tmp_path) as api:
        yield api


async def test_what_holds_for_a_model_is_set_shown_and_taken_back(jobs: Api) -> None:
    seed = {"model_type": "async", "poll_endpoint_template": "/status/{id}", "poll_interval": 5.0, "max_retries": 3}
    shown = (await jobs.call("PUT", FLUX, seed)).json["config"]
    assert seed.items() <= shown.items()
    assert (shown["max_poll_time"], shown["paused"]) == (600.0, True)
    assert (await jobs.call("GET", FLUX)).json["config"] == shown
    assert (await jobs.call("DELETE", FLUX)).json == {"model": "flux", "removed": True}
    left = (await jobs.call("GET", FLUX)).json["config"]
    assert (left["max_retries"], left["paused"]) == (50, True)  # to let its jobs begin is said by itself
    assert (await jobs.call("DELETE", FLUX)).json["removed"] is False
    await jobs.call("PATCH", FLUX, {"paused": False})
    await jobs.call("DELETE", FLUX)
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


async def test_all_models_are_listed_with_what_is_set_on_them_alone(jobs: Api) -> None:
    await jobs.call("PATCH", FLUX, {"max_poll_time": "2m", "priorities": "high=8,low=1", "endpoint": "/generate"})
    await jobs.call("PUT", "/admin/model-configs/black-forest/schnell", {})
    await jobs.call("POST", "/admin/register", {"model": "zimg", "endpoint": "http://10.0.0.7:8000"})
    listed = (await jobs.call("GET", "/admin/model-configs")).json
    flux = {"max_poll_time": 120.0, "priorities": "high=8,low=1", "paused": True}
    assert listed == {"models": {"black-forest/schnell": {}, "flux": flux}}, (
        "zimg has a GPU, and nothing is set on it"
    )


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
        assert (await jobs.call("PUT", f"/admin/model-configs/{model}", {"max_retries": 3})).status == 200
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


async def test_a_dry_run_of_a_model_is_refused_like_a_change_and_writes_nothing(jobs: Api) -> None:
    before = (await jobs.call("GET", "/admin/model-configs")).json, await jobs.stored()
    gpu = {"model": "flux", "endpoint": "http://10.0.0.7:8000/make"}
    for method, path, body in (
        ("PUT", FLUX, {"max_retries": 3}),
        ("PATCH", FLUX, {"max_retries": 3, "paused": False}),
        ("PUT", "/admin/model-configs/new", {}),
        ("DELETE", FLUX, None),
        ("POST", "/admin/register", gpu),
    ):
        answer = await jobs.call(method, f"{path}?dry_run=true", body)
        assert (answer.status, answer.json) == (200, {"dry_run": True}), (method, path)
    assert "max_retries" in await refused(
        jobs, 400, "bad_request", "PUT", f"{FLUX}?dry_run=true", {"max_retries": -1}
    )
    assert ((await jobs.call("GET", "/admin/model-configs")).json, await jobs.stored()) == before


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/admin/register", {"model": "second", "endpoint": "http://10.0.0.1:80/generate"}),
        ("/register", {"path": "/jobs/second", "target": "10.0.0.1:80"}),
        ("/register", [{"path": "/jobs/second", "ip_address": "10.0.0.1"}]),
    ],
)
async def test_a_gpu_of_a_model_too_many_is_refused(
    jobs: Api, monkeypatch: pytest.MonkeyPatch, path: str, body: Any
) -> None:
    monkeypatch.setattr("slb.jobs.models.MOST_MODELS", 1)
    assert "models of jobs" in await refused(jobs, 409, "too_many_models", "POST", path, body)
    assert "/jobs/second" not in jobs.parts.mirror.records
    await refused(jobs, 404, "unknown_model", "POST", "/queue/submit", {"model": "second", "payload": 1})
    of_flux = {"path": "/jobs/flux", "target": "10.0.0.1:80"}
    assert (await jobs.call("POST", "/register", of_flux)).status == 200

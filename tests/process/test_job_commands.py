"""`slb jobs` before an instance that has the role."""

from typing import Any

import orjson
import pytest

from tests.process.commands import Commands, Serving
from tests.support.gpus import Gpu
from tests.support.valkey import Valkey

MODEL = "flux"


@pytest.fixture
async def serving(slb: Commands, valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> Serving:
    """An instance with the role and a paused model, which the commands find by SLB_URL."""
    found = await slb.until_ready(await slb.serve("--roles", "proxy,jobs", redis=valkey.url))
    monkeypatch.setenv("SLB_URL", found.api)
    body = orjson.dumps({"paused": True, "max_retries": 0})
    async with slb.session.put(f"{found.api}/admin/model-configs/{MODEL}", data=body) as reply:
        assert reply.status == 200
    return found


async def output(slb: Commands, *arguments: str) -> str:
    result = await slb.run("jobs", *arguments)
    assert (result.code, result.err) == (0, "")
    return result.out


def cancelled_in(status: Any) -> int:
    return int(status["jobs"]["models"].get(MODEL, {"counts": {}})["counts"].get("cancelled", 0))


async def test_jobs_are_submitted_listed_shown_and_cancelled(slb: Commands, serving: Serving) -> None:
    assert await output(slb, "submit", MODEL, '{"prompt": "x"}', "--id", "one") == "one: queued\n"
    assert (
        await output(slb, "submit", MODEL, '{"prompt": "x"}', "--id", "one") == "one: was there already, queued\n"
    )
    assert await output(slb, "submit", MODEL, "2", "--id", "two") == "two: queued, 1 of its class before it\n"
    listed = orjson.loads(await output(slb, "list", MODEL, "--json"))
    assert [each["job_id"] for each in listed["jobs"]] == ["one", "two"]
    assert "two" in await output(slb, "list", MODEL)
    assert orjson.loads(await output(slb, "show", "two", "--json"))["position"] == 1
    assert await output(slb, "cancel", "one", "two") == (
        "one: cancelled, it was queued\ntwo: cancelled, it was queued\n"
    )
    counts = (await slb.until_json(f"{serving.api}/status", lambda found: cancelled_in(found) == 2))["jobs"][
        "models"
    ]
    assert (counts[MODEL]["queued"], counts[MODEL]["paused"]) == (0, True)
    assert f"{MODEL} (paused)" in (await slb.run("status", "--over", "0")).out
    again = await slb.run("jobs", "cancel", "one")
    assert (again.code, again.out) == (1, "")
    assert "409 job_ended" in again.err


async def test_a_paused_model_keeps_what_is_set_on_it(slb: Commands, serving: Serving) -> None:
    url = f"{serving.api}/admin/model-configs/{MODEL}"
    for word, is_paused in (("resume", False), ("pause", True)):
        await output(slb, word, MODEL)
        config = (await slb.json(url))["config"]
        assert (config["paused"], config["max_retries"]) == (is_paused, 0)
    unknown = await slb.run("jobs", "pause", "none")
    assert (unknown.code, unknown.out) == (1, "")
    assert "404 unknown_model" in unknown.err


async def test_dead_jobs_are_found_by_their_error_begin_again_and_are_deleted(
    slb: Commands, serving: Serving
) -> None:
    gpu = Gpu()
    gpu.answers = [(500, {"error": "out of memory"})] * 2 + [(500, {"error": "no such layer"})]
    await gpu.server.start_server()
    try:
        body = orjson.dumps({"model": MODEL, "endpoint": gpu.endpoint})
        async with slb.session.post(f"{serving.api}/admin/register", data=body) as reply:
            assert reply.status == 200
        await output(slb, "resume", MODEL)
        for id_ in ("a", "b", "c"):
            await output(slb, "submit", MODEL, "1", "--id", id_)
            url = f"{serving.api}/queue/jobs/{id_}?model={MODEL}"
            await slb.until_json(url, lambda job: job["status"] == "dead_lettered")
        found = orjson.loads(await output(slb, "dlq", "list", MODEL, "--error", "Memory", "--json"))
        assert [each["job_id"] for each in found["jobs"]] == ["a", "b"]
        assert await output(slb, "dlq", "delete", "a") == "a: deleted\n"
        assert await output(slb, "dlq", "retry", "--all", "--error", "memory") == "all models: 1 begin again\n"
        await slb.until_json(f"{serving.api}/queue/jobs/b", lambda job: job["status"] == "completed")
        assert await output(slb, "dlq", "retry", "c") == "c: begins again\n"
        await slb.until_json(f"{serving.api}/queue/jobs/c", lambda job: job["status"] == "completed")
        assert await output(slb, "dlq", "list", MODEL) == f"No such job of {MODEL} is dead.\n"
    finally:
        await gpu.server.close()


async def test_a_job_is_watched_at_another_instance_than_the_one_that_runs_it(
    slb: Commands, serving: Serving, valkey: Valkey
) -> None:
    gpu = Gpu(holds=True)
    await gpu.server.start_server()
    try:
        body = orjson.dumps({"model": MODEL, "endpoint": gpu.endpoint})
        async with slb.session.post(f"{serving.api}/admin/register", data=body) as reply:
            assert reply.status == 200
        await output(slb, "submit", MODEL, "1", "--id", "one")
        there = await slb.until_ready(await slb.serve("--roles", "proxy,jobs", redis=valkey.url))
        watched = await slb.start("jobs", "watch", "one", "--url", there.api)
        assert "one  queued" in await watched.first_line()
        await output(slb, "resume", MODEL)
        assert f"processing, at {gpu.endpoint.split('/')[2]}, attempt 1" in await watched.first_line()
        gpu.go.set()
        assert "one  completed" in await watched.first_line()
        assert await watched.ended() == 0
        out = await output(slb, "submit", MODEL, "2", "--wait", "--json", "--url", there.api)
        assert orjson.loads(out)["result"] == {"of": 2}
    finally:
        gpu.go.set()
        await gpu.server.close()


async def test_an_instance_without_the_role_is_named_as_one(
    slb: Commands, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = await slb.until_ready(await slb.serve(redis=valkey.url))
    monkeypatch.setenv("SLB_URL", without.api)
    for line in (
        "submit m 1",
        "show one",
        "list m",
        "watch one",
        "cancel one",
        "pause m",
        "dlq list m",
        "dlq retry one",
    ):
        result = await slb.run("jobs", *line.split())
        assert (result.code, result.out) == (1, "")
        assert result.err.startswith(f"slb: the slb at {without.api} has no job dispatcher: ")
        assert "--roles proxy,jobs" in result.err

"""`slb quota`, and `slb serve` with the role: processes that share one quota."""

import asyncio
import re
from typing import Any

import orjson
import pytest

from slb.demo.processes import Process
from tests.process.commands import Commands
from tests.support.valkey import Valkey
from tests.support.waiting import until

_URL = re.compile(r"API (http://[0-9.]+:[0-9]+)")
MODEL = ("max_tokens_per_minute=60000", "max_concurrent_requests=2")


@pytest.fixture
async def quota(slb: Commands, valkey: Valkey) -> Any:
    """Starts `slb ARGUMENTS` on the shared Valkey; its process and the URL of its API."""

    async def start(*arguments: str, env: dict[str, str] | None = None) -> tuple[Process, str]:
        flags = ["--api", "127.0.0.1:0", "--redis", valkey.url, "--data-dir", str(slb.directory / "data")]
        process = await slb.start(*arguments, *flags, env=env)
        line = await process.first_line()
        found = _URL.search(line)
        assert found is not None, line
        return process, found[1]

    return start


async def post(slb: Commands, url: str, body: dict[str, Any]) -> tuple[int, Any]:
    async with slb.session.post(url, json=body) as reply:
        return reply.status, await reply.json()


async def test_two_processes_share_one_quota(slb: Commands, quota: Any) -> None:
    (first, one), (_, other) = await asyncio.gather(quota("quota"), quota("serve", "--roles", "quota"))
    made = await slb.run("quota", "models", "set", "gpt", *MODEL, "--url", one)
    assert made.code == 0, made.err
    tasks = [(await post(slb, f"{url}/schedule", {"estimated_tokens": 10}))[1] for url in (one, other, one)]
    assert [set(task) for task in tasks] == [{"model_backend_id", "task_id", "lease_ttl_ms"}] * 2 + [
        {"wait_for_ms"}
    ]
    status, answer = await post(slb, f"{other}/complete", {"task_id": tasks[0]["task_id"]})
    assert (status, answer["state"]) == (200, "completed")
    shown = await slb.run("quota", "models", "--json", "--url", other)
    assert [each["in_flight"] for each in orjson.loads(shown.out)["models"]] == [1]
    advised = await slb.run("quota", "advice", "--url", other)
    assert re.fullmatch(r"pressure 0\.\d\d, suggested parallelism 2\n", advised.out)
    assert {tuple(each["roles"]) for each in (await slb.json(f"{one}/instances"))["instances"]} == {("quota",)}
    assert (await slb.get(f"{one}/readyz"))[0] == 200
    assert await first.stop() == 0


async def test_ids_with_slashes_are_set_and_deleted_by_command_and_others_refused(
    slb: Commands, quota: Any
) -> None:
    _, url = await quota("quota")
    name = "meta-llama/Llama-3-70B"
    assert (await slb.run("quota", "models", "set", name, *MODEL, "--url", url)).code == 0
    status, answer = await post(slb, f"{url}/schedule", {"estimated_tokens": 10, "models": [name]})
    assert (status, answer["model_backend_id"]) == (200, name)
    for bad in (f"x/../{name}", f"{name}/"):
        for command in (("set", bad, *MODEL), ("delete", bad)):
            refused = await slb.run("quota", "models", *command, "--url", url)
            assert (refused.code, refused.err.count("\n")) == (1, 1)
            assert "model id" in refused.err
    assert (await slb.run("quota", "models", "delete", name, "--url", url)).out == f"{name}: removed\n"


async def test_what_may_not_be_set_is_refused_by_name_and_null_takes_a_bucket_back(
    slb: Commands, quota: Any
) -> None:
    _, url = await quota("quota")
    await slb.run("quota", "models", "set", "gpt", *MODEL, "burst=7", "--url", url)
    refused = await slb.run("quota", "models", "set", "gpt", "weight=-1", "--url", url)
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "weight: " in refused.err
    taken_back = await slb.run("quota", "models", "set", "gpt", "burst=null", "--url", url)
    assert "burst = 10000\n" in taken_back.out


async def test_watch_shows_models_and_advice_until_it_is_stopped(slb: Commands, quota: Any) -> None:
    _, url = await quota("quota")
    await slb.run("quota", "models", "set", "gpt", *MODEL, "--url", url)
    watching = await slb.start("quota", "watch", "--url", url)
    assert "suggested parallelism 2" in await watching.first_line()
    assert await watching.stop() == 0


async def test_a_process_may_have_both_roles_with_workers_too(slb: Commands, valkey: Valkey) -> None:
    serving = await slb.until_ready(await slb.serve("--roles", "proxy,quota", "--workers", "2", redis=valkey.url))
    made = await slb.run("quota", "models", "set", "gpt", *MODEL, "--url", serving.api)
    assert made.code == 0, made.err
    status, answer = await post(slb, f"{serving.api}/schedule", {"estimated_tokens": 10})
    assert (status, answer["model_backend_id"]) == (200, "gpt")
    _, text = await slb.get(f"{serving.api}/metrics")
    assert 'slb_quota_decisions_total{decision="admitted",model="gpt",reason=""} 1.0' in text
    assert (await post(slb, f"{serving.url}/schedule", {"estimated_tokens": 10}))[0] == 404, "that is for traffic"


async def test_the_role_is_off_unless_it_is_asked_for(slb: Commands, valkey: Valkey) -> None:
    serving = await slb.serve(redis=valkey.url)
    assert (await post(slb, f"{serving.api}/schedule", {"estimated_tokens": 10}))[0] == 404


async def test_what_to_do_without_redis_may_stand_in_the_file_or_the_environment(
    slb: Commands, quota: Any, valkey: Valkey
) -> None:
    file = slb.directory / "slb.toml"
    file.write_text('quota.fail = "open"\n')
    _, by_file = await quota("quota", "--config", str(file))
    _, by_default = await quota("quota")
    await slb.run("quota", "models", "set", "gpt", *MODEL, "--url", by_file)
    await until_known(slb, by_file)
    valkey.kill()
    for url, models in ((by_file, {"gpt"}), (by_default, set())):
        given = await until_alone(slb, url)
        assert {given.get("model_backend_id")} - {None} == models


async def until_known(slb: Commands, url: str) -> None:
    """The process has seen the model, so that it has it without Redis."""
    await until(lambda: slb.get(f"{url}/metrics"), lambda found: 'slb_quota_tokens{model="gpt"}' in found[1])


async def until_alone(slb: Commands, url: str) -> dict[str, Any]:
    """The first answer that admits, or the tenth; every wait has to have its reason."""
    answer: dict[str, Any] = {}
    for _ in range(10):
        status, answer = await post(slb, f"{url}/schedule", {"estimated_tokens": 10})
        assert status == 200
        if "model_backend_id" in answer:
            break
        assert answer["reason"] == "redis_down"
        await asyncio.sleep(min(answer["wait_for_ms"], 200) / 1000)
    return answer


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("quota", "--fail", "ajar"), "quota_fail"),
        (("quota", "--lease", "0"), "quota_lease"),
        (("quota", "--lease", "2s"), "quota_lease"),
        (("serve", "--roles", "quota", "--workers", "2"), "workers"),
    ],
)
async def test_settings_that_cannot_be_are_refused_in_one_line(
    slb: Commands, arguments: tuple[str, ...], named: str
) -> None:
    result = await slb.run(*arguments)
    assert result.code == 1
    assert named in result.err
    assert result.err.count("\n") == 1

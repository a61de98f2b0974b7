"""The example of a DAG, against real routers."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from tests.process.commands import Commands
from tests.support.quota_routers import Routers
from tests.support.valkey import Valkey
from tests.support.waiting import soon, until

EXAMPLE = Path(__file__).parents[2] / "examples" / "airflow_backlog.py"

OTHER = {"max_tokens_per_minute": 200_000, "max_concurrent_requests": 20, "weight": 100}


async def drained(*words: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLE), *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, err = await soon(process.communicate(), 60)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, out.decode(), err.decode()


async def test_the_example_drains_its_backlog_in_micro_batches_through_two_routers(
    slb: Commands, valkey: Valkey
) -> None:
    routers = Routers(slb, valkey)
    await routers.start(2)
    first, second = routers.urls
    await routers.put("another", OTHER)
    code, out, err = await drained("--router", first, "--router", second, "--prompts", "150", "--hurry", "20")
    assert code == 0, err
    assert "150 of 150 prompts solved" in out
    assert (most := re.search(r"(\d+) at most$", out.strip()))
    assert int(most[1]) > 1
    models = await routers.models()
    assert models.pop("another")["tokens_last_minute"] == 0
    assert models.keys() == {"quick", "steady", "thorough"}
    assert not any(model["in_flight"] for model in models.values())


@pytest.mark.parametrize("url", ["foo", "127.0.0.1:8081", "http://127.0.0.1:99999"])
async def test_a_router_that_is_no_url_is_refused_by_name(url: str) -> None:
    code, _, err = await drained("--router", url)
    assert code == 2
    assert f"error: argument --router: {url!r} is not a URL such as http://127.0.0.1:8081" in err


@pytest.mark.parametrize(
    "words", [("--prompts", "0"), ("--prompts", "-3"), ("--hurry", "0"), ("--hurry", "nan"), ("--hurry", "inf")]
)
async def test_what_cannot_be_meant_is_refused_before_anybody_is_asked(words: tuple[str, ...]) -> None:
    code, _, err = await drained("--router", "http://127.0.0.1:1", *words)
    assert code == 2
    assert f"error: argument {words[0]}: " in err


async def test_where_the_routers_go_away_it_prints_that_in_one_line(slb: Commands, valkey: Valkey) -> None:
    routers = Routers(slb, valkey)
    await routers.start(1)
    words = ("--router", routers.urls[0], "--prompts", "5000", "--patience", "1")
    draining = asyncio.create_task(drained(*words))
    await until(routers.models, lambda models: any(model["in_flight"] for model in models.values()))
    await routers.end(0)
    code, out, err = await draining
    assert (code, out) == (1, "")
    assert err.startswith("airflow_backlog: ")
    assert routers.urls[0] in err
    assert err.count("\n") == 1


async def test_without_a_router_it_prints_that_and_ends() -> None:
    code, _, err = await drained("--router", "http://127.0.0.1:1", "--prompts", "1")
    assert code == 1
    assert err.startswith("airflow_backlog: ")
    assert "127.0.0.1:1" in err

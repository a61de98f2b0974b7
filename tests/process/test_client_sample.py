"""Programs of the library's page, as a user pastes them beside the README's quick start."""

import asyncio
import sys
from typing import Any

from tests.process.commands import Commands
from tests.support.documents import samples_of
from tests.support.valkey import Valkey
from tests.support.waiting import soon

_RUN_SECONDS = 30


async def test_it_runs_and_is_answered_by_an_upstream(slb: Commands, valkey: Valkey) -> None:
    serving = await slb.until_ready(await slb.serve(redis=valkey.url))
    await slb.upstream("a", "--register", serving.api, "--path", "/p1")
    await slb.until_status(f"{serving.url}/p1/hello", 200)
    program = (
        samples_of("client.md", "")[0]
        .replace("embedded://", valkey.url)
        .replace("http://127.0.0.1:8080", serving.url)
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await soon(process.communicate(), _RUN_SECONDS)
    assert (process.returncode, err) == (0, b"")
    assert b"200 {'upstream': 'a'" in out
    assert b"/p1/again" in out


async def test_a_server_is_registered_while_it_serves(slb: Commands, valkey: Valkey) -> None:
    serving = await slb.until_ready(await slb.serve(redis=valkey.url))
    (sample,) = samples_of("client.md", "client.Registration")
    route = f"{serving.api}/routes/p1"

    async def serve() -> None:
        await slb.until_json(route, lambda shown: [each["member"] for each in shown["members"]] == ["10.0.0.1:80"])

    names: dict[str, Any] = {"serve": serve}
    exec(sample.replace("http://127.0.0.1:8081", serving.api), names)
    await names["serve_registered"]()
    await slb.until_status(route, 404)

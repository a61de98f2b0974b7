"""The first program of the library's page, as a user pastes it beside the README's quick start."""

import asyncio
import re
import sys
from pathlib import Path

from tests.process.commands import Commands
from tests.support.valkey import Valkey
from tests.support.waiting import soon

_PAGE = Path(__file__).parents[2] / "docs" / "client.md"
_RUN_SECONDS = 30


async def test_it_runs_and_is_answered_by_an_upstream(slb: Commands, valkey: Valkey) -> None:
    serving = await slb.until_ready(await slb.serve(redis=valkey.url))
    await slb.upstream("a", "--register", serving.api, "--path", "/p1")
    await slb.until_status(f"{serving.url}/p1/hello", 200)
    found = re.search(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    assert found is not None
    program = found[1].replace("embedded://", valkey.url).replace("http://127.0.0.1:8080", serving.url)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await soon(process.communicate(), _RUN_SECONDS)
    assert (process.returncode, err) == (0, b"")
    assert b"200 {'upstream': 'a'" in out
    assert b"/p1/again" in out

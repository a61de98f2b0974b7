"""Other people's requests and replies: the corpora of gunicorn, llhttp and others, thrown at the proxy by a judge
that stands beside the repository. Skipped where it does not."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.ports import free_port
from tests.proxy.harness import MakeProxy

ROOT = Path(__file__).parents[2]
JUDGE = ROOT.parent / "shared" / "judge" / "judge.py"
EXCEPTIONS = Path(__file__).parent / "judge_exceptions.json"


def exceptions() -> list[dict[str, str]]:
    """The labels held to be wrong."""
    found: list[dict[str, str]] = json.loads(EXCEPTIONS.read_text())
    return found


def parsed(out: Path, output: str) -> list[dict[str, Any]]:
    assert out.exists(), output
    found: list[dict[str, Any]] = json.loads(out.read_text())
    return found


async def verdicts(proxy_port: int, origin_port: int, out: Path) -> list[dict[str, Any]]:
    """What the judge holds against the proxy."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(JUDGE),
        *("--port", str(proxy_port), "--origin-port", str(origin_port), "--json", str(out)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return parsed(out, output.decode())


@pytest.mark.skipif(
    not JUDGE.exists(),
    reason="the judge is not part of this repository: it is looked for at ../shared/judge/judge.py",
)
@pytest.mark.timeout(400)
async def test_the_judge_finds_nothing_that_is_not_argued(proxies: MakeProxy, tmp_path: Path) -> None:
    proxy = await proxies(access_log="off")
    origin_port = free_port()
    proxy.route("/", f"127.0.0.1:{origin_port}")
    held = await verdicts(proxy.address[1], origin_port, tmp_path / "verdicts.json")
    argued = {(each["source"], each["id"], each["verdict"]) for each in exceptions()}
    assert [each for each in held if (each["source"], each["id"], each["verdict"]) not in argued] == []
    await proxy.at_rest()


def test_every_exception_is_argued_in_the_documents() -> None:
    for each in exceptions():
        page, _, anchor = each["argued"].partition("#")
        headings = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("#")]
        assert anchor in [heading.lstrip("# ").lower().replace(" ", "-") for heading in headings]

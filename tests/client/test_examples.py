"""Every example runs as it stands, against real upstreams."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from tests.client.conftest import Upstreams
from tests.client.rig import Gate, Upstream
from tests.support.waiting import eventually

EXAMPLES = Path(__file__).parents[2] / "examples"
_URL = re.compile(r"http://[0-9.:]+")


class Named:
    """An upstream that says who it is, once its gate is open."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.gate = Gate()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        await self.gate.open.wait()
        return web.json_response({"path": request.path}, headers={"X-Upstream": self.name})


async def _three(upstreams: Upstreams, is_open: bool = True) -> tuple[list[Upstream], list[Named]]:
    pods = [Named(name) for name in "abc"]
    for pod in pods:
        if is_open:
            pod.gate.open.set()
    return [await upstreams(pod) for pod in pods], pods


@asynccontextmanager
async def _example(name: str, *members: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / f"{name}.py"),
        *members,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _said(name: str, *members: str) -> str:
    async with _example(name, *members) as process, asyncio.timeout(30):
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return out.decode()


def test_every_example_of_the_library_has_a_test() -> None:
    of_library = {each.stem for each in EXAMPLES.glob("*.py") if "slb.client" in each.read_text()}
    assert of_library == {"plain", "fan_out_of_50", "shedding_server"}


async def test_the_plain_one_prints_who_answered(upstreams: Upstreams) -> None:
    three, _ = await _three(upstreams)
    said = await _said("plain", *(each.member for each in three))
    assert re.findall(r"^200 product (\d) by [abc]: /products/\1$", said, re.MULTILINE) == list("12345")
    assert "by the ring: {200: 5}" in said


async def test_the_fan_out_asks_for_fifty_products_twice(upstreams: Upstreams) -> None:
    three, _ = await _three(upstreams)
    said = await _said("fan_out_of_50", *(each.member for each in three))
    assert "100 calls, 0 sent again" in said
    assert sum(len(each.seen) for each in three) == 100
    assert sum(each.most for each in three) <= 20 * 3


async def test_the_server_sheds_at_its_cap_and_serves_again_after(upstreams: Upstreams) -> None:
    three, pods = await _three(upstreams, is_open=False)
    members = [each.member for each in three]
    async with _example("shedding_server", *members) as process, aiohttp.ClientSession() as outside:
        assert process.stdout is not None
        found = _URL.search((await process.stdout.readline()).decode())
        assert found is not None
        batch, healthz = f"{found[0]}/batch?products=60", f"{found[0]}/healthz"
        admitted = asyncio.create_task(outside.get(batch))
        await eventually(
            lambda: sum(each.inside for each in three) == 54, what="the buffer is full beneath the cap"
        )
        async with outside.get(batch) as refused:
            assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        async with outside.get(healthz) as healthy:
            assert healthy.status == 200
        for pod in pods:
            pod.gate.open.set()
        assert await (await admitted).json() == {"products": 60, "served": 60}
        async with outside.get(f"{found[0]}/metrics") as metrics:
            assert "slb_outbound_shed_total 1.0" in await metrics.text()

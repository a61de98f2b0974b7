"""Every example runs as it stands, against real upstreams."""

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from tests.client.conftest import Upstreams
from tests.client.rig import Gate, Upstream
from tests.support.waiting import eventually, within

EXAMPLES = Path(__file__).parents[2] / "examples"
OF_LIBRARY = ("plain", "fan_out_of_50", "shedding_server")
_URL = re.compile(r"http://[0-9.:]+")


class Named:
    """An upstream that answers with its name, once its gate is open."""

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


async def _refused(name: str, *members: str) -> str:
    async with _example(name, *members) as process, within(30):
        _, err = await process.communicate()
        assert process.returncode == 1, err.decode()
        return err.decode()


async def _output(name: str, *members: str) -> str:
    async with _example(name, *members) as process, within(30):
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return out.decode()


@asynccontextmanager
async def _server(*members: str) -> AsyncIterator[str]:
    """The URL of the one that sheds."""
    async with _example("shedding_server", *members) as process:
        assert process.stdout is not None
        found = _URL.search((await process.stdout.readline()).decode())
        assert found is not None
        yield found[0]


def test_every_example_of_the_library_has_a_test() -> None:
    of_library = {each.stem for each in EXAMPLES.glob("*.py") if "slb.client" in each.read_text()}
    assert of_library == set(OF_LIBRARY)


async def test_the_plain_one_prints_which_upstream_answered(upstreams: Upstreams) -> None:
    three, _ = await _three(upstreams)
    output = await _output("plain", *(each.member for each in three))
    assert re.findall(r"^200 product (\d) by [abc]: /products/\1$", output, re.MULTILINE) == list("12345")
    assert "by the ring: {200: 5}" in output


async def test_the_fan_out_asks_for_fifty_products_twice(upstreams: Upstreams) -> None:
    three, _ = await _three(upstreams)
    output = await _output("fan_out_of_50", *(each.member for each in three))
    assert "100 calls, 0 sent again" in output
    assert sum(len(each.seen) for each in three) == 100
    assert sum(each.most for each in three) <= 20 * 3


@pytest.mark.parametrize("name", OF_LIBRARY)
async def test_what_an_example_cannot_use_is_one_line(name: str) -> None:
    assert (await _refused(name)) == f"usage: {name}.py UPSTREAM..., such as 127.0.0.1:9001\n"
    assert re.fullmatch(rf"{name}: upstreams: .*'a:b:c'.*\n", await _refused(name, "a:b:c"))


@pytest.mark.parametrize("name", ["plain", "fan_out_of_50"])
async def test_where_nothing_listens_an_example_prints_that_in_one_line(name: str) -> None:
    assert re.fullmatch(rf"{name}: Cannot connect to host 127.0.0.1:1 .*\n", await _refused(name, "127.0.0.1:1"))


async def _answer(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as outside, outside.get(URL(url, encoded=True)) as answer:
        return answer.status, await answer.text()


async def test_the_server_refuses_a_batch_that_is_no_number_and_counts_what_was_not_served() -> None:
    async with _server("127.0.0.1:1") as url:
        for products in ("abc", "", "-1", "1e3", "501", "9" * 5000, "%D9%A3"):
            refused = await _answer(f"{url}/batch?products={products}")
            assert refused == (400, "products: a whole number, at most 500\n"), products
        assert await _answer(f"{url}/batch?products=3") == (200, '{"products": 3, "served": 0}')


async def test_the_server_ends_quietly_when_it_is_interrupted() -> None:
    async with _example("shedding_server", "127.0.0.1:1") as process, within(30):
        assert process.stdout is not None
        await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
        assert (process.returncode, err) == (0, b"")


async def test_the_server_sheds_at_its_cap_and_serves_again_after(upstreams: Upstreams) -> None:
    three, pods = await _three(upstreams, is_open=False)
    members = [each.member for each in three]
    async with _server(*members) as url, aiohttp.ClientSession() as outside:
        batch, healthz = f"{url}/batch?products=60", f"{url}/healthz"
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
        async with outside.get(f"{url}/metrics") as metrics:
            assert "slb_outbound_shed_total 1.0" in await metrics.text()

"""The samples of docs/gpu-servers.md, run as a reader would, with work that ends when it is told to."""

import asyncio
import textwrap
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientSession, web
from fastapi import FastAPI, Request

import slb.gpu.aiohttp
from slb.gpu import GpuSlots
from slb.gpu.aiohttp import slots_middleware
from slb.gpu.asgi import SlotsMiddleware
from tests.gpu.servers import serve_aiohttp, serve_asgi
from tests.support.documents import samples_of
from tests.support.waiting import eventually

DISPATCHER = {"X-Source": "dispatcher"}


class Gpu:
    """`run` is what the samples call."""

    def __init__(self) -> None:
        self.ends = asyncio.Event()

    async def run(self, payload: Any) -> str:
        await self.ends.wait()
        return f"done: {payload['prompt']}"

    async def post(self, session: ClientSession) -> tuple[int, Any]:
        """A call of the dispatcher."""
        async with session.post("/generate", json={"prompt": "a cat"}, headers=DISPATCHER) as reply:
            return reply.status, await reply.json()


@pytest.fixture
async def gpu() -> Gpu:
    return Gpu()


@pytest.mark.parametrize("wanted", ["fastapi", "web.Application"])
async def test_a_server_takes_what_it_has_slots_for(gpu: Gpu, wanted: str) -> None:
    (sample,) = samples_of("gpu-servers.md", wanted)
    names: dict[str, Any] = {"run_on_gpu": gpu.run}
    exec(sample, names)
    app, slots = names["app"], names["slots"]
    if isinstance(app, web.Application):  # the sample has the middleware alone

        async def generate(request: web.Request) -> web.Response:
            return web.json_response({"status": "success", "result": await gpu.run(await request.json())})

        app.router.add_post("/generate", generate)
    serving = serve_aiohttp(app) if isinstance(app, web.Application) else serve_asgi(app)
    async with serving as url, ClientSession(url) as session:
        both = [asyncio.create_task(gpu.post(session)) for _ in range(2)]
        await eventually(lambda: slots.active_jobs == 2)
        if isinstance(app, FastAPI):
            async with session.get("/health") as reply:
                assert await reply.json() == {
                    "status": "healthy",
                    "active_jobs": 2,
                    "slots": 2,
                    "direct_waiting": 0,
                }
        assert (await gpu.post(session))[0] == 503
        gpu.ends.set()
        assert await asyncio.gather(*both) == [(200, {"status": "success", "result": "done: a cat"})] * 2
        assert slots.active_jobs == 0


@pytest.fixture(params=["asgi", "aiohttp"])
async def keeping(request: pytest.FixtureRequest, gpu: Gpu) -> AsyncIterator[tuple[GpuSlots, str]]:
    """A server of one slot that answers before its work is over, as the sample does it."""
    (sample,) = samples_of("gpu-servers.md", ".keep()")
    slots, payload = GpuSlots(slots=1), {"prompt": "a cat"}
    if request.param == "aiohttp":  # as its comment says
        assert "request[slb.gpu.aiohttp.PLACE].keep()" in sample
        sample = sample.replace('request.scope["slb.gpu"]', "request[slb.gpu.aiohttp.PLACE]")
    names: dict[str, Any] = {"asyncio": asyncio, "slb": slb, "run_on_gpu": gpu.run, "payload": payload}
    exec("def begin(request):\n" + textwrap.indent(sample, "    ") + "    return task\n", names)
    tasks = []
    if request.param == "asgi":
        app = FastAPI()
        app.add_middleware(SlotsMiddleware, slots=slots)

        @app.post("/generate")
        async def generate(request: Request) -> dict[str, str]:
            tasks.append(names["begin"](request))
            return {"status": "processing", "job_id": "1"}

        serving = serve_asgi(app)
    else:
        other = web.Application(middlewares=[slots_middleware(slots)])

        async def answer(request: web.Request) -> web.Response:
            tasks.append(names["begin"](request))
            return web.json_response({"status": "processing", "job_id": "1"})

        other.router.add_post("/generate", answer)
        serving = serve_aiohttp(other)
    async with serving as url:
        yield slots, url


async def test_a_slot_is_kept_until_the_work_is_over(gpu: Gpu, keeping: tuple[GpuSlots, str]) -> None:
    slots, url = keeping
    async with ClientSession(url) as session:
        assert await gpu.post(session) == (200, {"status": "processing", "job_id": "1"})
        assert slots.active_jobs == 1
        assert (await gpu.post(session))[0] == 503
        gpu.ends.set()
        await eventually(lambda: slots.active_jobs == 0)
        assert (await gpu.post(session))[0] == 200

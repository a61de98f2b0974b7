"""GPU servers as people write them, with the slots of `slb.gpu` in front: one on uvicorn, one on aiohttp."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn
from aiohttp import web
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from slb.gpu import GpuSlots, Place
from slb.gpu.aiohttp import PLACE, slots_middleware
from slb.gpu.asgi import SlotsMiddleware
from tests.support.waiting import eventually


class Work:
    """What the handlers do. A call runs until the `end` of the first word of its body. But `fails` breaks,
    and `keeps` is answered at once and holds its slot until that is released, in `kept`."""

    def __init__(self, slots: GpuSlots) -> None:
        self.slots = slots
        self.begun: list[str] = []
        self.bytes: list[int] = []
        self.kept: list[Place] = []
        self._ends: dict[str, asyncio.Event] = {}

    def end(self, name: str) -> None:
        self._ends.setdefault(name, asyncio.Event()).set()

    async def run(self, body: bytes, place: Place) -> str:
        name = body.split(maxsplit=1)[0].decode()
        self.begun.append(name)
        self.bytes.append(len(body))
        if name == "fails":
            raise RuntimeError("out of memory")
        if name == "keeps":
            self.kept.append(place.keep())
        else:
            await self._ends.setdefault(name, asyncio.Event()).wait()
        return name


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """They are the test process's."""
        yield


@asynccontextmanager
async def serve_asgi(app: Any) -> AsyncIterator[str]:
    """Its URL on uvicorn."""
    server = _Server(uvicorn.Config(app, "127.0.0.1", 0, ws="none", log_config=None, timeout_graceful_shutdown=1))
    serving = asyncio.create_task(server.serve())
    await eventually(lambda: server.started or serving.done())
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    await serving


@asynccontextmanager
async def serve_aiohttp(app: web.Application) -> AsyncIterator[str]:
    """Its URL, started as `web.run_app` does."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield "http://{}:{}".format(*runner.addresses[0])
    await runner.cleanup()


@asynccontextmanager
async def on_uvicorn(work: Work) -> AsyncIterator[str]:
    """The URL of a Starlette application."""

    async def generate(request: Request) -> JSONResponse:
        return JSONResponse({"result": await work.run(await request.body(), request.scope["slb.gpu"])})

    async def health(_: Request) -> JSONResponse:
        return JSONResponse(work.slots.health())

    routes = [Route("/generate", generate, methods=["POST"]), Route("/health", health)]
    app = Starlette(routes=routes, middleware=[Middleware(SlotsMiddleware, slots=work.slots)])
    async with serve_asgi(app) as url:
        yield url


@asynccontextmanager
async def on_aiohttp(work: Work) -> AsyncIterator[str]:
    """The URL of an aiohttp application."""

    async def generate(request: web.Request) -> web.Response:
        return web.json_response({"result": await work.run(await request.read(), request[PLACE])})

    async def health(_: web.Request) -> web.Response:
        return web.json_response(work.slots.health())

    app = web.Application(middlewares=[slots_middleware(work.slots)])
    app.router.add_post("/generate", generate)
    app.router.add_get("/health", health)
    async with serve_aiohttp(app) as url:
        yield url

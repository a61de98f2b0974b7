"""An slb's /register, with the answers that a test sets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ssl import SSLContext

from aiohttp import web
from aiohttp.test_utils import TestServer

HANG = 0
Step = int | Callable[[], web.Response]


class FakeSlb:
    """Answers with `steps` in turn, the last one for good: a status, HANG, or what a function returns. A call that
    hangs is carried out, and its answer is lost. `calls` are the requests; `members` what is registered."""

    def __init__(self, *steps: Step) -> None:
        self.calls: list[tuple[str, object, str | None]] = []
        self.members: set[str] = set()
        self.released = asyncio.Event()
        self._steps = list(steps)

    @property
    def methods(self) -> list[str]:
        return [method for method, _, _ in self.calls]

    async def register(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.calls.append((request.method, body, request.headers.get("Authorization")))
        step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        if callable(step):
            return step()
        if step >= 400:
            refusal = {"error": f"reason_{step}", "detail": "so it is", "request_id": str(len(self.calls))}
            return web.json_response(refusal, status=step)
        answer = self._done(request.method, body["path"], body["target"])
        if step == HANG:
            await self.released.wait()
        return answer

    def _done(self, method: str, path: str, target: str) -> web.Response:
        was_there = target in self.members
        (self.members.add if method == "POST" else self.members.discard)(target)
        changed = {"added": not was_there} if method == "POST" else {"removed": was_there}
        return web.json_response({"path": path, "target": target, **changed})


StartSlb = Callable[[FakeSlb], Awaitable[str]]


@asynccontextmanager
async def fake_slbs(ssl: SSLContext | None = None) -> AsyncIterator[StartSlb]:
    """A function that serves one, and returns its URL; all end with the context."""
    started: list[tuple[FakeSlb, TestServer]] = []

    async def start(slb: FakeSlb) -> str:
        app = web.Application()
        app.router.add_route("*", "/register", slb.register)
        server = TestServer(app, scheme="https" if ssl else "http")
        started.append((slb, server))
        await server.start_server(ssl=ssl)
        return f"{server.scheme}://127.0.0.1:{server.port}"

    try:
        yield start
    finally:
        for slb, server in started:
            slb.released.set()
            await server.close()

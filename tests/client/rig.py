"""Real upstreams for the library's tests: each a server on a port of its own."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from aiohttp import web

from slb.balance.upstream import LiveUpstream
from slb.client import Session
from tests.support.waiting import eventually

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


async def answer_ok(request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text=f"{request.method} {request.path_qs}")


def answering(status: int, text: str = "") -> Handler:
    """Every request is answered with this status."""

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=status, text=text)

    return answer


async def hang_up(request: web.BaseRequest) -> web.StreamResponse:
    """The connection is lost before any answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def break_off(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "100"})
    await response.prepare(request)
    assert request.transport is not None
    request.transport.abort()
    return response


class Upstream:
    """`seen` are the targets asked for, in order; `handle` may be replaced at any time."""

    def __init__(self, handle: Handler = answer_ok) -> None:
        self.handle = handle
        self.seen: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.connections = 0
        self.inside = 0
        self.most = 0
        self._runner = web.ServerRunner(web.Server(self._serve), shutdown_timeout=0.1)
        self.member = ""

    @property
    def url(self) -> str:
        """For a fallback."""
        return f"http://{self.member}"

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> "Upstream":
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, backlog=1024).start()
        host, port = self._runner.addresses[0][:2]
        self.member = f"{host}:{port}"
        return self

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self.seen.append(request.path_qs)
        self.headers.append(dict(request.headers))
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            return await self.handle(request)
        finally:
            self.inside -= 1


class Gate:
    """A handler that answers once it is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        await self.open.wait()
        return await answer_ok(request)


def live(session: Session) -> list[LiveUpstream]:
    """Every upstream of every route."""
    return [each for route in session.table.routes.values() for each in route.members]


async def at_rest(session: Session) -> None:
    """Everything held has been given back, and no more than that."""
    await eventually(
        lambda: session.outbound == 0 and all(each.inflight == 0 for each in live(session)), what="at rest"
    )


async def asked(session: Session, paths: list[str], key: str | None = None) -> Counter[int]:
    """Statuses of one call to each path, one after another."""
    statuses: Counter[int] = Counter()
    for path in paths:
        async with session.get(path, key=key) as response:
            await response.read()
            statuses[response.status] += 1
    return statuses

"""No connection that an application serves keeps the event loop from the others, whatever it sends."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpClient

from slb.api.connection import Rules
from slb.api.replies import closing
from slb.api.runner import make_runner
from slb.api.turns import SLICE
from slb.loading import load_settings
from tests.proxy.harness import MakeProxy, Origin, Proxy
from tests.support.tested_api import Client, TestedApi
from tests.support.waiting import soon

CHUNK = b"1\r\nx\r\n"
MANY = 40_000
FLOODS = 20
HEAD = b"POST /%b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
Address = tuple[str, int]


class Application:
    """Behind a listener of its own, and behind the data listener of `proxy`. `bodies` are what /register got."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.bodies: list[bytes] = []
        self.fed = 0

    async def start(self, aiohttp_client: AiohttpClient, middlewares: tuple[Any, ...]) -> None:
        made = web.Application(middlewares=middlewares)
        made.router.add_post("/register", self._take)
        made.router.add_get("/{name}", self._name)
        client: Client = await aiohttp_client(TestedApi(make_runner(made, Rules(load_settings({}, {})), 0.1)))
        self.address: Address = client.host, client.port or 0
        self.proxy.applications = cast("Callable[[], asyncio.Protocol]", client.server.handler)

    async def _take(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.read())
        return web.Response(text="taken")

    async def _name(self, request: web.Request) -> web.Response:
        return web.Response(text=request.match_info["name"])


Make = Callable[..., Awaitable[Application]]


@pytest.fixture
def applications(
    proxies: MakeProxy, origin: Origin, monkeypatch: pytest.MonkeyPatch, aiohttp_client: AiohttpClient
) -> Make:
    """`await applications(middleware, ...)`."""

    async def start(*middlewares: Any) -> Application:
        proxy = await proxies()
        proxy.route("/", origin)
        made = Application(proxy)
        real = web.RequestHandler.data_received

        def counting(protocol: web.RequestHandler, data: bytes) -> None:
            made.fed += len(data)
            real(protocol, data)

        monkeypatch.setattr(web.RequestHandler, "data_received", counting)
        await made.start(aiohttp_client, middlewares)
        return made

    return start


def listener(made: Application, which: str) -> Address:
    return made.proxy.address if which == "data" else made.address


@pytest.mark.parametrize("which", ["data", "own"])
async def test_floods_of_small_chunks_let_others_in_between(applications: Make, which: str) -> None:
    made = await applications()
    address = listener(made, which)
    other = await made.proxy.connect()
    assert (await other.get("/other")).status == 200
    wires = [await asyncio.open_connection(*address) for _ in range(FLOODS)]
    for _, writer in wires:
        writer.write(HEAD % b"register" + CHUNK * MANY)
    assert (await other.get("/other")).status == 200
    assert made.fed < FLOODS * len(CHUNK) * MANY / 2
    for _, writer in wires:
        writer.transport.abort()


@pytest.mark.parametrize("which", ["data", "own"])
async def test_a_body_of_many_small_chunks_comes_whole(applications: Make, which: str) -> None:
    made = await applications()
    reader, writer = await asyncio.open_connection(*listener(made, which))
    writer.write(HEAD % b"register" + CHUNK * MANY + END)
    assert (await reader.readuntil(b"taken")).startswith(b"HTTP/1.1 200 ")
    assert made.bodies == [b"x" * MANY]
    writer.close()


@pytest.mark.parametrize("which", ["data", "own"])
async def test_a_body_comes_whole_though_its_client_ends_behind_it(applications: Make, which: str) -> None:
    made = await applications()
    reader, writer = await asyncio.open_connection(*listener(made, which))
    writer.write(HEAD % b"register" + CHUNK * MANY + END)
    writer.write_eof()
    await soon(reader.read())
    assert made.bodies == [b"x" * MANY]
    writer.close()


async def test_many_requests_at_once_are_answered_in_order(applications: Make) -> None:
    made = await applications()
    reader, writer = await asyncio.open_connection(*made.address)
    names = [b"n%d" % number for number in range(4000)]
    writer.write(b"".join(b"GET /%b HTTP/1.1\r\nHost: h\r\n\r\n" % name for name in names))
    for name in names:
        head = await soon(reader.readuntil(b"\r\n\r\n"))
        assert head.startswith(b"HTTP/1.1 200 ")
        assert await reader.readexactly(len(name)) == name
    writer.close()


async def test_requests_behind_a_body_of_many_chunks_are_answered(applications: Make) -> None:
    made = await applications()
    reader, writer = await asyncio.open_connection(*made.address)
    writer.write(HEAD % b"register" + CHUNK * MANY + END + b"GET /next HTTP/1.1\r\nHost: h\r\n\r\n")
    await reader.readuntil(b"taken")
    assert (await reader.readuntil(b"next")).startswith(b"HTTP/1.1 200 ")
    writer.close()


async def test_what_follows_the_last_answer_of_a_connection_is_not_parsed(applications: Make) -> None:
    @web.middleware
    async def refusing(request: web.Request, handler: Any) -> web.StreamResponse:
        return web.Response(status=401, text="no")

    made = await applications(closing, refusing)
    reader, writer = await asyncio.open_connection(*made.address)
    writer.write(HEAD % b"register")
    await reader.readuntil(b"no")
    before = made.fed
    writer.write(CHUNK * MANY)
    await soon(reader.read())
    assert made.fed - before <= SLICE
    writer.close()

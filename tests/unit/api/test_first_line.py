"""What comes before a request has a first line."""

import asyncio

from aiohttp import web
from pytest_aiohttp import AiohttpClient

from slb.api.connection import Rules
from slb.api.runner import make_runner
from slb.loading import load_settings
from tests.support.tested_api import Client, TestedApi
from tests.support.waiting import eventually


async def test_of_a_flood_of_empty_lines_nothing_is_kept(aiohttp_client: AiohttpClient) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/", answer)
    client: Client = await aiohttp_client(TestedApi(make_runner(app, Rules(load_settings({}, {})))))
    reader, writer = await asyncio.open_connection(client.host, client.port)
    for _ in range(40):
        writer.write(b"\r\n" * 32_768)
        await writer.drain()
    writer.write(b"GET")
    connections = client.server.handler.connections
    await eventually(lambda: [each._line for each in connections] == [b"GET"])  # type: ignore[attr-defined]
    writer.write(b" / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).endswith(b"\r\n\r\nok")
    writer.close()

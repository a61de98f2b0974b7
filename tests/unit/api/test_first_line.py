"""What comes before a request has a first line."""

import asyncio

from aiohttp import web

from slb.api.runner import make_runner
from slb.loading import load_settings
from tests.support.waiting import eventually


async def test_of_a_flood_of_empty_lines_nothing_is_kept() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/", answer)
    runner = make_runner(app, load_settings({}, {}))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        reader, writer = await asyncio.open_connection(*runner.addresses[0][:2])
        for _ in range(40):
            writer.write(b"\r\n" * 32_768)
            await writer.drain()
        writer.write(b"GET")
        server = runner.server
        assert server is not None
        await eventually(lambda: [each._line for each in server.connections] == [b"GET"])  # type: ignore[attr-defined]
        writer.write(b" / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).endswith(b"\r\n\r\nok")
        writer.close()
    finally:
        await runner.cleanup()

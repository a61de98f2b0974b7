"""An upstream whose answers last: a stream that goes on when the test allows it, a WebSocket that echoes."""

import asyncio

from aiohttp import WSMsgType, web


def echo_and_stream() -> web.Application:
    """/p/stream sends `data: 0`, and `data: 1` once /p/go-on was requested; /p/echo is a WebSocket;
    /p/upload answers how much it was sent."""
    go_on = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        await reply.write(b"data: 0\n\n")
        await go_on.wait()
        await reply.write(b"data: 1\n\n")
        await reply.write_eof()
        return reply

    async def let_go_on(_: web.Request) -> web.Response:
        go_on.set()
        return web.Response()

    async def echo(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await socket.send_str(message.data)
        return socket

    async def ok(_: web.Request) -> web.Response:
        return web.Response()

    async def upload(request: web.Request) -> web.Response:
        return web.Response(text=f"{len(await request.read())} bytes")

    app = web.Application()
    app.router.add_get("/p/ok", ok)
    app.router.add_post("/p/upload", upload)
    app.router.add_get("/p/stream", stream)
    app.router.add_get("/p/go-on", let_go_on)
    app.router.add_get("/p/echo", echo)
    return app

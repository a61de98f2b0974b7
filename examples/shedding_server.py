"""A server that unpacks one request into many calls, and refuses new work while its own calls do not get through.

    python examples/shedding_server.py 127.0.0.1:9001 127.0.0.1:9002
    curl -i 'http://127.0.0.1:PORT/batch?products=50'

It says on which port it listens. Under load it answers 503 with Retry-After; /healthz is answered all the same.
"""

import asyncio
import sys
from collections.abc import AsyncIterator

from aiohttp import ClientError, web
from prometheus_client import CollectorRegistry, generate_latest

import slb.client

MOST = 500
LONGEST = len(str(MOST))
"""Products of one request: each is a call."""


def make_app(session: slb.client.Session) -> web.Application:
    """The application; the session is open as long as it runs."""
    registry = CollectorRegistry()
    registry.register(slb.client.OutboundCollector(session.metrics))

    async def batch(request: web.Request) -> web.Response:
        products = range(wanted(request.query.get("products", "50")))
        statuses = await asyncio.gather(*(fetch(session, product) for product in products))
        return web.json_response({"products": len(statuses), "served": statuses.count(200)})

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=generate_latest(registry).decode())

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def with_session(_: web.Application) -> AsyncIterator[None]:
        async with session:
            yield

    shedding = slb.client.shed_when_full(session, exempt={"/healthz", "/metrics"})
    app = web.Application(middlewares=[shedding])
    app.add_routes([web.get("/batch", batch), web.get("/metrics", metrics), web.get("/healthz", healthz)])
    app.cleanup_ctx.append(with_session)
    return app


def wanted(written: str) -> int:
    """How many products one request asks for. Raises HTTPBadRequest."""
    if not (written.isascii() and written.isdigit() and len(written) <= LONGEST and int(written) <= MOST):
        raise web.HTTPBadRequest(text=f"products: a whole number, at most {MOST}\n")
    return int(written)


async def fetch(session: slb.client.Session, product: int) -> int:
    """The status; that of a bad gateway where there was no answer, which the session has logged."""
    try:
        async with session.get(f"/products/{product}", key=str(product)) as response:
            await response.read()
            return response.status
    except ClientError:
        return web.HTTPBadGateway.status_code


async def main(upstreams: list[str]) -> None:
    session = slb.client.Session(
        upstreams=upstreams, settings={"policy": "consistent_hash"}, max_outbound=60, buffer_timeout=30
    )
    runner = web.AppRunner(make_app(session))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"listens on http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit("usage: shedding_server.py UPSTREAM..., such as 127.0.0.1:9001")
    try:
        asyncio.run(main(sys.argv[1:]))
    except slb.client.ConfigError as error:
        sys.exit(f"shedding_server: {error}")
    except KeyboardInterrupt:
        pass  # that is how it is ended

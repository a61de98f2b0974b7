"""The yardstick of the rate: a router that sends one command for each request, `python -m bench.quota.plain
REDIS_URL PORT`. The same decision, the same script, the same Redis; an aiohttp handler and redis-py, as one would
write it at first."""

import asyncio
import sys
from typing import Any
from uuid import uuid4

import orjson
import uvloop
from aiohttp import web
from redis.asyncio import BlockingConnectionPool, Redis

from slb.control.keys import quota_keys
from slb.control.scripts import quota_source
from slb.quota.script import written_rules
from slb.quotas import Rules

JITTER = 500
CONNECTIONS = 64
RULES = written_rules(Rules())


async def serve(url: str, port: int) -> None:
    """`POST /schedule` asks Redis anew for each request; `GET /ready` is answered at once."""
    pool = BlockingConnectionPool.from_url(url, decode_responses=True, max_connections=CONNECTIONS)
    script: Any = Redis(connection_pool=pool).register_script(quota_source())

    async def schedule(request: web.Request) -> web.Response:
        body = orjson.loads(await request.read())
        ask = ["schedule", f"tsk_{uuid4().hex}", body["estimated_tokens"], JITTER, "", False]
        reply = await script(keys=quota_keys(), args=[orjson.dumps({**RULES, "asks": [ask]})])
        kind, first, second = reply[-1][0]
        is_admitted = kind == "admitted"
        answer = {"model_backend_id": first, "task_id": second} if is_admitted else {"wait_for_ms": int(first)}
        return web.json_response(body=orjson.dumps(answer))

    async def ready(request: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.router.add_post("/schedule", schedule)
    app.router.add_get("/ready", ready)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2])))

"""The yardstick of the rate: a router that sends one command for each request, `python -m bench.quota.plain
REDIS_URL PORT`.

The same decision, the same script, the same Redis; an aiohttp handler and redis-py, as one would write it at first.
"""

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


class Plain:
    """Asks Redis anew for each request."""

    def __init__(self, url: str) -> None:
        pool = BlockingConnectionPool.from_url(url, decode_responses=True, max_connections=CONNECTIONS)
        self._script: Any = Redis(connection_pool=pool).register_script(quota_source())

    async def schedule(self, request: web.Request) -> web.Response:
        body = orjson.loads(await request.read())
        ask = ["schedule", f"tsk_{uuid4().hex}", body["estimated_tokens"], JITTER, "", False]
        reply = await self._script(keys=quota_keys(), args=[orjson.dumps({**RULES, "asks": [ask]})])
        kind, first, second = reply[-1][0]
        if kind == "admitted":
            answer: dict[str, Any] = {"model_backend_id": first, "task_id": second}
        else:
            answer = {"wait_for_ms": int(first)}
        return web.json_response(body=orjson.dumps(answer))


async def ready(request: web.Request) -> web.Response:
    return web.Response()


async def serve(url: str, port: int) -> None:
    app = web.Application()
    app.router.add_post("/schedule", Plain(url).schedule)
    app.router.add_get("/ready", ready)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2])))

"""Instances that dispatch jobs, as their callers meet them."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from tests.process.commands import Commands, Serving
from tests.support.gpus import Gpu
from tests.support.redis_nodes import RedisServer
from tests.support.waiting import within

MODEL = "flux"
MakeGpu = Callable[..., Awaitable[Gpu]]

_API = re.compile(r"API (http://[0-9.]+:[0-9]+)")


class Dispatchers:
    """Instances with the role, on one Redis."""

    def __init__(self, slb: Commands, valkey: RedisServer) -> None:
        self.slb = slb
        self._valkey = valkey

    async def serve(self, *flags: str) -> Serving:
        flags = ("--roles", "proxy,jobs", *flags)
        return await self.slb.until_ready(await self.slb.serve(*flags, redis=self._valkey.url))

    async def alone(self, *command: str) -> Serving:
        """One that serves no traffic: `slb jobs`, or another command."""
        flags = ["--api", "127.0.0.1:0", "--redis", self._valkey.url]
        flags += ["--data-dir", str(self.slb.directory / "data")]
        process = await self.slb.start(*(command or ("jobs",)), *flags)
        line = await process.first_line()
        found = _API.search(line)
        assert found is not None, line
        return await self.slb.until_ready(Serving("", found[1], line, process))

    async def ask(self, method: str, url: str, body: Any = None, wanted: int = 200) -> Any:
        data = None if body is None else orjson.dumps(body)
        async with self.slb.session.request(method, url, data=data) as reply:
            text = await reply.read()
            assert reply.status == wanted, text
            return orjson.loads(text)

    async def register(self, at: Serving, gpu: Gpu, **config: Any) -> None:
        """A GPU of one slot, known to the mirror of `at`."""
        if config:
            await self.ask("PUT", f"{at.api}/admin/model-configs/{MODEL}", config)
        body = {"model": MODEL, "endpoint": gpu.endpoint}
        await self.ask("POST", f"{at.api}/admin/register", body)

    async def submit(self, at: Serving, id_: str, **more: Any) -> None:
        body = {"model": MODEL, "payload": id_, "job_id": id_, **more}
        await self.ask("POST", f"{at.api}/queue/submit", body, wanted=202)

    async def job(self, at: Serving, id_: str) -> Any:
        return await self.ask("GET", f"{at.api}/queue/jobs/{id_}?model={MODEL}")

    async def until_ended(self, at: Serving, ids: list[str]) -> list[Any]:
        """All of them, once each has ended."""
        found: list[Any] = []
        async with within(60):
            for id_ in ids:
                while "completed_at" not in (job := await self.job(at, id_)):
                    await asyncio.sleep(0.05)
                found.append(job)
        return found

"""Two real instances on one Redis, upstreams, and traffic to both."""

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import ClientError

from slb.demo.processes import Process
from tests.process.commands import Commands, Serving
from tests.support.gpus import Gpu
from tests.support.valkey import Valkey

ROUTE, MODEL = "/models/flux", "flux"
_SETTINGS = {"policy": "least_inflight", "max_inflight": 1, "when_full": "queue", "queue_timeout": "60s"}
_AT_ONCE = 12
"""More than there are slots, so that some wait."""


class RealFleet:
    """`upstreams`: HOST:PORT of those of ROUTE, each with 4 slots; `request_id`: of the last answer."""

    def __init__(self, slb: Commands, valkey: Valkey) -> None:
        self.slb = slb
        self.valkey = valkey
        self.instances: list[Serving] = []
        self.upstreams: list[str] = []
        self.request_id = ""
        self._token = ""
        self._gpus: list[Gpu] = []
        self._traffic: list[asyncio.Task[None]] = []

    @property
    def api(self) -> str:
        return self.instances[0].api

    async def start(self, upstreams: int = 2, token: str = "", env: Mapping[str, str] | None = None) -> None:
        """Both instances, and upstreams that take a while for a request."""
        self._token = token
        for number in (1, 2):
            names = ("--name", f"edge-{number}", "--roles", "proxy,jobs,quota")
            serving = await self.slb.serve(*names, redis=self.valkey.url, env=env)
            self.instances.append(await self.slb.until_ready(serving))
        for number in range(upstreams):
            _, place = await self.slb.upstream(f"u{number}", "--slots", "4", "--service-time", "300ms")
            await self.ask("POST", "/register", {"path": ROUTE, "target": place, "slots": 4, "zone": "a"})
            self.upstreams.append(place)
        await self.ask("PATCH", f"/routes{ROUTE}", _SETTINGS)

    async def flow(self) -> None:
        """Requests to both instances from now on; the first are answered on return."""
        self._traffic = [
            asyncio.create_task(self._send(self.instances[number % 2].url)) for number in range(_AT_ONCE)
        ]
        while not self.request_id:
            await asyncio.sleep(0.01)

    async def gpu(self, **manner: bool) -> Gpu:
        """A GPU of one slot for jobs of MODEL."""
        gpu = Gpu(**manner)
        await gpu.server.start_server()
        self._gpus.append(gpu)
        await self.ask("POST", "/admin/register", {"model": MODEL, "endpoint": gpu.endpoint})
        return gpu

    async def ask(self, method: str, path: str, body: Any = None, at: int = 0) -> Any:
        """The API of an instance."""
        data = None if body is None else orjson.dumps(body)
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        url = self.instances[at].api + path
        async with self.slb.session.request(method, url, data=data, headers=headers) as reply:
            text = await reply.read()
            assert reply.status < 400, text
            return orjson.loads(text)

    async def explains(self, request_id: str) -> bool:
        """Whether an instance that is busy has answered in time."""
        async with self.slb.session.get(f"{self.api}/explain/{request_id}") as reply:
            return reply.status == 200

    def process(self, number: int) -> Process:
        return self.instances[number].process

    async def close(self) -> None:
        for task in self._traffic:
            task.cancel()
        await asyncio.gather(*self._traffic, return_exceptions=True)
        for gpu in self._gpus:
            gpu.go.set()
            await gpu.server.close()

    async def _send(self, url: str) -> None:
        while True:
            try:
                async with self.slb.session.get(f"{url}{ROUTE}/x") as reply:
                    await reply.read()
                    self.request_id = reply.headers.get("X-Request-Id", "")
            except (ClientError, OSError, TimeoutError):
                await asyncio.sleep(0.1)

"""The API over real sockets, on a real registry, watcher and Valkey."""

import asyncio
import io
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpClient
from yarl import URL

from slb.addresses import AddressRules
from slb.api.application import make_api, make_data_api, make_shortcut
from slb.api.connection import Rules
from slb.api.parts import ApiParts
from slb.api.replies import OnAnswer
from slb.api.runner import make_runner
from slb.config import Settings
from slb.control import keys
from slb.control.connection import Connection
from slb.control.instances import InstanceInfo, Instances
from slb.control.registry import Registry
from slb.control.valkey_process import ValkeyProcess
from slb.control.watcher import Watcher
from slb.observe.metrics import Metrics
from slb.proxy.target import judge_for_api
from slb.routing.mirror import Mirror
from tests.support.tested_api import Client, TestedApi
from tests.support.waiting import soon

OWN_LISTENER = ("127.0.0.9", 8080)
Json = Any

_FOR_GOOD = -1
"""PTTL of a key that does not lapse."""


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes
    json: Json


@dataclass
class Api:
    """One application on a socket, and the parts behind it."""

    parts: ApiParts
    connection: Connection
    client: Client

    @property
    def host(self) -> str:
        return self.client.host

    @property
    def port(self) -> int:
        return self.client.port or 0

    @property
    def redis(self) -> Any:
        return self.connection.client

    @property
    def metrics(self) -> Metrics:
        return self.parts.metrics

    async def call(self, method: str, path: str, body: Json = None, **options: Any) -> Answer:
        """`body` is sent as JSON unless it is bytes or a file."""
        sent = {"data" if isinstance(body, bytes | io.IOBase) else "json": body}
        if body is None:
            sent = {}
        url = f"http://{self.host}:{self.port}{path}"
        async with self.client.session.request(method, URL(url, encoded=True), **sent, **options) as reply:
            content = await reply.read()
            parsed = await reply.json() if reply.content_type == "application/json" and content else None
            return Answer(reply.status, reply.headers, content, parsed)

    async def raw(self, data: bytes) -> bytes:
        """All that is answered to `data`, until the connection is closed."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(data)
            return await soon(reader.read(), 20)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def stored(self) -> dict[str, Any]:
        """Everything in Redis that makes routes: what lapses does not."""
        found: dict[str, Any] = {}
        for key in sorted([key async for key in self.redis.scan_iter()]):
            if await self.redis.pttl(key) != _FOR_GOOD:
                continue
            kind = await self.redis.type(key)
            if kind == "set":
                found[key] = set(await self.redis.smembers(key))
            elif kind == "hash":
                found[key] = await self.redis.hgetall(key)
        return found


ApiMaker = Callable[..., Awaitable[Api]]


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Valkey of these tests' own."""
    directory: Path = tmp_path_factory.mktemp("api") / "valkey"
    directory.mkdir()
    process = ValkeyProcess(directory)
    process.start()
    yield f"unix://{process.socket}"
    process.stop()


@pytest.fixture
async def connection(valkey: str) -> AsyncIterator[Connection]:
    """To an empty Redis whose emptiness is the truth."""
    made = Connection(valkey, Metrics())
    await made.client.flushall()
    await made.client.set(keys.GENERATION, "tests")
    yield made
    await made.aclose()


@pytest.fixture
async def parts(connection: Connection, tmp_path: Path) -> AsyncIterator[ApiParts]:
    settings = Settings(data_dir=tmp_path)
    metrics = Metrics()
    mirror = Mirror(settings.route_settings, random.Random(1))
    watcher = Watcher(connection, mirror, metrics, None)
    following = asyncio.create_task(watcher.run())
    instances = Instances(connection, InstanceInfo("id-1", name="one", address="127.0.0.8:8080", host="here"))
    await instances.beat()
    yield ApiParts(
        settings=settings,
        mirror=mirror,
        registry=Registry(connection, mirror),
        watcher=watcher,
        instances=instances,
        connection=connection,
        metrics=metrics,
        metrics_text=_no_metrics,
        draining=lambda: False,
        started=time.time(),
        address_rules=AddressRules((), lambda: [OWN_LISTENER]),
    )
    while not following.done():  # Python 3.11's wait_for swallows a cancellation now and then
        following.cancel()
        await asyncio.wait([following], timeout=1)


@pytest.fixture
def serve(parts: ApiParts, connection: Connection, aiohttp_client: AiohttpClient) -> ApiMaker:
    """Serves an application; its arguments replace parts, `settings` single settings."""

    async def start(
        make: Callable[[ApiParts], web.Application] = make_api,
        settings: Mapping[str, Any] | None = None,
        on_answer: OnAnswer = lambda _: None,
        **replaced: Any,
    ) -> Api:
        changed = Settings(**{**parts.settings.model_dump(exclude_unset=True), **(settings or {})})
        made = replace(parts, settings=changed, **replaced)
        shortcut = make_shortcut(made, on_answer) if make is make_api else None
        runner = make_runner(make(made), Rules(changed, judge_for_api, on_answer, shortcut))
        client: Client = await aiohttp_client(TestedApi(runner))
        await made.watcher.shown(lambda mirror: mirror.ready, 10)
        return Api(made, connection, client)

    return start


@pytest.fixture
async def api(serve: ApiMaker) -> Api:
    """All of the API."""
    return await serve()


@pytest.fixture
async def data_api(serve: ApiMaker) -> Api:
    """The data listener's part of it."""
    return await serve(make_data_api)


async def _no_metrics(open_metrics: bool) -> bytes:
    return b"slb_redis_up 1.0\n"

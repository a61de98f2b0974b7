"""One of two instances loses the network to the upstreams, without a word: slots that it holds there are the
other's within seconds, and both say what has happened."""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import orjson
import pytest
from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web
from aiohttp.test_utils import TestServer

from tests.process.commands import Commands
from tests.support.hosts import Host, can_be_had
from tests.support.valkey import Valkey
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(not can_be_had(), reason="network namespaces need root, and `ip` of iproute2")
PODS, TAKES, CLIENTS = 4, 0.1, 8
CUT_SEEN = 5.0
"""Seconds after which kernels that confirm nothing tell that the network is cut (docs/health.md)."""
LONG = 5.0
"""Seconds for which answers are counted."""


@pytest.fixture
def host() -> Iterator[Host]:
    with Host() as host:
        yield host


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


class Callers:
    """Of both instances, all the time; `answers`: statuses, by instance."""

    def __init__(self) -> None:
        self.answers: dict[str, Counter[int]] = {"one": Counter(), "other": Counter()}

    async def ask(self, name: str, session: ClientSession, url: str) -> None:
        while True:
            try:
                async with session.get(f"{url}/p") as reply:
                    await reply.read()
                    self.answers[name][reply.status] += 1
            except (ClientError, OSError):
                self.answers[name][0] += 1

    async def served(self, name: str, seconds: float) -> float:
        """Answers a second that callers of this instance get in that time."""
        before, began = self.answers[name][200], time.monotonic()
        await asyncio.sleep(seconds)
        return (self.answers[name][200] - before) / (time.monotonic() - began)


async def pods(host: Host, stack: AsyncExitStack) -> list[str]:
    """Each serves one after another; the host that is cut off sees them as it does this one."""

    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(TAKES)
        return web.Response()

    members = []
    for _ in range(PODS):
        app = web.Application()
        app.router.add_get("/p", answer)
        server = TestServer(app, host=host.here)
        await server.start_server(shutdown_timeout=0.1)
        stack.push_async_callback(server.close)
        members.append(f"{host.here}:{server.port}")
    return members


async def served_there(host: Host, slb: Commands, valkey: Valkey, stack: AsyncExitStack) -> tuple[str, str]:
    """The URLs, on that host, of an instance that runs there. Redis is reached over a file."""
    flags = ("--listen", "127.0.0.1:0", "--api", "127.0.0.1:0", "--redis", valkey.url, "--name", "one")
    with (slb.directory / "one.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *("ip", "netns", "exec", host.name, sys.executable, "-m", "slb", "serve", *flags),
            *("--data-dir", str(slb.directory / "one")),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )

    async def end() -> None:
        process.kill()
        await process.wait()

    stack.push_async_callback(end)
    assert process.stdout is not None
    data, api = (each.rstrip(",") for each in _urls(orjson.loads(await process.stdout.readline())["message"]))
    return data, api


def _urls(message: str) -> list[str]:
    return [word for word in message.split() if word.startswith("http://")][:2]


async def test_the_other_goes_on_at_its_rate_and_both_say_it(
    slb: Commands, valkey: Valkey, host: Host, stack: AsyncExitStack
) -> None:
    valkey.admin.sadd("slb_p", *await pods(host, stack))
    settings = ("max_inflight", "1", "when_full", "queue", "queue_timeout", "60s", "policy", "round_robin")
    valkey.admin.hset("slb:route:/p", items=list(settings))
    one_url, one_api = await served_there(host, slb, valkey, stack)
    other = await slb.until_ready(await slb.serve("--name", "other", redis=valkey.url))
    connector = TCPConnector(socket_factory=lambda _: host.connecting(), limit=0)
    there = await stack.enter_async_context(ClientSession(connector=connector, timeout=ClientTimeout()))
    callers = Callers()
    for name, session, url in (("one", there, one_url), ("other", slb.session, other.url)):
        for _ in range(CLIENTS):
            task = asyncio.create_task(callers.ask(name, session, url))
            stack.callback(task.cancel)
    await until(lambda: callers.served("one", 0.5), bool, what="the one that is to be cut off serves")
    before = await callers.served("other", LONG)
    host.isolate()
    await asyncio.sleep(CUT_SEEN)
    assert await callers.served("other", LONG) > 0.8 * before
    assert callers.answers["other"].keys() == {200}

    async def said(session: ClientSession, api: str, path: str) -> Any:
        async with session.get(f"{api}{path}") as reply:
            return await reply.json()

    for session, api in ((there, one_api), (slb.session, other.api)):
        events = await until(
            lambda session=session, api=api: said(session, api, "/fleet/changes"),  # type: ignore[misc]
            lambda found: any(each["what"] == "isolated" for each in found["changes"]),
            what="the log of changes says it",
        )
        assert {(each["name"], each["subject"]) for each in events["changes"] if each["what"] == "isolated"} == {
            ("one", "/p")
        }

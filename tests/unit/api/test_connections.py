"""Connections to the API listener: how many there may be, and what ends them."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpClient
from structlog.testing import capture_logs

from slb.api.connection import Rules
from slb.api.replies import Answered
from slb.api.runner import make_runner
from slb.loading import load_settings
from slb.places import Places
from tests.support.tested_api import Client, TestedApi
from tests.support.waiting import eventually

GET = b"GET /%b HTTP/1.1\r\nHost: h\r\n\r\n"
Address = tuple[str, int]
Serve = Callable[..., Awaitable[Address]]


async def answer(request: web.Request) -> web.Response:
    return web.Response(body=b"x" * (20_000_000 if request.path == "/large" else 2))


@pytest.fixture
def serve(aiohttp_client: AiohttpClient) -> Serve:
    """An application with these places: `await serve(places, answered.append, head_timeout="1s")`."""

    async def make(
        places: Places[Any], on_answer: Callable[[Answered], None] = lambda _: None, **settings: str
    ) -> Address:
        application = web.Application()
        application.router.add_get("/{any}", answer)
        runner = make_runner(
            application, Rules(load_settings(settings, {}), on_answer=on_answer, places=places), 0.1
        )
        client: Client = await aiohttp_client(TestedApi(runner))
        return client.host, client.port or 0

    return make


async def test_one_too_many_is_refused_by_name_counted_and_logged(serve: Serve) -> None:
    places: Places[Any] = Places(2, 0, 2)
    answered: list[Answered] = []
    address = await serve(places, answered.append)
    with capture_logs() as lines:
        first, second, *more = [await asyncio.open_connection(*address) for _ in range(5)]
        for reader, _ in more[:2]:
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
            assert b"\r\nRetry-After: 1\r\n" in head
            assert head.endswith(b"\r\nConnection: close")
            assert orjson.loads(body)["error"] == "overloaded"
    logged = [(line["event"], line["count"], line["peer"]) for line in lines]
    assert logged == [("api_connections_refused", 1, "127.0.0.1")], "once, however many they are"
    assert [(each.status, each.reason) for each in answered] == [(503, "overloaded")] * 3
    assert (len(places.taken), len(places.rejected)) == (2, 2)
    second[1].write(GET % b"small")
    assert (await second[0].readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
    for _, writer in (first, second, *more):
        writer.close()
    await eventually(lambda: not places.taken and not places.rejected)


async def test_a_refused_client_that_stays_is_cut_off(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slb.api.runner.LINGER", 0.05)
    places: Places[Any] = Places(1, 0, 0)
    address = await serve(places)
    served, refused = [await asyncio.open_connection(*address) for _ in range(2)]
    await refused[0].read()
    await eventually(lambda: not places.rejected)
    assert len(places.taken) == 1
    for _, writer in (served, refused):
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"GET /small HT"], ids=["nothing", "half a head"])
async def test_a_client_that_sends_nothing_gives_its_place_back_in_time(serve: Serve, sent: bytes) -> None:
    places: Places[Any] = Places(1, 1, 1)
    address = await serve(places, head_timeout="50ms")
    reader, writer = await asyncio.open_connection(*address)
    writer.write(sent)
    assert b" 408 " in await reader.readuntil(b"\r\n")
    await reader.read()
    writer.close()
    await eventually(lambda: not places.taken)


async def test_a_client_that_does_not_read_its_answer_gives_its_place_back_in_time(serve: Serve) -> None:
    places: Places[Any] = Places(1, 1, 1)
    address = await serve(places, keepalive_timeout="100ms")
    client = socket.create_connection(address)
    client.sendall(GET % b"large")
    await eventually(lambda: len(places.taken) == 1)
    await eventually(lambda: not places.taken)
    client.close()

"""The stand-in upstream: its line of requests, and how it joins and leaves an slb."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import ClientSession, ClientTimeout, web
from aiohttp.test_utils import TestClient, TestServer

from slb import registration
from slb.lifecycle import Stopping
from slb.listening import listening_socket, shown_address
from slb.registration import Registration, RegistrationRefused
from slb.standin import Manner, StandIn, serve_stand_in
from tests.support.certificates import Authority
from tests.support.waiting import eventually

Client = TestClient[web.Request, web.Application]
MakeClient = Callable[[Manner], Awaitable[Client]]


@pytest.fixture
async def client_of() -> AsyncIterator[MakeClient]:
    made: list[Client] = []

    async def make(manner: Manner) -> Client:
        app = StandIn(manner, asyncio.get_running_loop().time).make_app()
        made.append(TestClient(TestServer(app, handler_cancellation=True)))
        await made[-1].start_server()
        return made[-1]

    yield make
    for each in made:
        await each.close()


async def test_it_says_who_it_is_and_what_it_was_asked(client_of: MakeClient) -> None:
    client = await client_of(Manner("a"))
    reply = await client.post("/p1/x?y=%20", data=b"12345")
    assert reply.headers["X-Upstream"] == "a"
    assert (await reply.text()).endswith("}\n")
    answer = await reply.json()
    assert answer.pop("waited_seconds") < 1
    assert answer == {"upstream": "a", "method": "POST", "path": "/p1/x?y=%20", "body_bytes": 5}


async def test_requests_beyond_its_slots_wait_in_the_order_they_came(client_of: MakeClient) -> None:
    client = await client_of(Manner("a", slots=1))
    finished: list[str] = []

    async def ask(path: str, service_time: str) -> None:
        await client.get(path, headers={"X-Service-Time": service_time})
        finished.append(path)

    tasks = []
    for path, service_time in (("/1", "60ms"), ("/2", "30ms"), ("/3", "0")):
        tasks.append(asyncio.create_task(ask(path, service_time)))
        await asyncio.sleep(0.01)
    await asyncio.gather(*tasks)
    assert finished == ["/1", "/2", "/3"]


async def test_two_slots_serve_two_at_a_time(client_of: MakeClient) -> None:
    client = await client_of(Manner("a", service_time=30.0, slots=2))
    slow = asyncio.create_task(client.get("/slow"))
    reply = await client.get("/quick", headers={"X-Service-Time": "0"})
    assert reply.status == 200
    assert not slow.done()
    slow.cancel()


async def test_a_client_that_gives_up_frees_its_slot(client_of: MakeClient) -> None:
    client = await client_of(Manner("a", service_time=30.0, slots=1))
    with pytest.raises(TimeoutError):
        await client.get("/", timeout=ClientTimeout(total=0.05))
    reply = await client.get("/", headers={"X-Service-Time": "0"})
    assert reply.status == 200


async def test_how_it_is_it_says_at_once_also_where_all_its_slots_are_taken(client_of: MakeClient) -> None:
    client = await client_of(Manner("a", service_time=30.0, slots=1))
    slow = [asyncio.create_task(client.get("/slow")) for _ in range(2)]
    async with asyncio.timeout(10):
        while (await (await client.get("/healthz")).json()) != {"upstream": "a", "waiting_or_served": 2}:
            await asyncio.sleep(0)
    for task in slow:
        task.cancel()


async def test_a_service_time_it_cannot_read_is_refused(client_of: MakeClient) -> None:
    client = await client_of(Manner("a"))
    reply = await client.get("/", headers={"X-Service-Time": "soon"})
    assert reply.status == 400
    assert "X-Service-Time" in await reply.text()


class FakeSlb:
    """Answers /register with `statuses` in turn, the last one for good; `calls` are what it was told."""

    def __init__(self, *statuses: int) -> None:
        self.calls: list[tuple[str, object, str | None]] = []
        self._statuses = list(statuses)

    async def register(self, request: web.Request) -> web.Response:
        self.calls.append((request.method, await request.json(), request.headers.get("Authorization")))
        status = self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]
        if status < 400:
            return web.json_response({})
        said = {"error": f"reason_{status}", "detail": "so it is", "request_id": str(len(self.calls))}
        return web.json_response(said, status=status)


@pytest.fixture
async def slb_at() -> AsyncIterator[Callable[[FakeSlb], Awaitable[str]]]:
    servers: list[TestServer] = []

    async def start(slb: FakeSlb) -> str:
        app = web.Application()
        app.router.add_route("*", "/register", slb.register)
        servers.append(TestServer(app))
        await servers[-1].start_server()
        return str(servers[-1].make_url("/"))

    yield start
    for server in servers:
        await server.close()


BODY = {"path": "/p", "target": "127.0.0.1:9"}


async def test_it_asks_again_until_slb_takes_the_registration(slb_at: Callable[[FakeSlb], Awaitable[str]]) -> None:
    slb = FakeSlb(503, 503, 200)
    await Registration(await slb_at(slb), "/p", "127.0.0.1:9", ttl=None, token="secret").register()
    assert slb.calls == [("POST", BODY, "Bearer secret")] * 3


async def test_why_it_is_not_registered_it_says_once_and_again_where_the_reason_is_another(
    slb_at: Callable[[FakeSlb], Awaitable[str]], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "_FIRST_RETRY", 0.001)
    monkeypatch.setattr(registration, "_LAST_RETRY", 0.001)
    slb = FakeSlb(503, 503, 503, 500, 500, 200)
    url = await slb_at(slb)
    with caplog.at_level("INFO", "slb.registration"):
        await Registration(url, "/p", "127.0.0.1:9").register()
    assert len(slb.calls) == 6
    trying = f"not registered yet, trying again until it is: {url}register answered"
    assert [record.getMessage() for record in caplog.records] == [
        f"{trying} 503 reason_503: so it is",
        f"{trying} 500 reason_500: so it is",
        "registered 127.0.0.1:9 for /p",
    ]


async def test_where_nobody_listens_it_says_so_in_the_systems_words_and_only_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = "http://{}:{}".format(*closed.getsockname())
    made = Registration(url, "/p", "127.0.0.1:9")
    with caplog.at_level("INFO", "slb.registration"):
        trying = asyncio.create_task(made.register())
        await eventually(lambda: bool(caplog.records))
        trying.cancel()
        await asyncio.wait([trying])
        await made.deregister()
    told = [record.getMessage() for record in caplog.records]
    assert told == [f"not registered yet, trying again until it is: {url}/register: Connection refused"]


@pytest.mark.parametrize(
    ("encrypted", "why"),
    [
        (True, "certificate verify failed: unable to get local issuer certificate"),
        (False, "the API there speaks no TLS"),
    ],
)
async def test_what_of_tls_failed_it_says_in_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, encrypted: bool, why: str
) -> None:
    app = web.Application()
    app.router.add_route("*", "/register", FakeSlb(200).register)
    server = TestServer(app)
    await server.start_server(ssl=Authority(tmp_path).server("127.0.0.1") if encrypted else None)
    url = f"https://127.0.0.1:{server.port}"
    with caplog.at_level("INFO", "slb.registration"):
        trying = asyncio.create_task(Registration(url, "/p", "127.0.0.1:9").register())
        await eventually(lambda: bool(caplog.records))
        trying.cancel()
        await asyncio.wait([trying])
    await server.close()
    assert caplog.messages == [f"not registered yet, trying again until it is: {url}/register: {why}"]


async def test_a_refused_registration_is_not_tried_again(slb_at: Callable[[FakeSlb], Awaitable[str]]) -> None:
    slb = FakeSlb(403)
    with pytest.raises(RegistrationRefused, match="403"):
        await Registration(await slb_at(slb), "/p", "127.0.0.1:9").register()
    assert len(slb.calls) == 1


async def test_a_registration_is_renewed_until_it_is_left_whatever_is_answered_meanwhile(
    slb_at: Callable[[FakeSlb], Awaitable[str]], caplog: pytest.LogCaptureFixture
) -> None:
    slb = FakeSlb(200, 200, 503, 403, 403, 200)
    with caplog.at_level("INFO", "slb.registration"):
        async with Registration(await slb_at(slb), "/p", "127.0.0.1:9", ttl=0.003, attributes={"weight": 2}):
            await eventually(lambda: len(slb.calls) >= 8, what="renewals")
    *renewals, last = slb.calls
    assert all(each == ("POST", {**BODY, "weight": 2, "ttl": 0.003}, None) for each in renewals)
    assert last == ("DELETE", BODY, None)
    words = [message.partition(": ")[0] for message in caplog.messages]
    assert words == [
        "registered 127.0.0.1:9 for /p",
        *("not renewed, trying again", "not renewed, trying again", "renewed again"),
        "deregistered 127.0.0.1:9 from /p",
    ]


async def test_of_several_slbs_any_will_do(slb_at: Callable[[FakeSlb], Awaitable[str]]) -> None:
    away, there = FakeSlb(503), FakeSlb(200)
    made = Registration([await slb_at(away), await slb_at(there)], "/p", "127.0.0.1:9", ttl=None)
    await made.register()
    await made.deregister()
    assert [method for method, _, _ in away.calls] == ["POST"]
    assert [method for method, _, _ in there.calls] == ["POST", "DELETE"]


async def test_leaving_it_deregisters_first_and_serves_until_nobody_comes(
    slb_at: Callable[[FakeSlb], Awaitable[str]],
) -> None:
    slb, stopping = FakeSlb(200), Stopping()
    bound = listening_socket("127.0.0.1:0", "listen")
    address = shown_address(bound)
    made = Registration(await slb_at(slb), "/p", "127.0.0.1:9")
    stand_in = StandIn(Manner("a", grace=0.2), asyncio.get_running_loop().time)
    serving = asyncio.create_task(serve_stand_in(stand_in, bound, made, stopping))
    await eventually(lambda: len(slb.calls) == 1, what="registered")
    stopping.request()
    await eventually(lambda: len(slb.calls) == 2, what="deregistered")
    async with ClientSession() as session, session.get(f"http://{address}/late") as reply:
        assert reply.status == 200
    await serving
    assert [method for method, _, _ in slb.calls] == ["POST", "DELETE"]


async def test_told_twice_to_stop_it_leaves_its_requests() -> None:
    stopping = Stopping()
    bound = listening_socket("127.0.0.1:0", "listen")
    address = shown_address(bound)
    stand_in = StandIn(Manner("a", service_time=60.0), asyncio.get_running_loop().time)
    serving = asyncio.create_task(serve_stand_in(stand_in, bound, None, stopping))
    reader, writer = await asyncio.open_connection(*address.split(":"))
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    await writer.drain()
    stopping.request()
    stopping.request()
    await serving
    writer.close()
    del reader

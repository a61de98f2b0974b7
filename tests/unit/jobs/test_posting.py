"""One delivery on real sockets: what is sent, how it went, and where it never goes."""

import asyncio
import io
import ipaddress
import socket
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from slb.addresses import AddressRules, CallbackRules, Network
from slb.jobs.posting import MOST_AT_ONCE, Posting
from slb.jobs.webhook import Reply
from tests.support.receiver import Receiver
from tests.support.waiting import eventually, soon

LOOPBACK = ipaddress.ip_network("127.0.0.0/8")
REFUSED = "is not public, and in none of jobs_callback_networks"

Make = Callable[..., Posting]


@pytest_asyncio.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = await Receiver().start()
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def make() -> AsyncIterator[Make]:
    """Makes one that may send to 127.0.0.0/8, unless `networks` says otherwise."""
    every: list[Posting] = []

    def made(*, networks: tuple[Network, ...] = (LOOPBACK,), own: int = 0, within: float = 30.0) -> Posting:
        upstreams = AddressRules((), lambda: [("127.0.0.1", own)])
        every.append(Posting(CallbackRules(networks, upstreams), within))
        return every[-1]

    yield made
    for each in every:
        await each.aclose()


async def test_a_delivery_is_a_post_with_its_headers(make: Make, receiver: Receiver) -> None:
    assert await make()(receiver.url, {"webhook-id": "one"}, b'{"job_id":"one"}') == Reply(200)
    ((headers, body),) = receiver.received
    assert body == b'{"job_id":"one"}'
    assert headers["webhook-id"] == "one"
    assert headers["Content-Type"] == "application/json"
    assert headers["Content-Length"] == "16"


async def test_a_body_of_more_than_a_mebibyte_is_sent(make: Make, receiver: Receiver) -> None:
    receiver.answers = [lambda: web.Response(status=200)]
    body = b'{"result":"' + b"x" * (1 << 19) + b'"}'
    assert await make()(receiver.url, {}, body) == Reply(200)
    assert receiver.received[0].body == body


async def test_what_the_receiver_asks_for_is_passed_on(make: Make, receiver: Receiver) -> None:
    receiver.answers = [lambda: web.Response(status=503, headers={"Retry-After": " 7 "})]
    assert await make()(receiver.url, {}, b"{}") == Reply(503, retry_after="7")


async def test_a_redirect_is_not_followed(make: Make, receiver: Receiver) -> None:
    receiver.answers = [lambda: web.Response(status=307, headers={"Location": receiver.url})]
    assert await make()(receiver.url, {}, b"{}") == Reply(307)
    assert len(receiver.received) == 1


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "2130706433", "127.1", "0x7f.1", "0177.0.0.1", "[::ffff:127.0.0.1]", "127.0.0.1."],
)
async def test_this_machine_is_refused_however_it_is_written(make: Make, receiver: Receiver, host: str) -> None:
    post = make(networks=())
    reply = await post(receiver.url.replace("127.0.0.1", host), {}, b"{}")
    assert reply.status == 0
    assert reply.error
    assert receiver.received == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_why_it_is_refused_is_said(make: Make, receiver: Receiver, host: str) -> None:
    reply = await make(networks=())(receiver.url.replace("127.0.0.1", host), {}, b"{}")
    assert reply.error == f"{host} {REFUSED}"
    assert not reply.is_hopeless


async def test_a_name_is_sent_to_where_its_network_is_listed(make: Make, receiver: Receiver) -> None:
    assert await make()(receiver.url.replace("127.0.0.1", "localhost"), {}, b"{}") == Reply(200)


async def test_names_that_nobody_answers_for_leave_threads_for_all_else(
    make: Make, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve, asked, answered = socket.getaddrinfo, set[str](), threading.Event()

    def held(host: str, *given: Any, **more: Any) -> Any:
        if host.endswith(".example"):
            asked.add(host)
            answered.wait()
            raise socket.gaierror(socket.EAI_AGAIN, "nobody answers")
        return resolve(host, *given, **more)

    monkeypatch.setattr(socket, "getaddrinfo", held)
    post, count = make(), MOST_AT_ONCE - 1
    slow = [asyncio.create_task(post(f"http://{number}.example/", {}, b"{}")) for number in range(count)]
    try:
        await eventually(lambda: len(asked) == count)  # each has a thread
        assert await soon(asyncio.to_thread(str)) == ""
        assert await soon(post(receiver.url.replace("127.0.0.1", "localhost"), {}, b"{}")) == Reply(200)
    finally:
        answered.set()
    assert {reply.status for reply in await asyncio.gather(*slow)} == {0}


async def test_slbs_own_listener_is_refused_in_a_listed_network_too(make: Make, receiver: Receiver) -> None:
    reply = await make(own=receiver.port)(receiver.url, {}, b"{}")
    assert "slb's own listener" in reply.error
    assert receiver.received == []


@pytest.mark.parametrize(
    "url", ["http://", "http:///path", "http://[::1", "http://host:99999/", "http://host:port/", "ftp://host/"]
)
async def test_a_url_that_cannot_be_used_is_hopeless_and_not_repeated(make: Make, url: str) -> None:
    assert await make()(url, {}, b"{}") == Reply(0, "callback_url cannot be used", is_hopeless=True)


async def test_a_port_where_nobody_listens_is_a_failure(make: Make) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        port = unheard.getsockname()[1]
        reply = await make()(f"http://127.0.0.1:{port}/?token=hidden", {}, b"{}")
    assert reply.status == 0
    assert f"127.0.0.1:{port}" in reply.error
    assert "hidden" not in reply.error
    named = await make()(f"http://localhost:{port}/", {}, b"{}")
    assert f"localhost:{port}" in named.error
    assert "127.0.0.1" not in named.error  # where a name leads is not its caller's to know


async def test_an_answer_that_does_not_come_in_time_is_a_failure(make: Make, receiver: Receiver) -> None:
    receiver.answers = [None]
    assert await make(within=0.2)(receiver.url, {}, b"{}") == Reply(0, "no answer within 0.2 s")


async def _say(answer: bytes, post: Posting) -> Reply:
    """What one says of a receiver that answers so, and then keeps the connection open."""
    open_connections: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_connections.append(writer)
        await reader.readuntil(b"\r\n\r\n{}")
        writer.write(answer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        return await post(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/?token=hidden", {}, b"{}")
    finally:
        for each in open_connections:
            each.close()
        server.close()


async def test_what_is_not_http_is_named_and_not_repeated(make: Make) -> None:
    assert await _say(b"SSH-2.0-secret\r\n\r\n", make()) == Reply(0, "its answer is not HTTP")


async def test_the_status_counts_whatever_becomes_of_the_body(make: Make) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
    assert await _say(head + b"x", make(within=0.5)) == Reply(200)


async def test_no_more_of_a_body_is_read_than_a_little(make: Make) -> None:
    """It ends long before the time is over: the receiver sends no more, and leaves the connection open."""
    sent = io.BytesIO(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n" + bytes(256 * 1024)).getvalue()
    async with asyncio.timeout(25):
        assert await _say(sent, make()) == Reply(200)

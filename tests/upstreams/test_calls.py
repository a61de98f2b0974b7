"""Calls of slb's own: what is sent, what comes back, and over which connection."""

import asyncio

import pytest

from slb.errors import OVERLOADED, UPSTREAM_CONNECT, UPSTREAM_RESET
from slb.upstreams.call import CallFailed
from tests.proxy.harness import OK, MakeOrigin, Origin, Request, sends, wait_for_end
from tests.proxy.refuser import MakeRefuser
from tests.support.certificates import Authority
from tests.support.waiting import eventually, soon
from tests.upstreams.rig import Caller, MakeCaller

LONG_BODY = b"x" * (8 << 20)
"""More than the kernel takes while it is not read."""


async def test_the_upstream_gets_the_whole_request_and_the_caller_the_whole_reply(
    caller: Caller, origins: MakeOrigin
) -> None:
    reply = b"HTTP/1.1 201 Created\r\nX-A: 1\r\nx-b:  two \r\nKeep-Alive: 9\r\nContent-Length: 4\r\n\r\ndone"
    origin = await origins(sends(reply))
    pool = caller.pool(origin.member)
    lines = [b"Content-Type: application/json", b"Authorization: Bearer 1"]
    answer = await caller.call(pool, b"POST", b"/v1/x?y=%20", lines=lines, body=b"{}")
    (request,) = origin.requests
    assert request.line == "POST /v1/x?y=%20 HTTP/1.1"
    assert request.headers == [
        ("Host", origin.member),
        ("Content-Type", "application/json"),
        ("Authorization", "Bearer 1"),
        ("Content-Length", "2"),
    ]
    assert (answer.status, answer.body) == (201, b"done")
    assert answer.headers == [("X-A", "1"), ("x-b", "two"), ("Content-Length", "4")]
    assert (answer.header("X-B"), answer.header("X-C")) == ("two", "")


@pytest.mark.parametrize(("method", "length"), [(b"GET", None), (b"HEAD", None), (b"POST", "0"), (b"PUT", "0")])
async def test_without_a_body_a_length_is_sent_where_one_is_expected(
    caller: Caller, origin: Origin, method: bytes, length: str | None
) -> None:
    async def answer(request: Request) -> None:
        await request.wire.send(OK[:-2] if request.method == "HEAD" else OK)

    origin.handle = answer
    body = b"" if method == b"HEAD" else b"ok"
    reply = await caller.call(caller.pool(origin.member), method, most_bytes=len(body))
    assert reply.body == body
    assert origin.requests[0].one("Content-Length") == length


async def test_one_call_after_another_goes_over_one_connection(caller: Caller, origin: Origin) -> None:
    pool = caller.pool(origin.member)
    for number in range(3):
        assert (await caller.call(pool, b"POST", b"/%d" % number, body=b"x" * number)).body == b"ok"
    assert [request.whole for request in origin.requests] == [b"", b"x", b"xx"]
    assert (origin.connections, pool.open, len(pool.idle)) == (1, 1, 1)


async def test_a_connection_that_the_upstream_is_to_close_is_not_kept(caller: Caller, origins: MakeOrigin) -> None:
    origin = await origins(sends(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")))
    pool = caller.pool(origin.member)
    await caller.call(pool)
    assert pool.idle == []
    await eventually(lambda: pool.open == origin.open == 0)


PIECES = [
    pytest.param([b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc", b"def"], id="counted"),
    pytest.param([b"HTTP/1.1 200 ", b"OK\r\nContent-Length: 6\r\n\r", b"\nabcdef"], id="head-in-pieces"),
    pytest.param(
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\nd", b"ef\r\n0\r\nX: y\r\n\r\n"],
        id="chunked",
    ),
    pytest.param([b"HTTP/1.1 200 OK\r\n\r\nabc", b"def"], id="until-close"),
    pytest.param([b"HTTP/1.1 103 Early Hints\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\nabcdef"], id="interim"),
]


@pytest.mark.parametrize("pieces", PIECES)
async def test_the_reply_is_collected_however_it_is_framed_and_cut(
    caller: Caller, origins: MakeOrigin, pieces: list[bytes]
) -> None:
    async def answer(request: Request) -> None:
        for piece in pieces:
            await request.wire.send(piece)
            await asyncio.sleep(0.01)  # else both may be read as one
        if b"\r\nTransfer" not in pieces[0] and b"\r\nContent" not in b"".join(pieces):
            request.wire.close()

    origin = await origins(answer)
    pool = caller.pool(origin.member)
    reply = await soon(caller.call(pool, most_bytes=6))
    assert (reply.status, reply.body) == (200, b"abcdef")


async def test_an_upstream_of_https_is_called_over_one_connection(
    callers: MakeCaller, origins: MakeOrigin, authority: Authority
) -> None:
    caller = await callers(upstream_ca=authority.file)
    origin = await origins(tls=authority.server("127.0.0.1"))
    pool = caller.pool(origin.member)
    for _ in range(2):
        assert (await caller.call(pool, b"POST", body=b"x")).body == b"ok"
    assert origin.connections == 1


async def test_a_call_for_which_no_connection_may_be_made_is_refused(
    callers: MakeCaller, origins: MakeOrigin
) -> None:
    caller = await callers(max_upstream_connections=1)
    origin = await origins(wait_for_end)
    pool = caller.pool(origin.member)
    first = asyncio.create_task(caller.call(pool))
    await eventually(lambda: bool(origin.requests))
    with pytest.raises(CallFailed) as caught:
        await caller.call(pool)
    assert (caught.value.reason, caught.value.sent) == (OVERLOADED, False)
    first.cancel()
    await asyncio.wait([first])
    await eventually(lambda: not pool.is_full)
    origin.handle = sends(OK)
    assert (await caller.call(pool)).status == 200


# -- connections that the upstream has given up


class Forgetful:
    """An upstream that answers the first request on each connection, and closes at the second without a word; from
    the `silent`th connection on at the first."""

    def __init__(self, silent: int = 100) -> None:
        self._silent = silent
        self._known: list[object] = []

    async def answer(self, request: Request) -> None:
        await request.body()
        if request.wire in self._known or len(self._known) >= self._silent:
            raise ConnectionResetError
        self._known.append(request.wire)
        await request.wire.send(OK)


async def test_an_idempotent_request_goes_on_a_new_connection_where_a_kept_one_is_closed_without_a_word(
    caller: Caller, origins: MakeOrigin
) -> None:
    origin = await origins(Forgetful().answer)
    pool = caller.pool(origin.member)
    await caller.call(pool)
    assert (await caller.call(pool, idempotent=True)).body == b"ok"
    assert (len(origin.requests), origin.connections) == (3, 2)


async def test_any_other_request_is_not_sent_again(caller: Caller, origins: MakeOrigin) -> None:
    origin = await origins(Forgetful().answer)
    pool = caller.pool(origin.member)
    await caller.call(pool)
    with pytest.raises(CallFailed) as caught:
        await caller.call(pool)
    assert (caught.value.reason, caught.value.sent, caught.value.partial) == (UPSTREAM_RESET, True, False)
    assert len(origin.requests) == 2


@pytest.mark.parametrize(("calls_before", "requests"), [(0, 1), (1, 3)])
async def test_a_new_connection_that_is_closed_without_a_word_is_the_last(
    caller: Caller, origins: MakeOrigin, calls_before: int, requests: int
) -> None:
    origin = await origins(Forgetful(calls_before).answer)
    pool = caller.pool(origin.member)
    for _ in range(calls_before):
        await caller.call(pool)
    with pytest.raises(CallFailed) as caught:
        await caller.call(pool, idempotent=True)
    assert (caught.value.reason, caught.value.sent) == (UPSTREAM_RESET, True)
    assert len(origin.requests) == requests


async def test_what_was_sent_before_counts_where_no_new_connection_can_be_made(
    caller: Caller, origins: MakeOrigin
) -> None:
    async def once(request: Request) -> None:
        await request.wire.send(OK)
        origin.handle = goes_away

    async def goes_away(request: Request) -> None:
        origin._server.close()
        raise ConnectionResetError

    origin = await origins(once)
    pool = caller.pool(origin.member)
    await caller.call(pool)
    with pytest.raises(CallFailed) as caught:
        await caller.call(pool, idempotent=True)
    assert (caught.value.reason, caught.value.refused, caught.value.sent) == (UPSTREAM_CONNECT, True, True)


async def test_where_part_of_a_reply_has_come_the_request_is_not_sent_again(
    caller: Caller, origins: MakeOrigin
) -> None:
    parts = [OK, b"HTTP/1.1 2", OK]

    async def answer(request: Request) -> None:
        part = parts.pop(0)
        await request.wire.send(part)
        if part is not OK:
            raise ConnectionResetError

    origin = await origins(answer)
    pool = caller.pool(origin.member)
    await caller.call(pool)
    with pytest.raises(CallFailed) as caught:
        await caller.call(pool, idempotent=True)
    assert (caught.value.reason, caught.value.partial) == (UPSTREAM_RESET, True)


async def test_a_request_of_which_nothing_was_written_goes_on_a_new_connection(
    caller: Caller, origin: Origin
) -> None:
    pool = caller.pool(origin.member)
    await caller.call(pool)
    (kept,) = pool.idle
    calling = asyncio.create_task(caller.call(pool, b"POST", body=b"x"))
    asyncio.get_running_loop().call_soon(kept.data_received, b"408")  # between the call and the write
    assert (await soon(calling)).body == b"ok"
    assert [request.method for request in origin.requests] == ["GET", "POST"]


# -- replies before the request has been read


async def test_an_answer_to_the_head_is_taken_where_the_upstream_closes_on_the_body(
    caller: Caller, refusers: MakeRefuser
) -> None:
    pool = caller.pool(refusers().member)
    seen = set()
    for _ in range(40):
        reply = await caller.call(pool, b"POST", body=LONG_BODY)
        seen.add((reply.status, reply.body))
    assert seen == {(413, b"too much")}
    await eventually(lambda: pool.open == 0)


async def test_a_connection_with_a_body_still_to_be_written_is_not_kept(
    caller: Caller, origins: MakeOrigin
) -> None:
    async def answer(request: Request) -> None:
        await request.wire.send(OK)
        await request.wire.ended()

    origin = await origins(answer)
    pool = caller.pool(origin.member)
    assert (await caller.call(pool, b"POST", body=LONG_BODY)).status == 200
    assert pool.idle == []
    await eventually(lambda: pool.open == 0)


# -- what cannot be sent


@pytest.mark.parametrize(
    ("method", "target", "lines"),
    [
        (b"GET", b"/a b", []),
        (b"GET", b"/a\r\nX: y", []),
        (b"GET", b"/a HTTP/1.1\r\nX: y\r\n\r\n", []),
        (b"GET", b"http://h/", []),
        (b"GET", b"/#a", []),
        (b"GET", b"", []),
        (b"", b"/", []),
        (b"GET /x", b"/", []),
        (b"CONNECT", b"/", []),
        (b"GET", b"/", [b"A: b\r\nC: d"]),
        (b"GET", b"/", [b"A: b\n"]),
        (b"GET", b"/", [b""]),
        (b"GET", b"/", [b"A : b"]),
        *((b"POST", b"/", [line]) for line in (b"Content-Length: 2", b"content_length: 2", b"Host: h")),
        *((b"POST", b"/", [line]) for line in (b"Transfer-Encoding: chunked", b"Connection: close", b"TE: x")),
        *((b"POST", b"/", [line]) for line in (b"Expect: 100-continue", b"Upgrade: h2c", b"Keep-Alive: 1")),
    ],
)
async def test_what_is_not_one_request_is_not_sent(
    caller: Caller, origin: Origin, method: bytes, target: bytes, lines: list[bytes]
) -> None:
    pool = caller.pool(origin.member)
    with pytest.raises(ValueError, match=r"header|method and a path"):
        await caller.call(pool, method, target, lines=lines)
    assert (origin.connections, pool.open) == (0, 0)

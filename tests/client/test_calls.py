"""Calls through a session with a fixed list, on real sockets."""

import asyncio
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from slb.client import CallRefused, ConfigError, Session, SessionClosed
from tests.client.conftest import Upstreams
from tests.client.rig import Gate, Handler, Upstream, answering, asked, at_rest, live
from tests.support.waiting import eventually


async def test_a_call_may_be_awaited_or_entered_and_its_body_is_read_as_aiohttps(upstreams: Upstreams) -> None:
    upstream = await upstreams()
    async with Session(upstreams=[upstream.member]) as session:
        async with session.get("/products/1?a=b%20c", key="1") as response:
            assert (response.status, await response.text()) == (200, "GET /products/1?a=b%20c")
        response = await session.get("/products/2", key="2")
        assert await response.text() == "GET /products/2"
        assert isinstance(response, aiohttp.ClientResponse)
        await at_rest(session)


async def test_a_call_is_a_coroutine_that_tasks_and_gather_take(upstreams: Upstreams) -> None:
    upstream = await upstreams()
    async with Session(upstreams=[upstream.member]) as session:
        task = asyncio.create_task(session.get("/a"))
        answers = await asyncio.gather(task, session.get("/b"), session.get("/c"))
        assert sorted([await each.text() for each in answers]) == ["GET /a", "GET /b", "GET /c"]


@pytest.mark.parametrize("method", ["get", "head", "options", "post", "put", "patch", "delete"])
async def test_every_verb_is_sent_as_it_is_named(upstreams: Upstreams, method: str) -> None:
    seen: list[str] = []

    async def note(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.method)
        return web.Response()

    upstream = await upstreams(note)
    async with Session(upstreams=[upstream.member]) as session, getattr(session, method)("/x") as response:
        assert response.status == 200
    assert seen == [method.upper()]


async def test_bodies_headers_params_and_json_are_aiohttps(upstreams: Upstreams) -> None:
    async def echo(request: web.BaseRequest) -> web.StreamResponse:
        seen = {"x": request.headers["X-A"], "url": request.path_qs}
        return web.json_response({"body": await request.json(), **seen})

    upstream = await upstreams(echo)
    async with Session(upstreams=[upstream.member], headers={"X-A": "1"}) as session:
        response = await session.post("/x", json={"a": 1}, params={"q": "2"})
        assert await response.json() == {"body": {"a": 1}, "x": "1", "url": "/x?q=2"}


async def test_a_path_may_be_a_url_without_a_host(upstreams: Upstreams) -> None:
    upstream = await upstreams()
    async with Session(upstreams=[upstream.member]) as session:
        response = await session.get(URL("/a b/c") % {"q": "1"})
        assert await response.text() == "GET /a%20b/c?q=1"


@pytest.mark.parametrize("path", ["products", "", "http://example.com/x", "/a/%2e%2e/../..", "/a\x00b", "/a%2fb"])
async def test_what_is_no_clear_path_is_refused_by_name_and_not_sent(upstreams: Upstreams, path: str) -> None:
    upstream, fallback = await upstreams(), await upstreams()
    async with Session(upstreams=[upstream.member], fallback=fallback.url) as session:
        with pytest.raises(CallRefused, match="bad_request"):
            await session.get(path)
        assert upstream.seen == fallback.seen == []


async def test_calls_are_shared_evenly_by_round_robin(upstreams: Upstreams) -> None:
    three = [await upstreams() for _ in range(3)]
    async with Session(upstreams=[each.member for each in three]) as session:
        assert await asked(session, ["/x"] * 30) == {200: 30}
    assert [len(each.seen) for each in three] == [10, 10, 10]


async def test_an_upstream_is_held_until_the_body_has_ended(upstreams: Upstreams) -> None:
    gate = asyncio.Event()

    async def trickle(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"begun")
        await gate.wait()
        await response.write(b" ended")
        return response

    upstream = await upstreams(trickle)
    async with Session(upstreams=[upstream.member]) as session:
        response = await session.get("/x")
        assert [each.inflight for each in live(session)] == [1]
        gate.set()
        assert await response.text() == "begun ended"
        assert [each.inflight for each in live(session)] == [0]
        assert sum(session.metrics.ring.durations.counts) == 1


async def test_a_cancelled_call_gives_its_upstream_back_once(upstreams: Upstreams) -> None:
    gate = Gate()
    upstream = await upstreams(gate)
    async with Session(upstreams=[upstream.member], max_outbound=5) as session:
        tasks = [asyncio.create_task(session.get("/x")) for _ in range(3)]
        await eventually(lambda: upstream.inside == 3)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await at_rest(session)
        assert session.metrics.ring.abandoned == 3
        assert not session.metrics.ring.errors


@pytest.mark.parametrize("leave", ["release", "close"])
async def test_a_body_left_unread_gives_its_upstream_back_once_and_is_no_error(
    upstreams: Upstreams, leave: str
) -> None:
    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 1024)
            await asyncio.sleep(0.001)

    upstream = await upstreams(endless)
    async with Session(upstreams=[upstream.member]) as session:
        response = await session.get("/x")
        getattr(response, leave)()
        await at_rest(session)
        assert session.metrics.ring.abandoned == 1
        assert not session.metrics.ring.errors


async def test_a_body_cut_short_is_an_error_of_its_upstream(upstreams: Upstreams) -> None:
    async def cut(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"part")
        assert request.transport is not None
        request.transport.close()
        return response

    upstream = await upstreams(cut)
    async with Session(upstreams=[upstream.member]) as session:
        response = await session.get("/x")
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
        await at_rest(session)
        assert session.metrics.ring.errors == {"body": 1}


async def test_the_fallbacks_own_path_stands_before_the_calls(upstreams: Upstreams) -> None:
    upstream, fallback = await upstreams(), await upstreams()
    async with Session(upstreams=[upstream.member], fallback=f"{fallback.url}/base/") as session:
        assert await asked(session, ["/a/b?c"]) == {200: 1}
        session.enabled = False
        assert await asked(session, ["/a/b?c"]) == {200: 1}
    assert (upstream.seen, fallback.seen) == (["/a/b?c"], ["/base/a/b?c"])


async def test_a_session_that_is_not_open_raises_that_error(upstreams: Upstreams) -> None:
    upstream = await upstreams()
    session = Session(upstreams=[upstream.member])
    assert session.closed
    with pytest.raises(SessionClosed):
        await session.get("/x")
    async with session as opened:
        assert opened is session
        assert await asked(session, ["/x"]) == {200: 1}
    with pytest.raises(SessionClosed):
        await session.get("/x")
    with pytest.raises(SessionClosed):
        await session.open()
    await session.close()


async def half_a_body(request: web.BaseRequest) -> web.StreamResponse:
    """And no more, until the other side leaves."""
    response = web.StreamResponse(headers={"Content-Length": "100"})
    await response.prepare(request)
    await response.write(b"half")
    await asyncio.Event().wait()
    return response


@pytest.mark.parametrize("handle", [Gate(), half_a_body], ids=["before the head", "in the middle of the body"])
async def test_calls_that_are_out_end_by_name_when_the_session_is_closed(
    upstreams: Upstreams, handle: Handler
) -> None:
    two = [await upstreams(handle) for _ in range(2)]
    session = Session(upstreams=[each.member for each in two])

    async def call() -> bytes:
        async with session.get("/x") as response:
            return await response.read()

    async with session:
        tasks = [asyncio.create_task(call()) for _ in range(4)]
        await eventually(lambda: sum(each.inside for each in two) == 4)
        if handle is half_a_body:
            await eventually(lambda: session.metrics.ring.requests[200] == 4)
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(ended, SessionClosed)
        assert isinstance(ended, aiohttp.ClientError)
    await at_rest(session)
    assert (session.metrics.ring.abandoned, dict(session.metrics.ring.errors)) == (4, {})
    assert sum(len(each.seen) for each in two) == 4


async def test_cookies_of_one_upstream_are_not_sent_to_another(upstreams: Upstreams) -> None:
    async def bake(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(headers={"Set-Cookie": "a=b; Domain=127.0.0.1; Path=/"})

    two = [await upstreams(bake) for _ in range(2)]
    async with Session(upstreams=[each.member for each in two]) as session:
        await asked(session, ["/x"] * 6)
    assert not any("Cookie" in headers for each in two for headers in each.headers)


async def test_upstream_networks_hold_for_names_when_they_resolve() -> None:
    async with Session(upstreams=["localhost:9"], upstream_networks=["10.0.0.0/8"]) as session:
        with pytest.raises(aiohttp.ClientConnectorDNSError, match="in none of upstream_networks"):
            await session.get("/x")


async def test_the_list_may_be_changed_while_calls_are_made(upstreams: Upstreams) -> None:
    first, second = await upstreams(), await upstreams()
    async with Session(upstreams={first.member: {"node": "n1"}}) as session:
        with pytest.raises(ConfigError, match=r"169\.254\.1\.1:80: 169\.254\.1\.1 is link-local"):
            session.set_upstreams([second.member, "169.254.1.1:80"])
        assert await asked(session, ["/x"]) == {200: 1}
        session.set_upstreams({second.member: {"node": "n2"}})
        assert await asked(session, ["/x"] * 2) == {200: 2}
        assert [each.spec.node for each in live(session)] == ["n2"]
    assert (len(first.seen), len(second.seen)) == (1, 2)


async def test_a_list_that_is_changed_while_the_session_opens_is_the_one_it_has(upstreams: Upstreams) -> None:
    upstream = await upstreams()
    many = {f"10.0.{number // 250}.{number % 250}:80": {"node": "n1"} for number in range(400)}
    session = Session(upstreams=many)
    opening = asyncio.create_task(session.open())
    await asyncio.sleep(0)
    assert not opening.done()
    session.set_upstreams({upstream.member: {"node": "n2"}})
    await opening
    try:
        assert [each.spec.node for each in live(session)] == ["n2"]
        assert await asked(session, ["/x"]) == {200: 1}
    finally:
        await session.close()


async def test_attributes_of_an_upstream_hold_no_more_where_another_list_has_none(
    upstreams: Upstreams,
) -> None:
    two = [await upstreams() for _ in range(2)]
    members = [each.member for each in two]
    listed: dict[str, dict[str, Any]] = {members[0]: {"weight": 9, "node": "n1"}, members[1]: {"node": "n2"}}
    async with Session(upstreams=listed, settings={"policy": "weighted_round_robin"}) as session:
        await asked(session, ["/x"] * 10)
        assert [len(each.seen) for each in two] == [9, 1]
        session.set_upstreams(members[:1])
        session.set_upstreams(members)
        assert [each.spec.node for each in live(session)] == ["", ""]
        await asked(session, ["/x"] * 10)
        assert [len(each.seen) for each in two] == [9 + 5, 1 + 5]


async def test_the_key_of_a_megabyte_is_refused_by_name(upstreams: Upstreams) -> None:
    upstream = await upstreams()
    async with Session(upstreams=[upstream.member]) as session:
        with pytest.raises(CallRefused, match="a key of 1048576 bytes"):
            await session.get("/x", key="k" * 2**20)
        await at_rest(session)
        assert upstream.seen == []


async def test_raise_for_status_raises_what_aiohttp_raises_and_a_4xx_is_no_failure(upstreams: Upstreams) -> None:
    two = [await upstreams(answering(404)) for _ in range(2)]
    async with Session(upstreams=[each.member for each in two], raise_for_status=True) as session:
        with pytest.raises(aiohttp.ClientResponseError) as raised:
            await session.get("/x")
        assert raised.value.status == 404
        await at_rest(session)
        assert not session.metrics.ring.errors
    assert sum(len(each.seen) for each in two) == 1


async def test_connections_are_kept(upstreams: Upstreams) -> None:
    ports: set[int] = set()

    async def note(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername")[1])
        return web.Response()

    upstream: Upstream = await upstreams(note)
    async with Session(upstreams=[upstream.member]) as session:
        await asked(session, ["/x"] * 10)
    assert len(ports) == 1


async def test_closing_that_is_given_up_leaves_nothing_running(upstreams: Upstreams) -> None:
    upstream = await upstreams()
    session = Session(upstreams=[upstream.member])
    await session.open()
    await asked(session, ["/x"])
    before = asyncio.all_tasks()
    closing = asyncio.create_task(session.close())
    await asyncio.sleep(0)
    closing.cancel()
    with suppress(asyncio.CancelledError):
        await closing
    await eventually(lambda: not {"rings", "ejection"} & {each.get_name() for each in asyncio.all_tasks() & before})


@pytest.mark.parametrize("middlewares", [{}, {"middlewares": []}], ids=["", "a call's own"])
async def test_a_redirect_to_an_address_that_no_upstream_may_have_is_not_followed(
    upstreams: Upstreams, middlewares: dict[str, Any]
) -> None:
    async def redirect(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": elsewhere + request.path_qs})

    other = await Upstream().start("127.0.0.2")
    upstream = await upstreams(redirect)
    elsewhere = other.url
    networks = ["127.0.0.1/32"]
    try:
        async with Session(upstreams=[upstream.member], upstream_networks=networks) as session:
            with pytest.raises(aiohttp.InvalidUrlRedirectClientError):
                await session.get("/x", **middlewares)
            assert not other.seen
            async with session.get("/x", allow_redirects=False, **middlewares) as response:
                assert response.status == 302
            elsewhere = (await upstreams()).url
            async with session.get("/x", **middlewares) as response:
                assert response.status == 200
        assert upstream.seen == ["/x"] * 3, "none was a failure that is tried again"
    finally:
        await other.stop()

"""The buffer beneath the cap, and the shedding at it."""

import asyncio

import aiohttp
import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpClient

from slb.client import CallRefused, Session, SessionClosed, shed_when_full
from tests.client.conftest import Upstreams
from tests.client.rig import Gate, at_rest
from tests.proxy.harness import port_that_never_accepts
from tests.support.waiting import eventually


async def test_calls_beyond_the_buffers_beginning_wait_their_turn_in_order(upstreams: Upstreams) -> None:
    gates = [asyncio.Event() for _ in range(6)]

    async def wait(request: web.BaseRequest) -> web.StreamResponse:
        await gates[int(request.path[1:])].wait()
        return web.Response()

    upstream = await upstreams(wait)
    async with Session(upstreams=[upstream.member], max_outbound=10, buffer_from=2, buffer_timeout=30) as session:
        tasks = [asyncio.create_task(session.get(f"/{n}")) for n in range(6)]
        await eventually(lambda: len(upstream.seen) == 2)
        assert (session.outbound, session.metrics.out(), session.metrics.waiting()) == (6, 2, 4)
        for n, gate in enumerate(gates):
            gate.set()
            await tasks[n]
            await eventually(lambda n=n: len(upstream.seen) == min(6, n + 3))  # type: ignore[misc]
        await at_rest(session)
    assert upstream.seen == [f"/{n}" for n in range(6)]
    assert upstream.most == 2
    assert sum(session.metrics.buffer_wait.counts) == 4


async def test_a_call_waits_no_longer_than_the_buffers_timeout(upstreams: Upstreams) -> None:
    gate = Gate()
    upstream = await upstreams(gate)
    async with Session(upstreams=[upstream.member], max_outbound=1, buffer_timeout=0.05) as session:
        first = asyncio.create_task(session.get("/x"))
        await eventually(lambda: upstream.inside == 1)
        with pytest.raises(CallRefused, match="queue_timeout"):
            await session.get("/y")
        gate.open.set()
        await first
        await at_rest(session)


async def test_a_call_that_leaves_the_buffer_costs_no_other_its_place(upstreams: Upstreams) -> None:
    gate = Gate()
    upstream = await upstreams(gate)
    async with Session(upstreams=[upstream.member], max_outbound=100, buffer_from=1, buffer_timeout=30) as session:
        tasks = [asyncio.create_task(session.get(f"/{n}")) for n in range(50)]
        await eventually(lambda: session.outbound == 50)
        for task in tasks[1::2]:
            task.cancel()
        gate.open.set()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(each, aiohttp.ClientResponse) for each in ended) == 25
        await at_rest(session)
    assert upstream.seen == [f"/{n}" for n in range(0, 50, 2)]


async def test_calls_that_wait_when_the_session_is_closed_are_refused_at_once() -> None:
    """They wait for one whose connection is never made."""
    listener, fillers, member = port_that_never_accepts()
    session = Session(
        upstreams=[member],
        settings={"connect_timeout": "1h"},
        max_outbound=2,
        buffer_from=1,
        buffer_timeout=3600,
    )
    async with session:
        out, *waiting = [asyncio.create_task(session.get(f"/{n}")) for n in range(5)]
        not_begun = session.get("/x")
        await eventually(lambda: session.outbound == 5)
    ended = await asyncio.gather(*waiting, not_begun, return_exceptions=True)
    assert [type(each) for each in ended] == [SessionClosed] * 5
    out.cancel()
    await asyncio.wait([out])
    assert session.outbound == 0
    for each in (listener, *fillers):
        each.close()


async def test_new_work_is_shed_at_the_cap_and_what_was_let_in_goes_on(
    upstreams: Upstreams, aiohttp_client: AiohttpClient
) -> None:
    gate = Gate()
    upstream = await upstreams(gate)
    session = Session(upstreams=[upstream.member], max_outbound=4, buffer_from=2, buffer_timeout=30)

    async def batch(_: web.Request) -> web.StreamResponse:
        answers = await asyncio.gather(*(session.get(f"/{n}") for n in range(4)))
        return web.json_response([each.status for each in answers])

    async def healthy(_: web.Request) -> web.StreamResponse:
        return web.Response()

    app = web.Application(middlewares=[shed_when_full(session, exempt={"/healthz"})])
    app.add_routes([web.get("/batch", batch), web.get("/healthz", healthy)])
    outside = await aiohttp_client(app)
    async with session:
        admitted = asyncio.create_task(outside.get("/batch"))
        await eventually(lambda: session.outbound == 4)
        async with outside.get("/batch") as refused:
            assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
            assert (await refused.json())["error"] == "overloaded"
        async with outside.get("/healthz") as probe:
            assert probe.status == 200
        gate.open.set()
        assert await (await admitted).json() == [200] * 4
        async with outside.get("/batch") as again:
            assert again.status == 200
        assert session.metrics.shed == 1
        await at_rest(session)
    assert upstream.most == 2


async def test_without_a_cap_nothing_is_shed_and_nothing_waits(upstreams: Upstreams) -> None:
    gate = Gate()
    upstream = await upstreams(gate)
    async with Session(upstreams=[upstream.member], settings={"connect_timeout": "1h"}) as session:
        tasks = [asyncio.create_task(session.get("/x")) for _ in range(150)]
        await eventually(lambda: upstream.inside == 150)
        assert (session.overloaded, session.outbound) == (False, 150)
        gate.open.set()
        await asyncio.gather(*tasks)
        await at_rest(session)

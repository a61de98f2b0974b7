"""One retry, elsewhere, of what failed and of nothing else."""

import asyncio
import io
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import ClientTimeout, web
from structlog.testing import capture_logs

from slb.client import Session
from tests.client.conftest import Upstreams
from tests.client.rig import Gate, Handler, answer_ok, answering, asked, at_rest, break_off, hang_up
from tests.support.ports import closed_port
from tests.support.valkey import Valkey
from tests.support.waiting import eventually


@pytest.mark.parametrize("status", [500, 501, 502, 503, 504, 599])
async def test_a_5xx_is_retried_once_at_another_upstream(upstreams: Upstreams, status: int) -> None:
    bad, good = await upstreams(answering(status)), await upstreams()
    async with Session(upstreams=[bad.member, good.member]) as session:
        assert await asked(session, ["/x"] * 6) == {200: 6}
        await at_rest(session)
        assert session.metrics.retries == {"status": len(bad.seen)}
    assert len(bad.seen) == 3
    assert len(good.seen) == 6


async def test_where_all_upstreams_fail_a_fifth_of_the_calls_is_made_again_and_no_more(
    upstreams: Upstreams,
) -> None:
    two = [await upstreams(answering(503)) for _ in range(2)]
    async with Session(upstreams=[each.member for each in two]) as session:
        assert await asked(session, ["/x"] * 200) == {503: 200}
        await at_rest(session)
        again, refused = session.metrics.retries["status"], session.metrics.retries_refused["status"]
    assert again + refused == 200
    assert 30 <= again <= 40
    assert sum(len(each.seen) for each in two) == 200 + again


async def test_calls_that_reached_nobody_are_all_made_again(upstreams: Upstreams) -> None:
    good = await upstreams()
    async with Session(upstreams=[closed_port(), good.member], settings={"eject_after": 0}) as session:
        assert await asked(session, ["/x"] * 20) == {200: 20}
        assert session.metrics.retries["connect"] == 10


async def test_a_second_attempt_goes_to_another_node_first(upstreams: Upstreams) -> None:
    one = [await upstreams(answering(500)) for _ in range(4)]
    other = await upstreams()
    nodes = {each.member: {"node": "n1"} for each in one} | {other.member: {"node": "n2"}}
    async with Session(upstreams=nodes) as session:
        assert await asked(session, ["/x"] * 3) == {200: 3}


@pytest.mark.parametrize("status", [400, 401, 404, 408, 409, 429, 499])
async def test_a_4xx_is_an_answer_and_never_retried(upstreams: Upstreams, status: int) -> None:
    two = [await upstreams(answering(status)) for _ in range(2)]
    async with Session(upstreams=[each.member for each in two]) as session:
        assert await asked(session, ["/x"] * 4) == {status: 4}
        assert not session.metrics.ring.errors
    assert sum(len(each.seen) for each in two) == 4


async def test_a_lost_connection_is_retried_and_never_at_the_same_upstream(upstreams: Upstreams) -> None:
    bad, good = await upstreams(hang_up), await upstreams()
    async with Session(upstreams=[bad.member, good.member]) as session:
        assert await asked(session, ["/x"] * 6) == {200: 6}
        await at_rest(session)
        assert session.metrics.ring.errors == {"reset": 3}
    assert (len(bad.seen), len(good.seen)) == (3, 6)


async def test_a_kept_connection_that_is_lost_is_not_tried_again_by_aiohttp_itself(upstreams: Upstreams) -> None:
    upstream = await upstreams()
    async with Session(upstreams=[upstream.member]) as session:
        await asked(session, ["/x"])
        upstream.handle = hang_up
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await session.get("/y")
    assert upstream.seen == ["/x", "/y"]


async def test_a_callers_middlewares_do_not_bring_aiohttps_own_retry_back(upstreams: Upstreams) -> None:
    async def nothing(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        return await handler(request)

    upstream = await upstreams(hang_up)
    async with Session(upstreams=[upstream.member]) as session:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await session.get("/y", middlewares=[nothing])
    assert upstream.seen == ["/y"]


async def test_a_second_failure_is_the_callers(upstreams: Upstreams) -> None:
    three = [await upstreams(answering(500 + n)) for n in range(3)]
    async with Session(upstreams=[each.member for each in three]) as session:
        async with session.get("/x") as response:
            assert response.status >= 500
        await at_rest(session)
    assert sorted(len(each.seen) for each in three) == [0, 1, 1]


async def test_retries_0_switches_it_off(upstreams: Upstreams) -> None:
    two = [await upstreams(answering(500)) for _ in range(2)]
    async with Session(upstreams=[each.member for each in two], settings={"retries": 0}) as session:
        assert await asked(session, ["/x"]) == {500: 1}
    assert sum(len(each.seen) for each in two) == 1


async def test_the_only_upstream_failing_the_second_attempt_is_the_fallbacks(upstreams: Upstreams) -> None:
    bad, fallback = await upstreams(answering(500)), await upstreams()
    async with Session(upstreams=[bad.member], fallback=fallback.url) as session:
        assert await asked(session, ["/x"]) == {200: 1}
        assert dict(session.metrics.fallbacks) == {"no_upstream": 1}
    assert (len(bad.seen), len(fallback.seen)) == (1, 1)


async def test_without_another_upstream_the_5xx_is_the_answer(upstreams: Upstreams) -> None:
    bad = await upstreams(answering(503, "full"))
    async with Session(upstreams=[bad.member]) as session:
        async with session.get("/x") as response:
            assert (response.status, await response.text()) == (503, "full")
        await at_rest(session)
    assert len(bad.seen) == 1


async def test_a_fallback_that_fails_is_not_asked_again(upstreams: Upstreams) -> None:
    good, fallback = await upstreams(), await upstreams(answering(502))
    async with Session(upstreams=[good.member], fallback=fallback.url, enabled=False) as session:
        assert await asked(session, ["/x"]) == {502: 1}
        assert session.metrics.fallback.errors == {"status": 1}
    assert (len(good.seen), len(fallback.seen)) == (0, 1)


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_what_must_not_be_done_twice_is_not_sent_twice(upstreams: Upstreams, method: str) -> None:
    two = [await upstreams(hang_up) for _ in range(2)]
    async with Session(upstreams=[each.member for each in two]) as session:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await session.request(method, "/x", data=b"once")
    assert sum(len(each.seen) for each in two) == 1


async def test_a_post_that_reached_no_upstream_is_sent_to_another_with_its_whole_body(upstreams: Upstreams) -> None:
    async def echo(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=await request.read())

    good = await upstreams(echo)
    async with Session(upstreams=[closed_port(), good.member]) as session:
        for _ in range(4):
            async with session.post("/x", data=b"whole") as response:
                assert await response.read() == b"whole"
        assert session.metrics.ring.errors == {"connect": 2}


async def test_a_body_that_is_gone_once_it_was_sent_is_not_sent_again(upstreams: Upstreams) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"a"

    two = [await upstreams(answering(500)) for _ in range(2)]
    async with Session(upstreams=[each.member for each in two]) as session:
        for body in (pieces(), io.BytesIO(b"a")):
            async with session.put("/x", data=body) as response:
                assert response.status == 500
    assert sum(len(each.seen) for each in two) == 2


async def test_an_upstream_that_is_silent_too_long_is_left_for_another(upstreams: Upstreams) -> None:
    gate = Gate()
    silent, good = await upstreams(gate), await upstreams()
    settings = {"first_byte_timeout": "100ms"}
    async with Session(upstreams=[silent.member, good.member], settings=settings) as session:
        assert await asked(session, ["/x"] * 2) == {200: 2}
        assert session.metrics.ring.errors == {"timeout": 1}
        await at_rest(session)


async def test_the_callers_own_time_limit_is_for_both_attempts(upstreams: Upstreams) -> None:
    gate = Gate()
    two = [await upstreams(gate) for _ in range(2)]
    async with Session(upstreams=[each.member for each in two]) as session:
        with pytest.raises(TimeoutError):
            await session.get("/x", timeout=ClientTimeout(total=0.1))
        await at_rest(session)
    assert sum(len(each.seen) for each in two) == 1


async def test_the_second_attempt_has_only_the_rest_of_the_callers_time(upstreams: Upstreams) -> None:
    """It would answer within the whole time, but not within what is left."""
    failures: list[str] = []

    async def fail_then_answer(_: web.BaseRequest) -> web.StreamResponse:
        if not failures:
            failures.append("slow")
            await asyncio.sleep(0.3)
            return web.Response(status=500)
        await asyncio.sleep(0.4)
        return web.Response()

    two = [await upstreams(fail_then_answer) for _ in range(2)]
    async with Session(upstreams=[each.member for each in two], timeout=ClientTimeout(total=0.6)) as session:
        with pytest.raises(TimeoutError):
            await session.get("/x")
        await at_rest(session)
    assert [len(each.seen) for each in two] == [1, 1]


async def test_a_call_cancelled_before_its_retry_holds_nothing(upstreams: Upstreams) -> None:
    gate = Gate()
    bad, slow = await upstreams(answering(500)), await upstreams(gate)
    async with Session(upstreams=[bad.member, slow.member], max_outbound=3) as session:
        tasks = [asyncio.create_task(session.get("/x")) for _ in range(2)]
        await eventually(lambda: slow.inside == 2)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await at_rest(session)


async def test_raise_for_status_comes_after_the_retry(upstreams: Upstreams) -> None:
    bad, good = await upstreams(answering(500)), await upstreams(answer_ok)
    async with Session(upstreams=[bad.member, good.member], raise_for_status=True) as session:
        assert await asked(session, ["/x"] * 4) == {200: 4}
        await at_rest(session)
        assert session.metrics.ring.requests == {500: 2, 200: 4}


async def test_every_outbound_error_names_its_destination_its_node_and_the_callers(upstreams: Upstreams) -> None:
    bad, good = await upstreams(hang_up), await upstreams()
    known = {bad.member: {"node": "node-7"}, good.member: {"node": "node-8"}}
    with capture_logs() as logs:
        async with Session(upstreams=known, node="node-1") as session:
            await asked(session, ["/products/1"] * 2)
    (line,) = [each for each in logs if each["event"] == "outbound_error"]
    expected = {"destination": bad.member, "destination_node": "node-7", "node": "node-1", "way": "ring"}
    assert {name: line[name] for name in expected} == expected
    assert (line["path"], line["method"], line["reason"], line["attempt"]) == ("/products/1", "GET", "reset", 1)


@pytest.mark.parametrize("does", [hang_up, break_off, answering(500)], ids=["lost", "body", "status"])
async def test_the_error_that_the_caller_gets_names_the_upstream_and_both_nodes(
    upstreams: Upstreams, does: Handler
) -> None:
    bad = await upstreams(does)
    raised = None
    async with Session(
        upstreams={bad.member: {"node": "node-7"}}, node="node-1", raise_for_status=True, settings={"retries": 0}
    ) as session:
        try:
            await (await session.get("/x")).read()
        except aiohttp.ClientError as error:
            raised = error
    assert raised is not None
    assert raised.__notes__ == [f"upstream {bad.member} on node node-7, called on node node-1"]


async def test_an_error_of_the_fallback_is_logged_too_without_its_password(upstreams: Upstreams) -> None:
    good = await upstreams()
    there = closed_port()
    with capture_logs() as logs:
        async with Session(
            upstreams=[good.member], fallback=f"http://user:secret@{there}/p", enabled=False, node="n"
        ) as session:
            with pytest.raises(aiohttp.ClientConnectorError) as raised:
                await session.get("/x")
    assert raised.value.__notes__ == [f"fallback http://{there}/p, called on node n"]
    (line,) = [each for each in logs if each["event"] == "outbound_error"]
    assert (line["destination"], line["way"], line["node"]) == (f"http://{there}/p", "fallback", "n")
    assert "secret" not in str(line)


@pytest.mark.parametrize("with_fallback", [True, False])
async def test_a_retry_by_a_route_that_is_gone_goes_to_the_next_all_the_same(
    upstreams: Upstreams, valkey: Valkey, with_fallback: bool
) -> None:
    gate = Gate()

    async def ill_later(request: web.BaseRequest) -> web.StreamResponse:
        await gate(request)
        return web.Response(status=503)

    two, elsewhere = [await upstreams(ill_later) for _ in range(2)], await upstreams()
    valkey.admin.hset("slb:route:/", mapping={"policy": "consistent_hash"})
    valkey.admin.sadd("slb_", *(each.member for each in two))
    fallback = elsewhere.url if with_fallback else None
    async with Session(redis_url=valkey.url, fallback=fallback) as session:
        call = asyncio.create_task(session.get("/x"))
        await eventually(lambda: sum(each.inside for each in two) == 1)
        valkey.admin.delete("slb_", "slb:route:/")
        await eventually(lambda: not session.table.routes)
        await asyncio.sleep(0.05)  # longer than from one look at the pool to the next
        gate.open.set()
        assert (await call).status == 503
        assert [len(each.seen) for each in two] == [1, 1]
        assert not session.metrics.fallbacks


async def test_what_the_budget_counts_of_a_route_goes_with_the_route(upstreams: Upstreams, valkey: Valkey) -> None:
    two = [await upstreams(answering(503)) for _ in range(2)]
    for path in ("slb_gone", "slb_stays"):
        valkey.admin.sadd(path, *(each.member for each in two))
    async with Session(redis_url=valkey.url) as session:
        assert await asked(session, ["/gone", "/stays"]) == {503: 2}
        calls = session._calls
        assert calls is not None
        assert calls._begun.keys() == calls._budgets._budgets.keys() == {"/gone", "/stays"}
        valkey.admin.delete("slb_gone")
        await eventually(lambda: calls._begun.keys() == calls._budgets._budgets.keys() == {"/stays"})


@pytest.mark.parametrize("policy", ["round_robin", "consistent_hash"])
async def test_a_retry_goes_by_the_upstreams_that_there_are_by_then(upstreams: Upstreams, policy: str) -> None:
    gate = Gate()

    async def ill_later(request: web.BaseRequest) -> web.StreamResponse:
        await gate(request)
        return web.Response(status=503)

    two, new = [await upstreams(ill_later) for _ in range(2)], await upstreams()
    async with Session(upstreams=[each.member for each in two], settings={"policy": policy}) as session:
        call = asyncio.create_task(session.get("/x"))
        await eventually(lambda: sum(each.inside for each in two) == 1)
        session.set_upstreams([*(each.member for each in two if each.inside), new.member])
        gate.open.set()
        assert (await call).status == 200
        await at_rest(session)
    assert (sum(len(each.seen) for each in two), len(new.seen)) == (1, 1)


async def test_a_total_of_0_is_no_limit_for_the_second_attempt_either(upstreams: Upstreams) -> None:
    answered = 0

    async def slow_but_for_the_first(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal answered
        answered += 1
        if answered == 1:
            return web.Response(status=503)
        await asyncio.sleep(0.05)
        return await answer_ok(request)

    two = [await upstreams(slow_but_for_the_first) for _ in range(2)]
    async with Session(upstreams=[each.member for each in two]) as session:
        assert (await session.get("/x", timeout=ClientTimeout(total=0))).status == 200

"""Upstreams that owe an answer while their callers wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import aiohttp
import pytest
from aiohttp import web

from slb.balance import pace
from slb.client import Session
from slb.routing import witness
from tests.client.conftest import Upstreams
from tests.client.rig import Gate, Handler, answer_ok, answering, asked, at_rest, break_off, hang_up, live
from tests.support.waiting import eventually, soon, until
from tests.support.witness import Recorder, stuck_soon


async def test_one_that_never_answers_is_stuck_while_its_callers_wait(
    upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck_soon(monkeypatch)
    monkeypatch.setattr(pace, "_STUCK_TIMES", 1.0)
    gate = Gate()
    sick, well = await upstreams(gate), await upstreams()
    settings = {"policy": "round_robin", "eject_time": "1h", "eject_slow": False}
    async with Session(upstreams=[sick.member, well.member], settings=settings) as session:
        calls: list[asyncio.Task[int]] = []

        async def call() -> int:
            async with session.get("/x") as response:
                await response.read()
                return response.status

        async def is_left_out() -> bool:
            calls.append(asyncio.create_task(call()))
            await asyncio.wait(calls[-1:], timeout=0.1)
            return [each.member for each in live(session) if not each.available] == [sick.member]

        await until(is_left_out, bool, what="it is left out")
        assert dict(session.metrics.health.ejections) == {(sick.member, "stuck"): 1}
        assert await asked(session, ["/x"] * 4) == {200: 4}
        gate.open.set()
        assert set(await soon(asyncio.gather(*calls))) == {200}
        await at_rest(session)


async def test_it_is_asked_of_one_that_has_the_whole_call_until_the_answer_begins(
    upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witness, "LOOK_AGAIN", 0.02)
    gates = Gate(), Gate()
    first, second = [await upstreams(each) for each in gates]
    recorder, going_on = Recorder(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"x"
        await going_on.wait()

    session = Session(upstreams=[first.member, second.member], settings={"policy": "round_robin"})
    monkeypatch.setattr(session._feed, "witness", recorder)
    async with session:
        session.table.routes["/"].first_look = 0.02
        uploads = asyncio.create_task(session.post("/x", data=slowly()))
        await eventually(lambda: first.inside + second.inside == 1)
        waits = asyncio.create_task(session.get("/x"))
        await eventually(lambda: first.inside + second.inside == 2)
        await eventually(lambda: len(recorder.left) >= 3)
        (asked_of,) = set(recorder.left)
        uploads.cancel()
        with suppress(asyncio.CancelledError):
            await uploads
        assert set(recorder.left) == {asked_of}, "its caller may not have sent all"
        for gate in gates:
            gate.open.set()
        async with await soon(waits) as response:
            before = len(recorder.left)
            assert response.status == 200
            gates[0].open.clear()
            gates[1].open.clear()
            again = asyncio.create_task(session.get("/x"))
            await eventually(lambda: len(recorder.left) >= before + 3)
            assert set(recorder.left[before:]) == {first.member, second.member} - {asked_of}
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)
        await at_rest(session)


async def test_the_time_of_an_answer_counts_where_the_whole_call_was_there(
    upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    only, recorder = await upstreams(), Recorder()

    async def body() -> AsyncIterator[bytes]:
        yield b"x"

    session = Session(upstreams=[only.member])
    monkeypatch.setattr(session._feed, "witness", recorder)
    async with session:
        for data in (body(), None, b"x", "x"):
            async with session.post("/x", data=data) as response:
                await response.read()
        await at_rest(session)
    assert [took > 0 for took in recorder.took] == [False, True, True, True]


@pytest.mark.parametrize(
    ("handle", "raises", "is_kept"),
    [
        (answering(500), False, True),
        (answering(500), True, True),
        (answering(429), False, True),
        (hang_up, False, True),
        (break_off, False, True),
        (answer_ok, False, False),
        (answering(404), False, False),
    ],
)
async def test_a_call_that_failed_counts_as_in_flight_as_long_as_the_judge_says(
    upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch, handle: Handler, raises: bool, is_kept: bool
) -> None:
    """What least-loaded policies go by."""
    only, recorder = await upstreams(handle), Recorder()
    recorder.holds = 3600.0
    session = Session(upstreams=[only.member], settings={"retries": 0}, raise_for_status=raises)
    monkeypatch.setattr(session._feed, "witness", recorder)
    async with session:
        with suppress(aiohttp.ClientError):
            async with session.get("/x") as response:
                await response.read()
        await eventually(lambda: session.outbound == 0)
        assert live(session)[0].inflight == is_kept
        assert recorder.held == [only.member] * is_kept


async def test_the_slot_of_a_call_that_was_sent_again_is_kept_as_well(
    upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    two, recorder = [await upstreams(answering(503)) for _ in range(2)], Recorder()
    recorder.holds = 3.0
    session = Session(upstreams=[each.member for each in two])
    monkeypatch.setattr(session._feed, "witness", recorder)
    async with session:
        await asked(session, ["/x"])
        assert sorted(recorder.held) == sorted(each.member for each in two)
        assert [each.inflight for each in live(session)] == [1, 1]
        await at_rest(session)


async def test_one_whose_answer_is_under_way_passes_for_alive_until_that_has_ended(upstreams: Upstreams) -> None:
    going_on = asyncio.Event()

    async def begin(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await going_on.wait()
        await response.write_eof()
        return response

    only = await upstreams(begin)
    async with Session(upstreams=[only.member]) as session:
        (upstream,) = live(session)
        first, second = await session.get("/x"), await session.get("/x")
        began_at = upstream.alive_at
        assert upstream.unseen == 2
        second.close()
        assert upstream.unseen == 1
        assert upstream.alive_at > began_at
        began_at = upstream.alive_at
        going_on.set()
        await soon(first.read())
        await eventually(lambda: upstream.unseen == 0)
        assert upstream.alive_at > began_at
        only.handle = answer_ok
        await asked(session, ["/x"])
        assert upstream.unseen == 0
        await at_rest(session)

"""Upstreams at which calls keep failing are left out, by the settings of the routes."""

import asyncio
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from slb.balance.upstream import LiveUpstream
from slb.client import OutboundCollector, Session
from tests.client.conftest import Upstreams
from tests.client.rig import Gate, Handler, Upstream, answering, asked, at_rest, hang_up, live
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

SETTINGS = {"eject_after": 3, "eject_time": "1h", "max_eject_time": "1h"}


def settings(**more: Any) -> dict[str, Any]:
    return {**SETTINGS, **more}


def one(session: Session, upstream: Upstream) -> LiveUpstream:
    return next(each for each in live(session) if each.member == upstream.member)


@pytest.mark.parametrize(
    ("handle", "reason"), [(answering(503), "503"), (answering(502), "502"), (hang_up, "reset")]
)
@pytest.mark.parametrize("policy", ["consistent_hash", "round_robin"])
async def test_an_upstream_that_fails_its_calls_gets_no_more_of_them(
    upstreams: Upstreams, policy: str, handle: Handler, reason: str
) -> None:
    bad, *good = [await upstreams(handle), await upstreams(), await upstreams()]
    async with Session(
        upstreams=[each.member for each in (bad, *good)], settings=settings(policy=policy)
    ) as session:
        assert await asked(session, [f"/{number}" for number in range(60)]) == {200: 60}
        assert len(bad.seen) == 3
        assert sum(len(each.seen) for each in good) == 60
        assert dict(session.metrics.health.ejections) == {(bad.member, reason): 1}


async def test_a_connection_that_is_refused_is_tried_no_more(upstreams: Upstreams) -> None:
    gone, good = await upstreams(), await upstreams()
    await gone.stop()
    async with Session(upstreams=[gone.member, good.member], settings=settings()) as session:
        assert await asked(session, ["/x"] * 20) == {200: 20}
        assert dict(session.metrics.ring.errors) == {"connect": 3}
        assert not one(session, gone).available


async def test_it_comes_back_when_its_time_is_over_and_one_answer_clears_it(upstreams: Upstreams) -> None:
    bad, good = await upstreams(answering(503)), await upstreams()
    async with Session(
        upstreams=[bad.member, good.member], settings=settings(eject_time="50ms", max_eject_time="50ms")
    ) as session:
        upstream = one(session, bad)
        await asked(session, ["/x"] * 6)
        assert not upstream.available
        bad.handle = good.handle
        await eventually(lambda: upstream.available)
        assert upstream.on_probation  # one more, and it is out again
        seen = len(bad.seen)
        await asked(session, ["/x"] * 4)
        assert len(bad.seen) > seen
        assert upstream.failures == 0
        await eventually(lambda: not upstream.on_probation)
        seen = len(bad.seen)
        await asked(session, ["/x"] * 4)
        assert len(bad.seen) == seen + 2


@pytest.mark.parametrize("handle", [answering(501), answering(404)])
async def test_answers_that_are_not_of_a_proxy_are_not_held_against_anybody(
    upstreams: Upstreams, handle: Handler
) -> None:
    two = [await upstreams(handle) for _ in range(2)]
    async with Session(upstreams=[each.member for each in two], settings=settings(retries=0)) as session:
        await asked(session, ["/x"] * 20)
        assert all(each.available and not each.failures for each in live(session))


async def test_what_the_caller_gives_up_or_cannot_read_by_its_own_limit_is_no_failure(upstreams: Upstreams) -> None:
    gate = Gate()
    two = [await upstreams(gate) for _ in range(2)]
    async with Session(upstreams=[each.member for each in two], settings=settings()) as session:
        given_up = [asyncio.create_task(session.get("/x")) for _ in range(10)]
        await eventually(lambda: sum(each.inside for each in two) == 10)
        for task in given_up:
            task.cancel()
        late = (session.get("/x", timeout=aiohttp.ClientTimeout(total=0.01)) for _ in range(10))
        ended = await asyncio.gather(*given_up, *late, return_exceptions=True)
        assert {type(each) for each in ended} == {asyncio.CancelledError, TimeoutError}
        await at_rest(session)
        assert all(each.available and not each.failures for each in live(session))


@pytest.mark.parametrize(("count", "share", "ejected"), [(2, 0.5, 1), (3, 0.5, 1), (4, 0.5, 2), (4, 0.3, 1)])
async def test_no_more_are_left_out_than_max_ejected(
    upstreams: Upstreams, count: int, share: float, ejected: int
) -> None:
    bad = [await upstreams(answering(500)) for _ in range(max(1, count // 2))]
    good = [await upstreams() for _ in range(count - len(bad))]
    members = [each.member for each in (*bad, *good)]
    async with Session(upstreams=members, settings=settings(max_ejected=share, retries=0)) as session:
        await asked(session, ["/x"] * 60)
        assert sum(not each.available for each in live(session)) == ejected


@pytest.mark.parametrize("count", [1, 2, 4])
async def test_where_all_fail_alike_none_is_left_out(upstreams: Upstreams, count: int) -> None:
    all_bad = [await upstreams(answering(500)) for _ in range(count)]
    async with Session(upstreams=[each.member for each in all_bad], settings=settings()) as session:
        await asked(session, ["/x"] * 60)
        assert all(each.available for each in live(session))


async def test_one_that_says_it_is_full_is_left_alone_for_as_long_as_it_says(upstreams: Upstreams) -> None:
    async def full(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=429, headers={"Retry-After": "60"})

    busy, good = await upstreams(full), await upstreams()
    async with Session(
        upstreams=[busy.member, good.member], settings=settings(policy="round_robin", retries=0)
    ) as session:
        assert await asked(session, ["/x"] * 20) in ({200: 19, 429: 1}, {200: 20})
        await asked(session, ["/x"] * 20)
        assert len(busy.seen) == 1
        assert not session.metrics.health.ejections


async def test_where_eject_after_is_0_no_upstream_is_left_out(upstreams: Upstreams) -> None:
    bad, good = await upstreams(answering(503)), await upstreams()
    async with Session(upstreams=[bad.member, good.member], settings=settings(eject_after=0)) as session:
        await asked(session, ["/x"] * 20)
        assert len(bad.seen) == 10


async def test_ejections_and_panic_stand_among_the_metrics_of_the_session(upstreams: Upstreams) -> None:
    bad, good = await upstreams(answering(503)), await upstreams()
    registry = CollectorRegistry()
    panics = settings(panic_threshold=1)
    async with Session(upstreams=[bad.member, good.member], settings=panics) as session:
        registry.register(OutboundCollector(session.metrics))
        await asked(session, ["/x"] * 10)
        lines = generate_latest(registry).decode().splitlines()
        for line in (
            f'slb_upstream_ejections_total{{reason="503",upstream="{bad.member}"}} 1.0',
            f'slb_upstream_up{{upstream="{bad.member}"}} 0.0',
            'slb_panic{route="/"} 1.0',
            'slb_panics_total{route="/"} 1.0',
        ):
            assert line in lines
        session.set_upstreams([good.member])
        await eventually(lambda: 'slb_panic{route="/"} 0.0' in generate_latest(registry).decode())
        assert bad.member not in generate_latest(registry).decode()


async def test_the_settings_of_a_route_in_redis_hold(valkey: Valkey, upstreams: Upstreams) -> None:
    bad, good = await upstreams(answering(503)), await upstreams()
    valkey.admin.hset("slb:route:/", mapping={"eject_after": "2", "eject_time": "1h", "connect_timeout": "30s"})
    valkey.admin.sadd("slb_", bad.member, good.member)
    async with Session(redis_url=valkey.url) as session:
        assert await asked(session, ["/x"] * 20) == {200: 20}
    assert len(bad.seen) == 2


async def test_a_500_is_a_failure_as_any_other(upstreams: Upstreams) -> None:
    bad, good = await upstreams(answering(500)), await upstreams()
    async with Session(upstreams=[bad.member, good.member], settings=settings(retries=0)) as session:
        assert await asked(session, ["/x"] * 20) == {200: 17, 500: 3}
        assert dict(session.metrics.health.ejections) == {(bad.member, "500"): 1}


async def test_an_upstream_whose_bodies_break_off_is_left_out_too(upstreams: Upstreams) -> None:
    async def broken_off(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"x")
        await asyncio.sleep(0.01)
        assert request.transport is not None
        request.transport.abort()
        return response

    bad, good = await upstreams(broken_off), await upstreams()
    async with Session(upstreams=[bad.member, good.member], settings=settings(policy="round_robin")) as session:
        for _ in range(20):
            with suppress(aiohttp.ClientError):
                await asked(session, ["/x"])
        assert len(bad.seen) == 3
        assert dict(session.metrics.health.ejections) == {(bad.member, "body"): 1}

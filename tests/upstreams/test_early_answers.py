"""Answers that come before the body has been read: none is lost, and no later call either."""

import pytest

from slb.upstreams.pool import Pool
from tests.proxy.harness import MakeOrigin, Request
from tests.proxy.refuser import MakeRefuser
from tests.support.certificates import Authority
from tests.support.waiting import eventually
from tests.upstreams.rig import Caller, MakeCaller

TIMES = 40
MIB = 1 << 20


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def is_tls(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
async def trusting(callers: MakeCaller, authority: Authority) -> Caller:
    return await callers(upstream_ca=authority.file)


async def answers(caller: Caller, pool: Pool, size: int) -> set[tuple[int, bytes]]:
    """Those to calls with a body of so many bytes, each begun as soon as the one before has its answer."""
    replies = [await caller.call(pool, b"POST", body=bytes(size)) for _ in range(TIMES)]
    return {(reply.status, reply.body) for reply in replies}


@pytest.mark.parametrize("size", [MIB // 4, MIB, 8 * MIB])
async def test_an_upstream_that_answers_to_the_head_and_closes_costs_no_call_its_answer(
    trusting: Caller, refusers: MakeRefuser, authority: Authority, is_tls: bool, size: int
) -> None:
    """It does not announce that it closes: a connection on which it has not read all is not used again."""
    pool = trusting.pool(refusers(tls=authority.server("127.0.0.1") if is_tls else None).member)
    assert await answers(trusting, pool, size) == {(413, b"too much")}


async def test_a_connection_on_which_a_long_body_was_read_is_kept(
    trusting: Caller, origins: MakeOrigin, authority: Authority, is_tls: bool
) -> None:
    async def answer(request: Request) -> None:
        await request.body()
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    origin = await origins(answer, tls=authority.server("127.0.0.1") if is_tls else None)
    pool = trusting.pool(origin.member)
    assert await answers(trusting, pool, MIB) == {(200, b"ok")}
    assert origin.connections == 1


async def test_a_connection_with_a_body_still_to_be_written_is_closed_at_once(
    trusting: Caller, origins: MakeOrigin, authority: Authority, is_tls: bool
) -> None:
    async def answer(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await request.wire.ended()

    origin = await origins(answer, tls=authority.server("127.0.0.1") if is_tls else None)
    pool = trusting.pool(origin.member)
    assert (await trusting.call(pool, b"POST", body=bytes(8 * MIB))).status == 200
    assert pool.idle == []
    await eventually(lambda: pool.open == 0)

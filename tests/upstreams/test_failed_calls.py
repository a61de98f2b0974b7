"""Calls that get no whole reply: by which name they fail, and that nothing of them is left."""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Callable

import pytest

from slb.errors import (
    REPLY_TOO_LARGE,
    UPSTREAM_CONNECT,
    UPSTREAM_PROTOCOL,
    UPSTREAM_RESET,
    UPSTREAM_TIMEOUT,
    Reason,
)
from slb.upstreams.call import CallFailed
from slb.upstreams.pool import Pool
from tests.proxy.harness import MakeOrigin, Origin, Request, port_that_never_accepts, sends, wait_for_end
from tests.support.certificates import Authority
from tests.support.waiting import eventually, soon
from tests.upstreams.rig import Caller, MakeCaller, head_and_no_end


async def failure_of(caller: Caller, pool: Pool, **options: object) -> CallFailed:
    """That of a call which does not succeed; and its connection has ended."""
    with pytest.raises(CallFailed) as caught:
        await soon(caller.call(pool, **options))  # type: ignore[arg-type]
    assert pool.idle == []
    await eventually(lambda: pool.open == 0)
    return caught.value


@pytest.mark.parametrize(
    ("reply", "limit"),
    [
        pytest.param(b"Content-Length: 6\r\n\r\nabcdef", 5, id="at-once"),
        pytest.param(b"Content-Length: 600\r\n\r\nabc", 599, id="announced"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n", 5, id="chunked"),
        pytest.param(b"\r\nabcdef", 5, id="until-close"),
    ],
)
async def test_a_reply_that_is_too_large_is_not_read_to_its_end(
    caller: Caller, origins: MakeOrigin, reply: bytes, limit: int
) -> None:
    async def answer(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\n" + reply)
        await request.wire.ended()

    origin = await origins(answer)
    failure = await failure_of(caller, caller.pool(origin.member), most_bytes=limit)
    assert (failure.reason, failure.partial) == (REPLY_TOO_LARGE, True)
    assert origin.member in failure.detail
    await eventually(lambda: origin.open == 0)


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(b"garbage\r\n\r\n", id="not-http"),
        pytest.param(b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", id="bare-lf"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na", id="two-lengths"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", id="no-chunk"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, id="endless-head"),
        pytest.param(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", id="switches"),
        pytest.param(b"HTTP/1.1 102 Processing\r\n\r\n" * 200, id="never-final"),
    ],
)
async def test_what_is_no_reply_ends_the_call(caller: Caller, origins: MakeOrigin, reply: bytes) -> None:
    origin = await origins(sends(reply))
    failure = await failure_of(caller, caller.pool(origin.member))
    assert (failure.reason, failure.sent, failure.partial) == (UPSTREAM_PROTOCOL, True, True)


@pytest.mark.parametrize("sent", [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", b"HTTP/1.1 200 OK\r\n"])
async def test_a_reply_that_breaks_off_is_none(caller: Caller, origins: MakeOrigin, sent: bytes) -> None:
    async def answer(request: Request) -> None:
        await request.wire.send(sent)
        raise ConnectionResetError

    origin = await origins(answer)
    failure = await failure_of(caller, caller.pool(origin.member), idempotent=True)
    assert (failure.reason, failure.partial) == (UPSTREAM_RESET, True)
    assert len(origin.requests) == 1


async def test_what_fails_a_call_ends_its_connection_at_once(caller: Caller, origin: Origin) -> None:
    pool = caller.pool(origin.member)
    await caller.call(pool)
    (kept,) = pool.idle
    origin.handle = wait_for_end
    calling = asyncio.create_task(caller.call(pool))
    await eventually(lambda: len(origin.requests) == 2)
    kept.data_received(b"garbage\r\n\r\n")
    assert kept.transport.is_closing()
    with pytest.raises(CallFailed):
        await soon(calling)


# -- no connection


async def test_where_nothing_listens_the_call_fails_with_that_reason(caller: Caller) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        failure = await failure_of(caller, caller.pool(f"127.0.0.1:{bound.getsockname()[1]}"))
    assert (failure.reason, failure.refused, failure.sent) == (UPSTREAM_CONNECT, True, False)


async def test_an_address_that_is_no_upstreams_is_not_connected_to(caller: Caller, origin: Origin) -> None:
    pool = caller.pool(origin.member)
    host, _, port = origin.member.partition(":")
    caller.own.append((host, int(port)))
    failure = await failure_of(caller, pool)
    assert (failure.reason, failure.refused, origin.connections) == (UPSTREAM_CONNECT, False, 0)
    assert "slb's own listener" in failure.detail


async def test_an_upstream_with_another_ones_certificate_gets_no_request(
    callers: MakeCaller, origins: MakeOrigin, authority: Authority
) -> None:
    caller = await callers(upstream_ca=authority.file)
    origin = await origins(tls=authority.server("other.test"))
    failure = await failure_of(caller, caller.pool(origin.member))
    assert (failure.reason, origin.requests) == (UPSTREAM_CONNECT, [])
    assert "certificate verify failed" in failure.detail


@pytest.mark.parametrize(
    ("timeout", "connect_timeout", "reason"), [(60.0, 0.1, UPSTREAM_CONNECT), (0.1, 3600.0, UPSTREAM_TIMEOUT)]
)
async def test_a_connection_has_its_own_time_and_no_more_than_the_call(
    caller: Caller, timeout: float, connect_timeout: float, reason: Reason
) -> None:
    listener, fillers, member = port_that_never_accepts()
    with contextlib.ExitStack() as closing:
        for each in (listener, *fillers):
            closing.enter_context(each)
        pool = caller.pool(member)
        failure = await failure_of(caller, pool, timeout=timeout, connect_timeout=connect_timeout)
    assert (failure.reason, failure.sent) == (reason, False)


# -- the deadline


async def interims(request: Request) -> None:
    """A sign of life now and then."""
    for _ in itertools.count():
        await request.wire.send(b"HTTP/1.1 102 Processing\r\n\r\n")
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("handle", [wait_for_end, head_and_no_end, interims])
async def test_all_of_the_reply_has_to_come_in_time(
    caller: Caller, origins: MakeOrigin, handle: Callable[[Request], object]
) -> None:
    origin = await origins(handle)
    failure = await failure_of(caller, caller.pool(origin.member), timeout=0.3, most_bytes=1 << 20)
    assert failure.reason is UPSTREAM_TIMEOUT
    assert failure.partial is (handle is not wait_for_end)
    await eventually(lambda: origin.open == 0)


async def test_a_connection_that_was_called_in_time_keeps_nothing_of_the_deadline(
    caller: Caller, origin: Origin
) -> None:
    pool = caller.pool(origin.member)
    await caller.call(pool, timeout=0.3)
    (kept,) = pool.idle
    assert kept.due > caller.wheel.now() + 1

"""Calls that are cancelled: wherever they are, their connection is closed, and its place given back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from slb.upstreams.pool import Pool
from tests.proxy.harness import MakeOrigin, Origin, Request, Wire, port_that_never_accepts, wait_for_end
from tests.support.certificates import Authority
from tests.support.waiting import eventually, soon
from tests.upstreams.rig import Caller, MakeCaller, head_and_no_end


class Mute:
    """An upstream of https that sends nothing."""

    def __init__(self) -> None:
        self.come: list[Wire] = []

    async def start(self) -> "Mute":
        self._server = await asyncio.start_server(lambda *ends: self.come.append(Wire(*ends)), "127.0.0.1", 0)
        self._address = self._server.sockets[0].getsockname()
        self.member = f"https://127.0.0.1:{self._address[1]}"
        return self

    async def all_ended(self) -> None:
        """Every connection that was made before has ended."""
        _, writer = await asyncio.open_connection(*self._address)
        own = writer.get_extra_info("sockname")
        await eventually(lambda: any(wire.writer.get_extra_info("peername") == own for wire in self.come))
        writer.close()
        for wire in self.come:
            with contextlib.suppress(ConnectionError):
                await soon(wire.reader.read())

    def stop(self) -> None:
        self._server.close()
        for wire in self.come:
            wire.reset()


@pytest_asyncio.fixture
async def mute() -> AsyncIterator[Mute]:
    made = await Mute().start()
    yield made
    made.stop()


async def cancelled(calling: "asyncio.Task[object]", pool: Pool) -> None:
    """Cancel a call that is under way; all is given back."""
    assert not calling.done()
    assert pool.open == 1
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(calling)
    assert pool.idle == []
    await eventually(lambda: pool.open == 0)


async def test_a_call_can_be_cancelled_while_its_name_is_looked_up(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def look_up(pool: Pool, host: str, port: int) -> list[str]:
        asked.set()
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(Pool, "_look_up", look_up)
    pool = caller.pool("upstream.test:80")
    calling = asyncio.create_task(caller.call(pool))
    await soon(asked.wait())
    await cancelled(calling, pool)
    pool._lookups.cancel()


async def test_a_call_can_be_cancelled_while_it_connects(caller: Caller) -> None:
    listener, fillers, member = port_that_never_accepts()
    with contextlib.ExitStack() as closing:
        for each in (listener, *fillers):
            closing.enter_context(each)
        pool = caller.pool(member)
        calling = asyncio.create_task(caller.call(pool))
        await eventually(lambda: pool.open == 1)
        await cancelled(calling, pool)


@pytest.mark.parametrize("turns", range(12))
async def test_a_call_can_be_cancelled_in_each_turn_of_the_loop_before_it_shakes_hands(
    callers: MakeCaller, authority: Authority, mute: Mute, turns: int
) -> None:
    caller = await callers(upstream_ca=authority.file)
    pool = caller.pool(mute.member)
    calling = asyncio.create_task(caller.call(pool))
    for _ in range(turns + 1):
        await asyncio.sleep(0)
    await cancelled(calling, pool)
    await mute.all_ended()


async def test_a_call_can_be_cancelled_while_it_shakes_hands(
    callers: MakeCaller, authority: Authority, mute: Mute
) -> None:
    caller = await callers(upstream_ca=authority.file)
    pool = caller.pool(mute.member)
    calling = asyncio.create_task(caller.call(pool))
    await eventually(lambda: bool(mute.come))
    assert await soon(mute.come[0].reader.read(1)) == b"\x16"  # its hello
    await cancelled(calling, pool)
    await mute.all_ended()


async def no_body_read(request: Request) -> None:
    """Takes nothing of the body."""
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("handle", "body"),
    [
        pytest.param(wait_for_end, b"", id="waits-for-the-reply"),
        pytest.param(no_body_read, b"x" * (8 << 20), id="sends-the-body"),
        pytest.param(head_and_no_end, b"", id="reads-the-reply"),
    ],
)
async def test_a_call_can_be_cancelled_once_it_is_sent(
    caller: Caller, origins: MakeOrigin, handle: Callable[[Request], object], body: bytes
) -> None:
    origin = await origins(handle)
    pool = caller.pool(origin.member)
    calling = asyncio.create_task(caller.call(pool, b"POST", body=body))
    await eventually(lambda: bool(origin.requests))
    await cancelled(calling, pool)
    await eventually(lambda: origin.open == 0 or handle is no_body_read)


async def test_a_call_can_be_cancelled_in_the_turn_in_which_it_is_written(caller: Caller, origin: Origin) -> None:
    pool = caller.pool(origin.member)
    await caller.call(pool)
    calling = asyncio.create_task(caller.call(pool))
    asyncio.get_running_loop().call_soon(calling.cancel)  # behind its first step, before the outbox
    with pytest.raises(asyncio.CancelledError):
        await soon(calling)
    assert pool.idle == []
    await eventually(lambda: pool.open == origin.open == 0)


async def test_a_connection_whose_reply_ends_as_the_call_is_cancelled_is_kept(
    caller: Caller, origin: Origin
) -> None:
    pool = caller.pool(origin.member)
    await caller.call(pool)
    (kept,) = pool.idle
    origin.handle = wait_for_end
    calling = asyncio.create_task(caller.call(pool))
    await eventually(lambda: len(origin.requests) == 2)
    calling.cancel()
    kept.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    with pytest.raises(asyncio.CancelledError):
        await soon(calling)
    assert pool.idle == [kept]

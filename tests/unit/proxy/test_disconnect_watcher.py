"""Clients that leave while their connection is not read from: what the kernel shows of them."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack

import pytest
import pytest_asyncio

from slb.proxy.disconnect_watcher import GONE, RESET, DisconnectWatcher, acknowledged, has_left, reset_at_end
from slb.upstreams.deadlines import Wheel
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux shows the end of connections that are not read"
)
LONG = 10.0


class Clock:
    """Seconds, as the test sets them."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Ends:
    """A client's socket, and the transport of its connection here, which is not read from."""

    def __init__(self, client: socket.socket, transport: asyncio.Transport) -> None:
        self.client = client
        self.transport = transport

    def reset(self) -> None:
        """End the connection as a crash does."""
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.client.close()


@pytest_asyncio.fixture
async def ends() -> AsyncIterator[Ends]:
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        client = stack.enter_context(socket.create_connection(listener.getsockname()))
        accepted, _ = listener.accept()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, accepted)
        transport.pause_reading()
        yield Ends(client, transport)
        transport.abort()


async def test_a_client_that_ends_its_side_is_gone_and_has_not_reset_the_connection(ends: Ends) -> None:
    assert not has_left(ends.transport, GONE)
    ends.client.shutdown(socket.SHUT_WR)
    await eventually(lambda: has_left(ends.transport, GONE))
    assert not has_left(ends.transport, RESET)


async def test_a_connection_that_is_reset_is_gone_by_either_measure(ends: Ends) -> None:
    ends.reset()
    await eventually(lambda: has_left(ends.transport, RESET))
    assert has_left(ends.transport, GONE)


async def test_one_that_is_being_closed_here_has_not_left(ends: Ends) -> None:
    ends.client.shutdown(socket.SHUT_WR)
    await eventually(lambda: has_left(ends.transport, GONE))
    ends.transport.close()
    assert not has_left(ends.transport, GONE)


async def test_a_watched_client_that_ends_its_side_is_cut_off_and_one_that_is_forgotten_is_not(ends: Ends) -> None:
    clock = Clock()
    wheel = Wheel(clock)
    watcher = DisconnectWatcher(wheel)
    watcher.watch(ends.transport)
    for _ in range(2):  # it is looked at again and again
        clock.now += LONG
        wheel.tick()
    assert not ends.transport.is_closing()
    ends.client.shutdown(socket.SHUT_WR)
    await eventually(lambda: has_left(ends.transport, GONE))
    watcher.forget(ends.transport)
    clock.now += LONG
    wheel.tick()
    assert not ends.transport.is_closing()
    watcher.watch(ends.transport)
    clock.now += LONG
    wheel.tick()
    assert ends.transport.is_closing()


async def test_what_the_other_side_has_confirmed_is_counted(ends: Ends) -> None:
    before = acknowledged(ends.transport)
    ends.transport.write(b"1234567")
    await eventually(lambda: acknowledged(ends.transport) == before + 7)


async def test_a_connection_that_is_to_be_reset_at_its_end_is(ends: Ends) -> None:
    reset_at_end(ends.transport)
    ends.transport.close()
    with pytest.raises(ConnectionResetError):
        await asyncio.to_thread(ends.client.recv, 1)

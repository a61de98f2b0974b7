"""Connections as they come: many at once, some that leave before they are looked at, some for which there is no
descriptor."""

import asyncio
import errno
import os
import socket
from typing import Any

import pytest
from structlog.testing import capture_logs

from slb.listening import queued
from slb.observe.metrics import Metrics
from slb.proxy import entrance
from tests.support.waiting import eventually, patience


class Greeter(asyncio.Protocol):
    """Sends a hello and closes. `turns`: how many connections began in each turn of the loop that had any."""

    turns: dict[int, int]
    turn = 0

    def connection_made(self, transport: Any) -> None:
        self.turns[Greeter.turn] = self.turns.get(Greeter.turn, 0) + 1
        transport.write(b"hello")
        transport.close()


class Exhausted(socket.socket):
    """Has no descriptor left for the first `failures` connections."""

    failures = 2

    def accept(self) -> tuple[socket.socket, Any]:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Greeter, "turns", {}, raising=False)


def a_queue_of(count: int, listener: socket.socket) -> list[socket.socket]:
    """Connections that are not accepted yet."""
    listener.bind(("127.0.0.1", 0))
    listener.listen(count)
    clients = [socket.create_connection(listener.getsockname()) for _ in range(count)]
    assert queued(listener) == count
    return clients


async def count_turns() -> None:
    while True:
        Greeter.turn += 1
        await asyncio.sleep(0)


async def test_a_storm_of_connects_is_taken_in_pieces_and_all_of_it_is_served() -> None:
    doors = entrance.Entrance(Greeter, None, None, 0, 0, 0, Metrics())
    listener = socket.socket()
    clients = a_queue_of(200, listener)
    turns = asyncio.create_task(count_turns())
    doors.open(listener, 200)
    await eventually(lambda: sum(Greeter.turns.values()) == 200)
    turns.cancel()
    doors.close()
    assert 1 < max(Greeter.turns.values()) <= entrance._AT_ONCE
    for client in clients:
        client.settimeout(patience(10))
        assert client.recv(16) == b"hello"
        client.close()


async def test_a_client_that_left_before_it_is_looked_at_costs_no_connection() -> None:
    doors = entrance.Entrance(Greeter, None, None, 0, 0, 0, Metrics())
    listener = socket.socket()
    *gone, last = a_queue_of(50, listener)
    for client in gone:
        client.close()
    doors.open(listener, 50)
    last.setblocking(False)
    assert await asyncio.get_running_loop().sock_recv(last, 16) == b"hello"
    assert sum(Greeter.turns.values()) == 1
    last.close()
    doors.close()


async def test_a_listener_that_cannot_accept_logs_that_and_goes_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrance, "_PAUSE", 0.01)
    metrics = Metrics()
    doors = entrance.Entrance(Greeter, None, None, 0, 0, 0, metrics, "api")
    listener = Exhausted()
    (client,) = a_queue_of(1, listener)
    client.setblocking(False)
    with capture_logs() as lines:
        doors.open(listener, 10)
        assert await asyncio.get_running_loop().sock_recv(client, 16) == b"hello"
    client.close()
    doors.close()
    logged = [(line["event"], line["listener"], line["error"]) for line in lines]
    assert logged == [("accept_failed", "api", "Too many open files")] * 2
    assert metrics.process.accept_failures == {"api": 2}

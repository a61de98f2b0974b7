"""What is done to Redis in a long run does what it is called."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ReadOnlyError

from tests.chaos.history import Span
from tests.chaos.refusing import REPLIES, Refusing
from tests.chaos.server import Server
from tests.chaos.watchdog import NOTED_SECONDS, PATIENCE_SECONDS, Watchdog
from tests.support.redis_server import BINARY
from tests.support.waiting import within

PROGRAMS = [
    pytest.param(None, id="embedded Valkey"),
    pytest.param(Path(BINARY or ""), id="redis", marks=pytest.mark.skipif(BINARY is None, reason="no Redis here")),
]


@pytest.fixture(params=PROGRAMS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    server = Server(request.param)
    yield server
    server.close()


def client_of(server: Server) -> Any:
    return Redis(unix_socket_path=str(server.address), decode_responses=True, protocol=2)


def test_a_failover_keeps_all_and_the_one_before_refuses_writes(server: Server) -> None:
    with client_of(server) as client:
        client.set("a", "1")
        server.replicate()
        client.set("b", "2")
        server.hand_over()
        with pytest.raises(ReadOnlyError):
            client.set("c", "3")
        server.fail_over()
        assert client.get("b") == "2", "it still serves clients that are connected"
        with client_of(server) as new:
            assert (new.get("a"), new.get("b"), new.set("c", "3")) == ("1", "2", True)
        server.retire()
        assert server.admin.get("c") == "3"


def test_a_replica_that_lags_lacks_the_last_changes_and_comes_back_from_its_own_file(server: Server) -> None:
    server.admin.set("a", "1")
    server.replicate()
    server.stop_replicating()
    server.admin.set("b", "2")
    server.fail_over()
    server.retire()
    assert server.admin.mget("a", "b") == ["1", None]
    server.kill()
    server.start()
    assert server.admin.mget("a", "b") == ["1", None]


def test_a_file_that_is_cut_lacks_what_stood_behind(server: Server) -> None:
    server.admin.set("a", "1")
    size = server.written()
    server.admin.set("b", "2")
    server.kill()
    server.cut_file(size + 1)
    server.start()
    assert server.admin.mget("a", "b") == ["1", None]


def test_a_file_that_is_cut_within_a_transaction_and_rewritten_keeps_what_comes_then(server: Server) -> None:
    size = server.written()
    server.admin.eval("redis.call('SADD', 'a', '1') redis.call('SADD', 'b', '1')", 0)
    cut = server.written() - 5
    assert cut > size
    server.kill()
    server.cut_file(cut)
    server.start()
    server.rewrite_file()
    server.admin.set("c", "1")
    server.kill()
    server.start()
    assert server.admin.exists("a", "b") == 0
    assert server.admin.get("c") == "1"


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: reply.partition(" ")[0])
async def test_a_refusal_comes_as_from_a_server_and_in_its_order(server: Server, reply: str) -> None:
    get = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n"
    ping = b"*1\r\n$4\r\nPING\r\n"
    async with Refusing(server.place / "relay.sock", server.socket) as relay:
        reader, writer = await asyncio.open_unix_connection(relay.path)
        writer.write(get)
        assert await reader.readuntil(b"\r\n") == b"$-1\r\n"
        relay.reply = reply
        writer.write(ping + get + ping)
        replies = [(await reader.readuntil(b"\r\n")).decode().strip() for _ in range(3)]
        assert (replies[0], replies[2]) == ("+PONG", "+PONG")
        assert replies[1].startswith(f"-{reply}")
        relay.reply = None
        writer.write(get)
        assert await reader.readuntil(b"\r\n") == b"$-1\r\n"
    assert await reader.read() == b"", "its connections are cut in the end"
    writer.close()
    assert relay.refused == 1


async def test_a_silence_is_noted_and_how_long_it_was(server: Server) -> None:
    watchdog = Watchdog()
    async with watchdog.watching(server.address), within(20):
        while not watchdog.silences:  # its process may not have begun
            server.freeze()
            await asyncio.sleep(2 * NOTED_SECONDS)
            server.thaw()
            await asyncio.sleep(0.1)
    assert watchdog.longest(0.0) >= NOTED_SECONDS
    assert watchdog.longest(watchdog.silences[-1].end + 1) == 0


def test_only_new_silences_beyond_patience_excuse_and_once() -> None:
    watchdog = Watchdog()
    long = Span(10.0, 10.0 + PATIENCE_SECONDS)
    watchdog.silences += [Span(0.0, NOTED_SECONDS), long]
    assert watchdog.beyond_patience() == [long]
    assert watchdog.beyond_patience() == []

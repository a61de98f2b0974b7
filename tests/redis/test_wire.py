"""slb's own connection to Redis, on both event loops: logging in, replies in order, and what ends it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop
from redis.exceptions import AuthenticationError, InvalidResponse, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeout

from slb.control import resp
from slb.control import wire as wire_module
from slb.control.connection import Connection, is_unmade, refusal_in
from slb.control.resp import pack
from slb.observe.metrics import Metrics
from tests.support.certificates import Authority
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

pytestmark = pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy. fixture is deprecated")
"""What replaces it holds for all tests of a run."""


@pytest.fixture(params=[asyncio.DefaultEventLoopPolicy, uvloop.EventLoopPolicy], ids=["asyncio", "uvloop"])
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    """Production runs on uvloop."""
    policy: asyncio.AbstractEventLoopPolicy = request.param()
    return policy


class Caller:
    """A wire whose replies can be awaited; `pushed` is what came unasked."""

    def __init__(self, connection: Connection, pushes: bool = False) -> None:
        self.pushed: list[Any] = []
        self.wire = connection.wire("", self.pushed.append if pushes else None)

    def ask(self, *words: str | bytes | int) -> asyncio.Future[Any]:
        """The reply, or the error in its place."""
        answer = asyncio.get_running_loop().create_future()
        self.wire.send(pack(*words), answer.set_result)
        return answer

    async def end(self) -> RedisError:
        """Why it was lost."""
        await eventually(lambda: self.wire.lost is not None, what="the connection's end")
        assert self.wire.lost is not None
        return self.wire.lost


Opener = Callable[..., Caller]


@pytest.fixture
async def opened() -> AsyncIterator[Opener]:
    """Makes callers for a URL, and closes them."""
    async with AsyncExitStack() as stack:

        def open_one(url: str, pushes: bool = False) -> Caller:
            connection = Connection(url, Metrics())
            stack.push_async_callback(connection.aclose)
            caller = Caller(connection, pushes)
            stack.callback(caller.wire.close)
            return caller

        yield open_one


class Server:
    """A listener that shows what it is sent, and sends what the test gives it."""

    def __init__(self) -> None:
        self.sent = b""
        self.ended = asyncio.Event()
        self._writer: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer.set_result(writer)
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                self.sent += data
        self.ended.set()

    async def send(self, data: bytes) -> None:
        """Send it."""
        (await self._writer).write(data)


@pytest.fixture
async def listens() -> AsyncIterator[Callable[..., Any]]:
    """Serves by a callback, with TLS where there is a context; gives the port."""
    async with AsyncExitStack() as stack:

        async def listen(serve: Any, context: ssl.SSLContext | None = None) -> int:
            serving: set[asyncio.Task[Any]] = set()

            async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                serving.add(cast("asyncio.Task[Any]", asyncio.current_task()))
                try:
                    await serve(reader, writer)
                finally:
                    writer.transport.abort()

            async def end() -> None:
                server.close()
                for task in serving:
                    task.cancel()
                await asyncio.gather(*serving, return_exceptions=True)

            server = await asyncio.start_server(accepted, "127.0.0.1", 0, ssl=context)
            stack.push_async_callback(end)
            port: int = server.sockets[0].getsockname()[1]
            return port

        yield listen


def to(valkey: Valkey) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]:
    """Passes bytes on to it: it listens on a unix socket."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, there = await asyncio.open_unix_connection(valkey.process.socket)
        copies = [asyncio.create_task(copy(reader, there)), asyncio.create_task(copy(back, writer))]
        try:
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in copies:
                each.cancel()
            there.transport.abort()
            await asyncio.gather(*copies, return_exceptions=True)

    return serve


# -- logging in


async def test_it_logs_in_by_the_url_and_selects_its_database(valkey: Valkey, opened: Opener) -> None:
    valkey.admin.execute_command("ACL", "SETUSER", "me", "on", ">pass word", "~*", "+@all")  # type: ignore[no-untyped-call]
    caller = opened(f"{valkey.url}?username=me&password=pass%20word&db=3")
    assert await caller.ask("SET", "key", "value") == "OK"
    assert await caller.ask("ACL", "WHOAMI") == "me"
    assert await caller.ask("CLIENT", "GETNAME") == "slb"
    assert valkey.admin.get("key") is None


async def test_a_login_that_fails_ends_all_that_is_under_way(
    valkeys: Callable[..., Valkey], opened: Opener
) -> None:
    valkey = valkeys(requirepass="right")
    caller = opened(f"{valkey.url}?password=wrong")
    replies = [caller.ask("GET", "key"), caller.ask("GET", "key")]
    for reply in replies:
        error = await reply
        assert isinstance(error, AuthenticationError)
        assert "invalid username-password" in str(refusal_in(error))
    again = await caller.ask("GET", "key")
    assert isinstance(again, AuthenticationError)
    assert await opened(f"{valkey.url}?password=right").ask("GET", "key") is None


async def test_nothing_runs_in_another_database_where_its_own_is_not_there(valkey: Valkey, opened: Opener) -> None:
    caller = opened(f"{valkey.url}?db=99")
    error = await caller.ask("SET", "key", "value")
    assert isinstance(error, ResponseError)
    assert "DB index" in str(refusal_in(error))
    assert valkey.admin.get("key") is None


async def test_a_far_redis_is_asked_once(opened: Opener, listens: Callable[..., Any]) -> None:
    """It answers nothing before it has all."""
    server = Server()
    caller = opened(f"redis://me:pass@127.0.0.1:{await listens(server)}")
    reply = caller.ask("GET", "key")
    await eventually(lambda: server.sent.endswith(pack("GET", "key")), what="all of it")
    assert server.sent == pack("AUTH", "me", "pass") + pack("CLIENT", "SETNAME", "slb") + pack("GET", "key")
    await server.send(b"+OK\r\n+OK\r\n$5\r\nvalue\r\n")
    assert await reply == "value"


async def test_it_uses_tls_and_trusts_the_authority_in_the_url(
    valkey: Valkey, opened: Opener, listens: Callable[..., Any], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    port = await listens(to(valkey), authority.server("localhost"))
    caller = opened(f"rediss://localhost:{port}?ssl_ca_certs={authority.file}")
    assert await caller.ask("SET", "key", "value") == "OK"
    assert valkey.admin.get("key") == "value"
    error = await opened(f"rediss://localhost:{port}").ask("GET", "key")
    assert "certificate" in str(refusal_in(error)).lower()


async def test_a_port_without_a_listener_made_no_connection(
    opened: Opener, unused_tcp_port: int, tmp_path: Path
) -> None:
    for url in (f"redis://127.0.0.1:{unused_tcp_port}", f"unix://{tmp_path}/none.sock"):
        error = await opened(url).ask("GET", "key")
        assert isinstance(error, RedisConnectionError)
        assert is_unmade(error)
        assert refusal_in(error) is None


async def test_connecting_has_a_deadline(
    opened: Opener, listens: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a server that never ends the handshake."""
    monkeypatch.setattr("slb.control.pool.CONNECT_DEADLINE", 0.1)
    caller = opened(f"rediss://127.0.0.1:{await listens(Server())}")
    assert isinstance(await caller.ask("GET", "key"), RedisTimeout)


# -- replies


async def test_replies_come_in_order_and_errors_are_redis_pys(valkey: Valkey, opened: Opener) -> None:
    caller = opened(valkey.url)
    found: Any = await asyncio.gather(
        caller.ask("SET", "key", b"\xff\x00"),
        caller.ask("GET", "key"),
        caller.ask("LPUSH", "key", "x"),
        caller.ask("EVALSHA", "0" * 40, 0),
        caller.ask("SET", "key", "\udcff\x00é"),
        caller.ask("STRLEN", "key"),
    )
    replies = list(found)
    assert replies[:2] == ["OK", "\udcff\x00"]
    assert [type(each).__name__ for each in replies[2:4]] == ["ResponseError", "NoScriptError"]
    assert replies[4:] == ["OK", 4]


async def test_many_replies_in_one_piece_leave_the_event_loop_its_turns(
    opened: Opener, listens: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire_module, "SLICE", 0.0)
    server = Server()
    caller = opened(f"redis://127.0.0.1:{await listens(server)}")
    loop, turn, count = asyncio.get_running_loop(), 0, 50
    turns: list[int] = []

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        if len(turns) < count:
            loop.call_soon(next_turn)

    for _ in range(count):
        caller.wire.send(pack("PING"), lambda _: turns.append(turn))
    next_turn()
    await server.send(b"+OK\r\n" * (count + 1))
    await eventually(lambda: len(turns) == count, what="all replies")
    assert len(set(turns)) == count


async def test_what_comes_unasked_is_pushed_in_order(valkey: Valkey, opened: Opener) -> None:
    caller = opened(valkey.url, pushes=True)
    caller.wire.send(pack("SUBSCRIBE", "one"))
    await eventually(lambda: caller.pushed == [["subscribe", "one", 1]], what="subscribed")
    for text in ("a", "b"):
        valkey.admin.publish("one", text)
    await eventually(lambda: len(caller.pushed) == 3, what="both")
    assert caller.pushed[1:] == [["message", "one", "a"], ["message", "one", "b"]]
    valkey.admin.client_kill_filter(_type="pubsub")
    await eventually(lambda: len(caller.pushed) == 4, what="the end")
    assert isinstance(caller.pushed[3], RedisConnectionError)


# -- what ends it


async def test_a_connection_that_is_cut_ends_all_that_is_under_way(valkey: Valkey, opened: Opener) -> None:
    caller = opened(valkey.url)
    replies = [caller.ask("BLPOP", "none", 0), caller.ask("GET", "key")]
    await eventually(lambda: valkey.admin.info("clients")["blocked_clients"] == 1, what="under way")
    valkey.admin.client_kill_filter(_type="normal", skipme=True)
    errors = [await reply for reply in replies]
    assert [type(error) for error in errors] == [RedisConnectionError] * 2
    assert errors[0] is not errors[1]
    assert refusal_in(errors[0]) is None


async def test_what_is_closed_while_it_connects_stops_connecting(
    opened: Opener, listens: Callable[..., Any]
) -> None:
    """To a server that never ends the handshake."""
    caller = opened(f"rediss://127.0.0.1:{await listens(Server())}")
    reply = caller.ask("GET", "key")
    await asyncio.sleep(0)
    caller.wire.close()
    assert isinstance(await reply, RedisConnectionError)
    await asyncio.wait([caller.wire._connecting])
    assert caller.wire._connecting.cancelled()


class Recorder(asyncio.Transport):
    """A transport that was made too late."""

    written, aborted = b"", False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def abort(self) -> None:
        self.aborted = True


async def test_nothing_is_sent_where_it_was_closed_before_the_connection_was_made(
    valkey: Valkey, opened: Opener
) -> None:
    caller, transport = opened(valkey.url), Recorder()
    reply = caller.ask("GET", "key")
    caller.wire.close()
    caller.wire.connection_made(transport)
    assert transport.aborted
    assert transport.written == b""
    assert isinstance(await reply, RedisConnectionError)


@pytest.mark.parametrize("sent", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"+OK\r\n+more than was asked\r\n"])
async def test_what_does_not_speak_the_protocol_is_refused_for_good(
    sent: bytes, opened: Opener, listens: Callable[..., Any]
) -> None:
    server = Server()
    caller = opened(f"redis://127.0.0.1:{await listens(server)}")
    await server.send(sent)
    error = await caller.end()
    assert isinstance(error, InvalidResponse)
    assert "does not speak" in str(refusal_in(error))
    await server.ended.wait()


async def test_a_reply_without_end_ends_the_connection(
    opened: Opener, listens: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resp, "LONGEST_REPLY", 1 << 20)
    server = Server()
    caller = opened(f"redis://127.0.0.1:{await listens(server)}")
    reply = caller.ask("GET", "key")
    await server.send(b"+OK\r\n$1000000000\r\n")
    while caller.wire.lost is None:
        await server.send(b"x" * 65536)
        await asyncio.sleep(0)
    assert "a reply of more than" in str(await reply)


async def test_replies_may_be_more_than_the_longest_together(
    valkey: Valkey, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resp, "LONGEST_REPLY", 1 << 20)
    valkey.admin.set("key", "x" * 500_000)
    caller = opened(valkey.url)
    replies = await asyncio.gather(*(caller.ask("GET", "key") for _ in range(20)))
    assert {len(reply) for reply in replies} == {500_000}


async def test_a_server_that_does_not_read_ends_the_connection(
    valkey: Valkey, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire_module, "MOST_UNSENT", 1 << 20)
    caller = opened(valkey.url)
    assert await caller.ask("PING") == "PONG"
    valkey.freeze()
    replies = []
    while caller.wire.lost is None:
        replies.append(caller.ask("SET", "key", "x" * 65536))
        await asyncio.sleep(0)
    valkey.thaw()
    assert all("does not read" in str(reply) for reply in await asyncio.gather(*replies))

"""Which Redis URLs end the start, and which are served around."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pydantic import SecretStr
from redis.asyncio.connection import SSLConnection
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeout
from structlog.testing import capture_logs

from slb.config import Settings
from slb.control import redis_url, resp
from slb.control.connection import Connection, connect
from slb.control.led import led
from slb.errors import RedisRefused
from slb.observe.log import masked
from slb.observe.metrics import Metrics
from tests.support.valkey import Valkey


async def opened(url: str) -> Connection:
    return await connect(Settings(redis_url=SecretStr(url)), Metrics())


@pytest.mark.parametrize(
    "url",
    [
        "localhost:6379",
        "http://localhost",
        "redis://",
        "redis://localhost:port",
        "redis://localhost:99999",
        "redis://localhost/first",
        "unix://",
        "redis://localhost?socket_timeout=soon",
        "redis://localhost?no_such_option=1",
        "redis://localhost?connection_class=x",
        "redis+sentinel://localhost",
        "redis+sentinel://localhost/0/mymaster",
        "redis+sentinel:///mymaster",
        "redis+sentinel://localhost,/mymaster",
        "redis+sentinel://localhost:port/mymaster",
        "redis+sentinel://localhost/mymaster/0?sentinel_no_such_option=1",
        "unix+sentinel://localhost/mymaster",
    ],
)
async def test_a_url_that_can_never_work_is_refused(url: str) -> None:
    with pytest.raises(RedisRefused, match="redis_url"):
        await opened(url)


@pytest.mark.parametrize("option", ["max_connections=5", "timeout=5", "queue_class=x", "socket_timeout=99"])
async def test_what_slb_needs_of_its_connections_wins_over_the_url(
    valkeys: Callable[..., Valkey], option: str
) -> None:
    url = valkeys().url
    plain = led(url).client.connection_pool
    asked = led(f"{url}{'&' if '?' in url else '?'}{option}").client.connection_pool
    assert asked.max_connections == plain.max_connections
    assert asked.connection_kwargs["socket_timeout"] == plain.connection_kwargs["socket_timeout"]
    connection = await opened(f"{url}{'&' if '?' in url else '?'}{option}")
    assert connection.up
    await connection.aclose()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:hunter2@h:6379/1", "redis://user:**********@h:6379/1"),
        ("redis://user@h", "redis://user@h"),
        ("redis://user:@h", "redis://user:@h"),
        ("redis://hun/ter2@h", "redis://hun:**********@h"),
        ("redis://:hunter2@h", "redis://:**********@h"),
        ("redis://:hun/ter2@h", "redis://:**********@h"),
        ("redis://:hun?ter2@h", "redis://:**********@h"),
        ("redis://:hun@ter2@h", "redis://:**********@h"),
        ("unix:///s?password=hunter2&db=1", "unix:///s?password=**********&db=1"),
        ("redis://h", "redis://h"),
        ("redis://h?password=hun@ter2", "redis://h?password=**********"),
        ("redis+sentinel://u:hunter2@a:1,b:2/m/0", "redis+sentinel://u:**********@a:1,b:2/m/0"),
        (
            "rediss+sentinel://a,b/m?sentinel_password=hun@ter2",
            "rediss+sentinel://a,b/m?sentinel_password=**********",
        ),
    ],
)
def test_no_password_is_shown(url: str, shown: str) -> None:
    assert redis_url.shown(url) == masked(shown) == shown


async def test_a_wrong_password_is_refused_and_not_repeated(valkeys: Callable[..., Valkey]) -> None:
    server = valkeys(requirepass="right")
    with pytest.raises(RedisRefused, match="refused") as caught:
        await opened(f"{server.url}?password=hunter2")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(RedisRefused, match="refused"):
        await opened(server.url)
    connection = await opened(f"{server.url}?password=right")
    assert connection.up
    await connection.aclose()


async def test_a_database_that_is_not_there_is_refused(valkey: Valkey) -> None:
    with pytest.raises(RedisRefused, match="DB index"):
        await opened(f"{valkey.url}?db=99")


async def test_something_that_is_no_redis_is_refused() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(RedisRefused, match="does not speak"):
            await opened(f"redis://127.0.0.1:{port}")


async def test_an_unreachable_redis_is_logged_and_raises_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with capture_logs() as logs:
        for url in (f"redis://127.0.0.1:{port}", f"unix://{tmp_path}/none.sock", "redis://no-such-host.invalid"):
            connection = await opened(url)
            assert not connection.up
            await connection.aclose()
    assert [line["event"] for line in logs] == ["redis_down"] * 3


async def test_a_redis_that_accepts_and_sends_nothing_is_unreachable(valkey: Valkey) -> None:
    connection = Connection(valkey.url, Metrics(), command_deadline=0.2)
    valkey.freeze()
    seen = []
    await connection.probe()
    seen.append(connection.up)
    valkey.thaw()
    await connection.probe()
    seen.append(connection.up)
    assert seen == [False, True]
    await connection.aclose()


async def test_a_command_that_was_given_up_is_not_sent_again() -> None:
    """A Redis that was frozen runs all it was sent, once it goes on."""
    sent: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while read := await reader.read(1000):
            if b"INCR" in read:
                sent.append(read)
            else:
                writer.write(b"+OK\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        connection = Connection(f"redis://127.0.0.1:{port}", Metrics(), command_deadline=0.2)
        with pytest.raises(RedisTimeout):
            await connection.client.incr("count")
        await connection.aclose()
    assert len(sent) == 1


async def test_up_and_down_are_logged_once_for_each_change(valkey: Valkey) -> None:
    connection = Connection(valkey.url, Metrics())
    with capture_logs() as logs:
        for _ in range(3):
            connection.mark_up()
        for _ in range(3):
            connection.mark_down("gone")
        connection.mark_up()
    assert [line["event"] for line in logs] == ["redis_up", "redis_down", "redis_up"]
    await connection.aclose()


async def test_a_server_that_sends_a_reply_without_end_costs_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = 0

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        with suppress(OSError):
            while True:
                writer.write(b"$500000000\r\n" if not sent else b"x" * 65536)
                sent += 65536
                await writer.drain()

    monkeypatch.setattr(resp, "LONGEST_REPLY", 1 << 20)
    async with await asyncio.start_unix_server(flood, tmp_path / "s"):
        connection = Connection(f"unix://{tmp_path}/s", Metrics())
        with pytest.raises(RedisError, match="a reply of more than"):
            await connection.client.get("key")
        await connection.aclose()
    assert sent < 4 << 20


def test_a_url_of_sentinels_says_whom_to_ask_and_how_to_log_in_at_both() -> None:
    url = "rediss+sentinel://u:p%40@a,[::1]:5/m/3?ssl_ca_certs=c&sentinel_username=su&sentinel_password=sp"
    parts = redis_url.parts(url)
    assert parts.seeds == (("a", 26379), ("::1", 5))
    assert parts.service == "m"
    shared = {"ssl_ca_certs": "c", "connection_class": SSLConnection, "host": "a", "port": 26379}
    assert parts.options == {**shared, "username": "u", "password": "p@", "db": 3}
    assert parts.asking == {**shared, "username": "su", "password": "sp"}

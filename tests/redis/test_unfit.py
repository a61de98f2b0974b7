"""What answers at `redis_url`, and cannot be slb's Redis: one line at the start that says what to change."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import RedisError
from structlog.testing import capture_logs

from slb.control.connection import Connection
from slb.control.fitness import Unfit, check_version
from slb.errors import RedisRefused
from slb.observe.metrics import Metrics
from tests.support.acl import acl_rules
from tests.support.certificates import Authority
from tests.support.following import Follower
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, patience


async def why_not(url: str) -> str:
    """Why it is refused; empty where it is not."""
    connection = Connection(url, Metrics(), command_deadline=patience(2.0))
    try:
        await connection.probe()
    except RedisRefused as error:
        return str(error)
    finally:
        await connection.aclose()
    return ""


@asynccontextmanager
async def standing_in(
    valkey: Valkey, change: Callable[[bytes], bytes] = lambda reply: reply, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """The port of a stand-in that passes commands on to the real Valkey, and changes its replies."""

    ends: list[asyncio.StreamWriter] = []
    passing: list[asyncio.Task[None]] = []

    async def pass_on(
        source: asyncio.StreamReader, sink: asyncio.StreamWriter, changed: Callable[[bytes], bytes]
    ) -> None:
        with suppress(OSError):
            while piece := await source.read(1 << 16):
                sink.write(changed(piece))
        sink.close()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(valkey.process.socket)
        ends.extend((writer, back))
        passing.append(asyncio.create_task(pass_on(there, writer, change)))
        passing.append(asyncio.create_task(pass_on(reader, back, bytes)))

    async with await asyncio.start_server(accepted, "127.0.0.1", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1]
        for each in ends:
            each.close()
        await asyncio.gather(*passing)
        await asyncio.gather(*(each.wait_closed() for each in ends), return_exceptions=True)


def as_old(reply: bytes) -> bytes:
    """The version is all that stands in for an old server: none is at hand. That of Valkey has as many digits."""
    return reply.replace(b"redis_version:7.2.4", b"redis_version:5.0.6")


async def test_a_redis_that_is_too_old_is_refused_with_its_version_and_the_one_that_is_needed(
    valkey: Valkey,
) -> None:
    async with standing_in(valkey, as_old) as port:
        url = f"redis://127.0.0.1:{port}"
        why = "it is Redis 5.0.6, and slb needs Redis 6.2 or later, or a Valkey"
        assert await why_not(url) == f"Redis at {url}: {why}"


@pytest.mark.parametrize("version", ["2.8.24", "5.0.6", "6.0.16", "6.0.0-rc1"])
def test_what_lacks_a_command_is_too_old(version: str) -> None:
    with pytest.raises(Unfit, match=f"it is Redis {version}, and slb needs Redis 6.2"):
        check_version({"redis_version": version})


@pytest.mark.parametrize("version", ["6.2.0", "7.0.15", "7.2.4", "8.0.1", "10.0", "255.255.255", "unstable", ""])
def test_later_ones_and_those_that_tell_no_version_are_not(version: str) -> None:
    check_version({"redis_version": version})
    check_version({})


async def test_one_that_became_too_old_while_it_was_away_is_named_in_the_log(valkey: Valkey) -> None:
    async with standing_in(valkey, as_old) as port:
        with capture_logs() as logs:
            async with Follower(f"redis://127.0.0.1:{port}"):
                await eventually(lambda: any(line["event"] == "redis_down" for line in logs), what="it is logged")
    assert {line["error"] for line in logs if line["event"] == "redis_down"} == {
        "it is Redis 5.0.6, and slb needs Redis 6.2 or later, or a Valkey"
    }


async def test_a_redis_whose_info_is_renamed_away_serves_and_what_is_not_known_is_said_once(
    valkeys: Callable[..., Valkey], tmp_path: Path
) -> None:
    (tmp_path / "renamed.conf").write_text('rename-command INFO ""\n')
    server = valkeys(include=str(tmp_path / "renamed.conf"))
    with pytest.raises(RedisError, match="unknown command"):
        server.admin.info()
    with capture_logs() as logs:
        async with Follower(server.url) as follower:
            await follower.synced()
            assert await follower.registry.register("/a", "10.1.1.1:1", {})
            await follower.shows("/a", ["10.1.1.1:1"])
    (said,) = [line for line in logs if line["event"] == "info_forbidden"]
    assert said["log_level"] == "warning"
    assert "whether Redis is recent enough" in said["help"]
    assert await why_not(server.url) == ""


@pytest.mark.parametrize(
    ("rules", "refused"),
    [
        (["~other:*", "&*", "+@all"], "No permissions to access a key"),
        (["~slb:*", "&*", "+@all"], "No permissions to access a key"),
        (["~slb_*", "&*", "+@all"], "No permissions to access a key"),
        (["~*", "&*", "-@all", "+client|setname"], "no permissions to run the 'exists' command"),
    ],
)
async def test_a_right_that_is_missing_is_refused_with_those_that_are_needed(
    valkey: Valkey, rules: list[str], refused: str
) -> None:
    admin: Any = valkey.admin
    admin.execute_command("ACL", "SETUSER", "slb", "on", ">pw", *rules)
    url = valkey.url.replace("unix://", "unix://slb:pw@")
    why = await why_not(url)
    assert refused in why
    assert why.endswith(
        "its user needs the keys slb_* and slb:*, and what docs/operations.md#what-slb-needs-in-redis has"
    )
    admin.execute_command("ACL", "SETUSER", "slb", "reset", "on", ">pw", *acl_rules())
    assert await why_not(url) == ""


async def test_a_database_that_is_not_there_is_refused_with_where_it_is_named(valkey: Valkey) -> None:
    async with standing_in(valkey) as port:
        why = await why_not(f"redis://127.0.0.1:{port}/99")
        assert why.startswith(
            f"Redis at redis://127.0.0.1:{port}/99 refused: DB index is out of range; redis_url names "
        )


async def test_a_login_that_is_missing_is_refused_with_where_it_stands(valkeys: Callable[..., Valkey]) -> None:
    async with standing_in(valkeys(requirepass="right")) as port:
        for login in ("", ":wrong@"):
            why = await why_not(f"redis://{login}127.0.0.1:{port}")
            assert why.endswith("; redis_url names the user and the password, as redis://USER:PASSWORD@HOST"), why


async def test_the_other_scheme_is_named_where_that_is_what_the_port_speaks(valkey: Valkey, tmp_path: Path) -> None:
    tls = Authority(tmp_path).server("127.0.0.1")
    async with standing_in(valkey) as plain, standing_in(valkey, tls=tls) as secured:
        why = await why_not(f"rediss://127.0.0.1:{plain}")
        assert why.endswith(": that port speaks no TLS, so redis_url is to begin with redis://")
        why = await why_not(f"redis://127.0.0.1:{secured}")
        assert why.endswith(": that port speaks TLS, so redis_url is to begin with rediss://")


async def test_a_port_that_says_nothing_is_not_judged_by_its_scheme() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        for scheme in ("redis", "rediss"):
            url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            connection = Connection(url, Metrics(), command_deadline=0.2)
            await connection.probe()
            assert not connection.up
            await connection.aclose()

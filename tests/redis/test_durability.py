"""What may be lost of jobs with a Redis is said; with one that keeps all, nothing is."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis
from structlog.testing import capture_logs

from slb.config import Settings
from slb.control.connection import Connection, connect
from slb.control.durability import Durability
from slb.control.embedded import EmbeddedServer
from slb.observe.metrics import Metrics
from tests.support.valkey import Valkey


@pytest.mark.parametrize(
    ("options", "at_risk"),
    [
        ({"appendfsync": "always"}, ""),
        ({"appendonly": "no"}, "appendonly is no"),
        ({"appendfsync": "everysec"}, "appendfsync is everysec"),
        ({"appendfsync": "always", "maxmemory_policy": "allkeys-lru"}, "maxmemory-policy is allkeys-lru"),
    ],
)
async def test_what_is_at_risk_is_said_once(
    valkeys: Callable[..., Valkey], options: dict[str, str], at_risk: str
) -> None:
    server = valkeys(**options)
    connection = Connection(server.url, Metrics())
    durability = Durability(connection)
    with capture_logs() as logs:
        await durability.look()
        await durability.look()
    await connection.aclose()
    assert durability.at_risk.startswith(at_risk)
    assert bool(durability.at_risk) == bool(at_risk)
    assert [each["event"] for each in logs] == ["jobs_at_risk"] * bool(at_risk)


async def test_a_redis_that_tells_nothing_of_itself_is_at_risk(valkey: Valkey) -> None:
    valkey.admin.acl_setuser("default", enabled=True, commands=["-config"])
    connection = Connection(valkey.url, Metrics())
    durability = Durability(connection)
    await durability.look()
    await connection.aclose()
    assert "does not report" in durability.at_risk


async def test_an_embedded_server_that_died_writes_before_it_answers_from_its_start_on(tmp_path: Path) -> None:
    """Jobs that it acknowledged before it was told so would be lost where its disk is full."""
    connection = await connect(Settings(data_dir=tmp_path), Metrics(), revive=False)
    other = EmbeddedServer(tmp_path, revive=False)  # of an instance without the role

    def is_so() -> bool:
        with Redis(unix_socket_path=str(other.process.socket), decode_responses=True, protocol=2) as redis:
            found: object = redis.config_get("appendfsync")
            return found == {"appendfsync": "always"}

    try:
        await Durability(connection).look()
        await connection.aclose()
        await other.acquire()
        assert is_so()
        other.process.kill()
        await asyncio.to_thread(other.process.start)
        assert is_so()
    finally:
        await other.release()

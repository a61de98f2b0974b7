"""What may be lost of jobs with a Redis is said; with one that keeps all, nothing is."""

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from slb.control.connection import Connection
from slb.control.durability import Durability
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

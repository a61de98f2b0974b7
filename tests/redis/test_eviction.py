"""A Redis that may evict routes is logged at the start."""

import pytest
from structlog.testing import capture_logs

from tests.support.following import Follower
from tests.support.valkey import Valkey


async def logged(valkey: Valkey) -> list[dict[str, object]]:
    with capture_logs() as logs:
        async with Follower(valkey.url) as follower:
            await follower.synced()
    return [dict(line) for line in logs if line["event"] == "redis_may_evict"]


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random", "volatile-ttl"])
async def test_a_redis_that_may_evict_is_warned_of_once(valkey: Valkey, policy: str) -> None:
    valkey.admin.config_set("maxmemory", "100mb")
    valkey.admin.config_set("maxmemory-policy", policy)
    (line,) = await logged(valkey)
    assert line["log_level"] == "warning"
    assert (line["policy"], line["maxmemory"]) == (policy, 100 << 20)


async def test_a_redis_that_keeps_what_it_has_is_not(valkey: Valkey) -> None:
    valkey.admin.config_set("maxmemory-policy", "allkeys-lru")
    assert await logged(valkey) == [], "it has no bound"
    valkey.admin.config_set("maxmemory", "100mb")
    valkey.admin.config_set("maxmemory-policy", "noeviction")
    assert await logged(valkey) == []


async def test_where_redis_refuses_the_question_nothing_is_logged_and_it_is_followed(valkey: Valkey) -> None:
    admin = valkey.admin
    admin.config_set("maxmemory", "100mb")
    admin.config_set("maxmemory-policy", "allkeys-lru")
    admin.acl_setuser("default", enabled=True, nopass=True, commands=["-info"])
    assert await logged(valkey) == []

"""What is documented of users in Redis survives a restart of a Redis with an append-only file.

Redis 7.0 replays what scripts and transactions have written as the user `default`, whatever its own rights are.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slb.control import keys
from tests.support.acl import REPLAY_RULES
from tests.support.documents import OPERATIONS
from tests.support.following import Follower
from tests.support.redis_server import BINARY, RedisServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(BINARY is None, reason="there is no redis-server")

PASSWORD = "change-me"
OPERATOR = "user operator on >secret ~* &* +@all"

Start = Callable[[str], RedisServer]


def documented() -> list[str]:
    """The users of the document, each a line."""
    found = re.findall(r"^```acl\n(.*?)\n```$", OPERATIONS, re.MULTILINE | re.DOTALL)
    return str(found[0]).splitlines()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a Redis with an append-only file whose users are those of the document, with another `default`."""
    servers: list[RedisServer] = []

    def make(default: str) -> RedisServer:
        users = [line for line in documented() if not line.startswith("user default ")]
        acl = [default, *users, OPERATOR]
        servers.append(RedisServer(tmp_path, acl, "slb", PASSWORD, appendonly="yes", appendfsync="always"))
        return servers[0]

    yield make
    for server in servers:
        server.kill()


async def register_some(server: RedisServer) -> None:
    async with Follower(server.url) as follower:
        await follower.synced()
        await follower.registry.register_all([("/a", "10.1.1.1:1", {"weight": "2"}), ("/a", "10.9.9.9:9", {})])
        await follower.registry.put_settings("/a", {"policy": "p2c"})
        await follower.registry.deregister("/a", "10.9.9.9:9")
        await follower.shows("/a", ["10.1.1.1:1"])


async def test_registrations_survive_a_clean_restart_behind_the_documented_users(start: Start) -> None:
    (default,) = [line for line in documented() if line.startswith("user default ")]
    server = start(default)
    await register_some(server)
    server.stop()
    server.start()
    with server.admin("operator", "secret") as admin:
        assert admin.smembers("slb_a") == {"10.1.1.1:1"}
        assert admin.hget("slb:upstream:10.1.1.1:1", "weight") == "2"
        assert admin.hgetall("slb:route:/a") == {"policy": "p2c"}
        assert admin.zscore(keys.CHANGES, "slb_a 10.9.9.9:9") is not None


async def test_without_that_rule_an_instance_that_lives_gives_back_what_a_restart_loses(start: Start) -> None:
    server = start("user default off")
    async with Follower(server.url) as follower:
        await follower.synced()
        await follower.registry.register("/a", "10.1.1.1:1", {"weight": "2"})
        await follower.shows("/a", ["10.1.1.1:1"])
        changes = follower.changes
        await eventually(lambda: bool(changes.history.generation and changes.history.of) and not changes.waiting)
        server.stop()
        await follower.up(False)
        server.start()
        await follower.up(True)
        with server.admin("operator", "secret") as admin:
            await eventually(lambda: admin.smembers("slb_a") == {"10.1.1.1:1"}, what="given back")
        assert follower.members("/a") == ["10.1.1.1:1"]


def test_no_client_can_be_the_user_that_redis_replays_as(start: Start) -> None:
    server = start(f"user default {' '.join(REPLAY_RULES)}")
    with server.admin("operator", "secret") as admin:
        found = admin.acl_getuser("default")
    assert "off" in found["flags"]
    assert found["passwords"] == []
    assert "nopass" not in found["flags"]


def test_the_documented_rule_is_the_one_the_code_declares() -> None:
    assert f"user default {' '.join(REPLAY_RULES)}" in documented()

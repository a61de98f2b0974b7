"""The quota router's script on a Redis of its own, at times that its caller gives: decisions in simulated time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
from redis import Redis

from bench.processes import Processes
from bench.redis import PrivateRedis
from slb.control.keys import quota_keys
from slb.control.scripts import quota_source
from slb.quota.script import written_rules
from slb.quotas import Rules

EPOCH = 1_000_000_000_000  # milliseconds since 1970 at which simulated time begins


class Script:
    """What was in the database is gone. Other programs on that Redis wait while it decides."""

    def __init__(self, redis: Redis, rules: Rules) -> None:
        redis.flushdb()
        self._pool: Any = redis.connection_pool
        names = quota_keys()
        self._command = ("EVALSHA", redis.script_load(quota_source()), len(names), *names)
        self._rules = written_rules(rules)

    def ask(self, now: int, *asks: list[Any]) -> list[Any]:
        """The replies to what comes together `now`, in milliseconds of simulated time."""
        return self.call(now, *asks)[1]

    def call(self, now: int, *asks: list[Any]) -> tuple[int, list[Any]]:
        """The same, and how many tasks were reclaimed before."""
        wanted = orjson.dumps({**self._rules, "at": EPOCH + now, "asks": asks})
        connection = self._pool.get_connection()  # a client's own way costs as much as the script
        try:
            connection.send_command(*self._command, wanted)
            _, _, reclaimed, replies = connection.read_response()
        finally:
            self._pool.release(connection)
        return reclaimed, replies


@contextmanager
def redis_for_simulation() -> Iterator[Redis]:
    """An empty one while this lasts, which writes nothing to the disk."""
    with TemporaryDirectory() as home, Processes() as processes:
        redis = PrivateRedis(processes, Path(home) / "redis")
        redis.start()
        redis.client.config_set("appendonly", "no")
        yield redis.client

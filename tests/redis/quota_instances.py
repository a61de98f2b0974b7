"""Instances of the quota router in a test."""

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import orjson

from slb.control import keys
from slb.control.ask_lane import AskTiming
from slb.control.connection import Connection
from slb.control.scripts import quota_source
from slb.observe.metrics import Metrics
from slb.quota.local import LocalShare
from slb.quota.script import written_rules
from slb.quota.service import QuotaService
from slb.quotas import Decision, Rules
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

QUICK = AskTiming(beat=0.1, deadline=5.0, backoff=0.05)
AMPLE = {"max_tokens_per_minute": 60_000_000, "max_concurrent_requests": 1000}


class Instance:
    """One service and what it counts; `clock` is the local share's, in milliseconds."""

    def __init__(self, valkey: Valkey, rules: Rules, is_open: bool, timing: AskTiming, parts: int) -> None:
        self.metrics = Metrics()
        self.clock = 0
        self.connection = Connection(valkey.url, self.metrics)
        share = LocalShare(rules, lambda: self.clock, lambda: parts) if is_open else None
        self.quota = QuotaService(self.connection, rules, share, self.metrics.quota, Random(1), timing)

    async def ask(self, tokens: int, key: str = "", models: list[str] | None = None) -> Decision:
        return await self.quota.schedule(tokens, models, key)

    async def has_read(self, *models: str) -> None:
        """Wait until it has seen that there are these models."""
        counts = self.metrics.quota
        await eventually(lambda: [each.model for each in counts.models] == list(models))


Starter = Callable[..., Awaitable[Instance]]


class Script:
    """The script itself, `ahead` milliseconds later than it is."""

    def __init__(self, valkey: Valkey) -> None:
        self._admin: Any = valkey.admin
        self._run: Any = self._admin.register_script(quota_source())
        self.ahead = 0

    def run(self, *asks: list[Any]) -> list[Any]:
        wanted = {**written_rules(Rules(longest_wait=60_000)), "at": self.now() + self.ahead, "asks": asks}
        *_, replies = self._run(keys=keys.quota_keys(), args=[orjson.dumps(wanted)])
        return list(replies)

    def now(self) -> int:
        """Redis's time, in milliseconds."""
        seconds, microseconds = self._admin.time()
        return int(seconds) * 1000 + int(microseconds) // 1000

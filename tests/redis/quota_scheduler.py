"""The quota router's script as a scheduler in simulated time: what tests ask is decided at the moment they give."""

from collections.abc import Mapping, Sequence
from typing import Any

from redis import Redis

from bench.quota.script import EPOCH, Script
from slb.control.keys import quota_keys
from slb.quota.script import decision_of, row_of, state_of
from slb.quotas import MOST_LISTED, Abandoned, Decision, Limits, ModelState, Rules, TaskState

_STATE = quota_keys()[2]
FIELDS = (
    *("level", "at", "deficit", "minute", "first", "long", "stretch", "gone", "callers", "tokens", "margin"),
    *("seen", "soon", "by", "far", "head", "estimated", "spent", "held", "off", "missed"),
)
"""As `lua/quota_models.lua` writes them."""


class Scheduler:
    """Times are milliseconds. `is_drained`: the buckets are empty at first."""

    def __init__(
        self,
        redis: Redis,
        models: Mapping[str, Limits] | None = None,
        rules: Rules | None = None,
        now: int = 0,
        is_drained: bool = False,
    ) -> None:
        self.rules = rules or Rules()
        self._script = Script(redis, self.rules)
        self._redis: Any = redis
        puts = [put_ask(name, limits) for name, limits in (models or {}).items()]
        self.ask(now, *([["restore", [row for _, *row in puts]]] if is_drained else puts))

    def ask(self, now: int, *asks: list[Any]) -> list[Any]:
        """The replies to what comes together."""
        return self._script.ask(now, *asks)

    def advance(self, now: int) -> int:
        """How many tasks are reclaimed."""
        return self._script.call(now)[0]

    def schedule(
        self,
        now: int,
        task: str,
        estimate: int,
        models: Sequence[str] | None = None,
        key: str = "",
        jitter: int = 0,
    ) -> Decision:
        (reply,) = self.ask(now, schedule_ask(task, estimate, models, key, jitter))
        return decision_of(reply)

    def complete(self, now: int, task: str, actual: int | None = None) -> TaskState | None:
        (reply,) = self.ask(now, complete_ask(task, actual))
        return reply[0] or None

    def heartbeat(self, now: int, task: str) -> TaskState | None:
        (reply,) = self.ask(now, ["heartbeat", task])
        return reply[0] or None

    def put(self, now: int, model: str, limits: Limits) -> None:
        self.ask(now, put_ask(model, limits))

    def delete(self, now: int, model: str) -> None:
        self.ask(now, ["delete", model])

    def models(self, now: int) -> list[ModelState]:
        (rows,) = self.ask(now, ["models"])
        return [state_of(row) for row in rows]

    def learned(self, model: str) -> dict[str, int]:
        """What stands of it in Redis: how long slots are held, and the like; tokens in 1/60000."""
        row = self._redis.hget(_STATE, model).split()
        return dict(zip(FIELDS, map(int, row), strict=True))

    def abandoned(self, now: int) -> list[Abandoned]:
        ((_, rows),) = self.ask(now, ["abandoned", "", MOST_LISTED])
        return [Abandoned(task, model, int(size), int(at) - EPOCH, key) for task, model, size, at, key in rows]


def schedule_ask(task: str, estimate: int, models: Sequence[str] | None, key: str, jitter: int) -> list[Any]:
    """As the script takes it."""
    return ["schedule", task, estimate, jitter, key, sorted(models) if models is not None else False]


def complete_ask(task: str, actual: int | None) -> list[Any]:
    """As the script takes it."""
    return ["complete", task, -1 if actual is None else actual]


def put_ask(model: str, limits: Limits) -> list[Any]:
    """As the script takes it."""
    return ["put", model, *row_of(limits)]

"""The quota router of one instance: decisions are made in Redis for all instances, and here while it is away."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import count
from random import Random
from typing import Any
from uuid import uuid4

import structlog

from slb import quotas
from slb.control.ask_lane import AskTiming
from slb.control.cancelled import raise_if_cancelled
from slb.control.connection import Connection
from slb.control.quota import QuotaLane
from slb.errors import RedisUnavailable, ScriptFailed
from slb.lifecycle import set_within
from slb.observe.quota import QuotaCounts
from slb.quota.local import AWAY_WAIT, REASON, LocalShare
from slb.quota.script import advice_of, decision_of, limits_of, row_of, state_of, written, written_rules
from slb.quotas import MOST_LISTED, Abandoned, Admitted, Caller, Decision, Denied, ModelState, TaskState, Wait

_LOOK = 1.0  # seconds between two looks at what is set on the models

_UNKNOWN = ("no_models", "unknown_model")  # denials of models that Redis may have lost
_log = structlog.get_logger()


class QuotaService:
    """`share` decides for this instance's share of each limit while Redis is away; without it all wait."""

    def __init__(
        self,
        connection: Connection,
        rules: quotas.Rules,
        share: LocalShare | None,
        counts: QuotaCounts,
        rng: Random,
        timing: AskTiming | None = None,
    ) -> None:
        self._lane = QuotaLane(connection, written_rules(rules), self._on_reply, timing)
        self._share = share
        self._counts = counts
        self._rng = rng
        self._new_task = _task_ids()
        self._known: list[ModelState] = []
        self._is_lost = False
        self._has_news = asyncio.Event()
        self._astray: list[str] = []
        self.lease = rules.lease
        """Milliseconds a task lives without a heartbeat."""
        counts.is_on = True

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lane.run())
            group.create_task(self._follow())

    # -- what callers ask

    async def schedule(self, estimate: int, models: Sequence[str] | None, key: str) -> Decision:
        """The task admitted, a wait in milliseconds, or why it is refused for good. Raises ScriptFailed."""
        task = self._new_task()
        decision = await self._decide(task, estimate, models, key)
        match decision:
            case Admitted() if decision.task in (task, _local(task)):
                self._counts.decided("admitted", decision.model, tokens=estimate)
            case Admitted():
                self._counts.decided("replayed", decision.model)
            case Wait():
                self._counts.decided("wait", reason=decision.reason)
            case Denied():
                self._counts.decided("denied", reason=decision.reason)
        return decision

    async def _decide(self, task: str, estimate: int, models: Sequence[str] | None, key: str) -> Decision:
        named: Any = sorted(set(models)) if models is not None else False
        jitter = self._rng.randrange(1001)
        try:
            decision = decision_of(await self._lane.ask("schedule", task, estimate, jitter, key, named))
            if self._is_lost and self._known and isinstance(decision, Denied) and decision.reason in _UNKNOWN:
                return self._away()  # the models are about to be restored
            return decision
        except RedisUnavailable as error:
            self._counts.is_shared = False
            decision = self._alone(task, estimate, models, key, jitter)
            if error.reached and (isinstance(decision, Admitted) or not key):  # else its caller comes for it again
                self._astray.append(task)
            return decision

    def _alone(self, task: str, estimate: int, models: Sequence[str] | None, key: str, jitter: int) -> Decision:
        if self._share is None:
            return self._away()
        self._share.follow([(each.model, each.limits) for each in self._known])
        return self._share.schedule(_local(task), estimate, models, key, jitter)

    def _away(self) -> Wait:
        return Wait(round(AWAY_WAIT * self._rng.uniform(0.9, 1.1)), REASON)

    async def complete(self, task: str, actual: int | None) -> TaskState | None:
        """The task's state; None for an unknown one. Raises RedisUnavailable."""
        if self._share is not None and self._share.has(task):
            state = self._share.complete(task)
        else:
            (found,) = await self._lane.ask("complete", task, -1 if actual is None else actual)
            state = found or None
        self._counts.ended[state or "unknown"] += 1
        return state

    async def heartbeat(self, task: str) -> TaskState | None:
        """The task's state; None for an unknown one. A running one gets a new lease. Raises RedisUnavailable."""
        if self._share is not None and self._share.has(task):
            return self._share.heartbeat(task)
        (state,) = await self._lane.ask("heartbeat", task)
        return state or None

    async def abandoned(self, behind: str = "", most: int = MOST_LISTED) -> tuple[list[Abandoned], int]:
        """Tasks that were reclaimed in the last hour, the oldest first, from the one after the task `behind` on;
        and how many follow them. Raises RedisUnavailable."""
        left_off, rows = await self._lane.ask("abandoned", behind, most)
        listed = [Abandoned(task, model, int(size), int(at), key) for task, model, size, at, key in rows]
        return listed, int(left_off)

    async def callers(self, model: str, most: int) -> list[Caller]:
        """Those that wait for this model, at most so many: the first that is due first. Raises RedisUnavailable."""
        rows = iter(await self._lane.ask("waiting", model, most))
        return [Caller(int(due), int(estimate), key) for due, estimate, key in zip(rows, rows, rows, strict=True)]

    async def advice(self) -> quotas.Advice:
        """How many callers would do. Raises RedisUnavailable."""
        return advice_of(await self._lane.ask("advice"))

    # -- models

    async def models(self) -> list[ModelState]:
        """All, by name. Raises RedisUnavailable."""
        return [state_of(row) for row in await self._lane.ask("models")]

    async def put(self, model: str, changes: quotas.Changes) -> quotas.Limits | Denied:
        """Set these from the next decision on; others stay. Denied: `incomplete` for a new model without its
        limits, or `too_many_models`. Raises RedisUnavailable."""
        verb, row = await self._lane.ask("put", model, *written(changes))
        if verb != "put":
            return Denied(row)
        limits = limits_of(row)
        _log.info("quota_model_set", model=model, **asdict(limits))
        return limits

    async def delete(self, model: str) -> bool:
        """Whether it was there. Raises RedisUnavailable."""
        (deleted,) = await self._lane.ask("delete", model)
        if deleted:
            _log.info("quota_model_deleted", model=model)
        return bool(deleted)

    # -- Redis

    def _on_reply(self, is_lost: bool, reclaimed: int) -> None:
        self._counts.batches += 1
        self._counts.is_shared = True
        self._counts.reclaimed += reclaimed
        if is_lost:
            self._is_lost = True
            self._has_news.set()

    async def _follow(self) -> None:
        """Read the models repeatedly, for a time when Redis is away or has lost them."""
        while True:
            try:
                await self._look()
            except (RedisUnavailable, ScriptFailed) as error:
                _log.debug("quota_models_not_read", error=str(error))
            self._counts.is_shared = self._lane.up
            if self._share is not None:
                self._share.advance(is_alone=not self._lane.up)
            raise_if_cancelled()
            # Sooner where Redis has lost its data: no caller is admitted until the models are restored.
            await set_within(self._has_news, _LOOK)
            self._has_news.clear()

    async def _look(self) -> None:
        await self._withdraw()
        found = await self.models()
        if self._is_lost and self._known:
            await self._restore(self._known)
            found = await self.models()
        self._is_lost = False
        self._known = found
        self._counts.models = found

    async def _withdraw(self) -> None:
        """Give back what Redis may have admitted, or may yet, to callers that were told otherwise."""
        tasks = list(self._astray)
        await asyncio.gather(*(self._lane.ask("withdraw", task) for task in tasks))
        del self._astray[: len(tasks)]

    async def _restore(self, lost: Sequence[ModelState]) -> None:
        """Redis has lost its data: set the models again in one step, but not those set meanwhile."""
        (restored,) = await self._lane.ask("restore", [[each.model, *row_of(each.limits)] for each in lost])
        if restored:
            _log.warning("quota_models_restored", restored=restored, of=len(lost))


def _task_ids() -> Callable[[], str]:
    """Of this instance, each once: the system's randomness for each would take longer than all the rest."""
    mine, numbers = uuid4().hex[:20], count()
    return lambda: f"tsk_{mine}{next(numbers):012x}"


def _local(task: str) -> str:
    """The id it has where it is admitted without Redis."""
    return f"tsk_local_{task.removeprefix('tsk_')}"

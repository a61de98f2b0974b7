"""A caller's side of the quota router: ask, wait, call, send heartbeats, report the end.

    async with Router.at("http://127.0.0.1:8081") as router:
        async with router.admitted(estimated_tokens=1800) as task:
            answer = await call(task.model_backend_id, prompt)
            task.actual_tokens = answer.tokens

The block begins when the router admits the task, the lease is renewed while it runs, and at its end, however it
ends, the task is completed.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from slb.errors import SlbError
from slb.quota.asking import Asking as Asking
from slb.quota.asking import CallRefused as CallRefused
from slb.quota.asking import Instances
from slb.quota.asking import Persistence as Persistence
from slb.quota.asking import RouterUnreachable as RouterUnreachable

DEFAULT_BEAT = 5.0
DEFAULT_GRACE = 2.0
BEATS_PER_LEASE = 3
NOT_CALLED = 0
Models = Sequence[str] | None
_log = logging.getLogger("slb.quota.client")


class LeaseLapsed(SlbError):
    """The router heard nothing of the task for a whole lease: it has taken back the slot and the tokens."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now: ask again in so many milliseconds. `reason` is empty where slots or tokens are short."""

    milliseconds: int
    reason: str | None = None

    @property
    def seconds(self) -> float:
        return self.milliseconds / 1000


@dataclass(frozen=True, slots=True)
class Admission:
    """Now, and this model. `lease_ms`: how long the router waits for a heartbeat, where the reply has it."""

    model_backend_id: str
    task_id: str
    lease_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """`backpressure_score`: 0 no caller waits, 1 all wait long. `suggested_parallelism`: workers in all."""

    backpressure_score: float
    suggested_parallelism: int


class Router:
    """The router, for one caller or many at once; use it with `async with`. `beat`: seconds between heartbeats
    where the router's reply has no lease, a third of `quota_lease` at most. `grace`: seconds that a cancelled
    caller, or the end of the block, waits until admitted tasks are given back."""

    def __init__(self, asking: Asking, beat: float = DEFAULT_BEAT, grace: float = DEFAULT_GRACE) -> None:
        self._asking = asking
        self._beat = beat
        self._grace = grace
        self._behind: set[asyncio.Task[Any]] = set()

    @classmethod
    def at(
        cls,
        urls: str | Sequence[str],
        *,
        token: str | None = None,
        ca: str | Path | None = None,
        beat: float = DEFAULT_BEAT,
        grace: float = DEFAULT_GRACE,
        persistence: Persistence | None = None,
        rng: Random | None = None,
    ) -> Self:
        """The router behind one or several API addresses; `ca`: a PEM file of the authorities that `https://` ones
        are verified by. Raises ValueError for what is no URL, ConfigError for a file that cannot be used."""
        several = [urls] if isinstance(urls, str) else urls
        return cls(Instances(several, token, persistence or Persistence(), rng or Random(), ca), beat, grace)

    async def __aenter__(self) -> Self:
        self._asking.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Give back what is left, for at most the grace."""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._grace):
                    await self._given_back()
        finally:
            if self._behind:
                _log.warning(
                    "not given back at closing: %d; what was admitted goes by its lease", len(self._behind)
                )
            for work in self._behind:
                work.cancel()
            await self._given_back()
            await self._asking.close()

    async def _given_back(self) -> None:
        while self._behind:
            await asyncio.wait(self._behind)

    @asynccontextmanager
    async def admitted(
        self, estimated_tokens: int, models: Models = None, interrupt: bool = False
    ) -> AsyncIterator["Task"]:
        """The block runs once the task is admitted; see `admit` and `Task`."""
        async with await self.admit(estimated_tokens, models, interrupt) as task:
            yield task

    async def admit(self, estimated_tokens: int, models: Models = None, interrupt: bool = False) -> "Task":
        """Ask, and wait as answered, until a model of `models` (None: any) takes the task. Enter the returned Task
        at once. Bound the wait with `asyncio.timeout`: a cancelled call gives back what was admitted. Raises
        CallRefused, RouterUnreachable, and TypeError for `models` that are no list."""
        key = uuid4().hex
        while isinstance(answer := await self.schedule(estimated_tokens, models, key), Wait):
            await asyncio.sleep(answer.seconds)
        return self.hold(answer, interrupt)

    async def schedule(
        self, estimated_tokens: int, models: Models = None, idempotency_key: str | None = None
    ) -> Admission | Wait:
        """One question. With a key it may be asked again, and a caller that waited keeps its place."""
        body: dict[str, Any] = {"estimated_tokens": estimated_tokens}
        if isinstance(models, str):
            raise TypeError(f"models={models!r}: give a list of model ids")
        if models is not None:
            body["models"] = list(models)
        if idempotency_key is not None:
            body["idempotency_key"] = idempotency_key
        asking = asyncio.create_task(self._asking.ask("POST", "/schedule", body))
        try:
            return _decision(await asyncio.shield(asking))
        except asyncio.CancelledError:
            self._leave_behind(asyncio.create_task(self._give_back(asking)))
            raise

    def hold(self, admission: Admission, interrupt: bool = False) -> "Task":
        seconds = admission.lease_ms / 1000 / BEATS_PER_LEASE if admission.lease_ms else self._beat
        return Task(self, admission, seconds, interrupt)

    async def heartbeat(self, task_id: str) -> bool:
        """Whether the lease still stands; it is renewed then."""
        answer = await self._asking.ask("POST", "/heartbeat", {"task_id": task_id})
        return bool(answer.get("ok"))

    async def complete(self, task_id: str, actual_tokens: int | None = None) -> dict[str, Any]:
        """The router's answer. Completing twice does no harm."""
        body: dict[str, Any] = {"task_id": task_id}
        if actual_tokens is not None:
            body["actual_tokens"] = actual_tokens
        answer: dict[str, Any] = await self._asking.ask("POST", "/complete", body)
        return answer

    async def advice(self) -> Advice:
        answer = await self._asking.ask("GET", "/advice")
        return Advice(float(answer["backpressure_score"]), int(answer["suggested_parallelism"]))

    async def abandoned(self) -> list[dict[str, Any]]:
        """Tasks whose lease lapsed, as the router lists them."""
        tasks: list[dict[str, Any]] = []
        more = ""
        while True:
            answer = await self._asking.ask("GET", f"/tasks?state=abandoned{more}")
            tasks += answer["tasks"]
            if not answer["tasks"] or not answer.get("left_off"):
                return tasks
            more = f"&after={tasks[-1]['task_id']}"

    async def finish(self, task_id: str, actual_tokens: int | None, leaving: bool = False) -> dict[str, Any] | None:
        """Complete, even where the caller is cancelled. None where the router is not reached: the lease will lapse.
        `leaving`: wait for the grace only; attempts go on in the background."""
        completing = asyncio.create_task(self._completed(task_id, actual_tokens))
        try:
            done, _ = await asyncio.wait([completing], timeout=self._grace if leaving else None)
            return completing.result() if done else None
        finally:
            if not completing.done():
                self._leave_behind(completing)

    async def _completed(self, task_id: str, actual_tokens: int | None) -> dict[str, Any] | None:
        try:
            return await self.complete(task_id, actual_tokens)
        except (RouterUnreachable, CallRefused) as error:
            _log.warning("task %s is not completed, its lease will lapse: %s", task_id, error)
            return None

    async def _give_back(self, asking: asyncio.Task[Any]) -> None:
        try:
            decision = _decision(await asking)
        except (RouterUnreachable, CallRefused):
            return  # nothing was admitted that is known of
        if isinstance(decision, Admission):
            await self._completed(decision.task_id, NOT_CALLED)

    def _leave_behind(self, task: asyncio.Task[Any]) -> None:
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)


class Task:
    """One admitted task; `async with` it while its model is called. Set `actual_tokens` once they are known (0
    where the model was never called), to settle the estimate. `lapsed`: the router replied that the lease is gone.
    The block goes on then; with `interrupt` it is cancelled and ends with LeaseLapsed."""

    def __init__(self, router: Router, admission: Admission, beat: float, interrupt: bool) -> None:
        self.model_backend_id = admission.model_backend_id
        self.task_id = admission.task_id
        self.actual_tokens: int | None = None
        self.lapsed = False
        self._router = router
        self._beat = beat
        self._interrupt = interrupt
        self._block = asyncio.timeout(None)

    async def __aenter__(self) -> Self:
        await self._block.__aenter__()
        self._beating = asyncio.create_task(self._heartbeats())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._beating.cancel()
        try:
            await self._block.__aexit__(kind, error, trace)
        except TimeoutError:
            raise LeaseLapsed(f"task {self.task_id} at {self.model_backend_id}") from None
        finally:
            leaving = kind is not None and issubclass(kind, asyncio.CancelledError)
            answer = await self._router.finish(self.task_id, self.actual_tokens, leaving)
            self.lapsed = self.lapsed or (answer is not None and answer.get("state") == "abandoned")

    async def _heartbeats(self) -> None:
        while not self.lapsed:
            await asyncio.sleep(self._beat)
            try:
                self.lapsed = not await self._router.heartbeat(self.task_id)
            except RouterUnreachable as error:
                _log.warning("task %s: no heartbeat: %s", self.task_id, error)
            except CallRefused:
                self.lapsed = True
        _log.warning("task %s: its lease has lapsed", self.task_id)
        if self._interrupt:
            self._block.reschedule(asyncio.get_running_loop().time())


def _decision(answer: dict[str, Any]) -> Admission | Wait:
    if "task_id" in answer:
        return Admission(answer["model_backend_id"], answer["task_id"], answer.get("lease_ttl_ms"))
    return Wait(int(answer["wait_for_ms"]), answer.get("reason"))

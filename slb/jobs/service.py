"""The job dispatcher of one instance: what callers submit and ask, and a dispatcher for each model."""

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import orjson
import structlog

from slb.control.cancelled import raise_if_cancelled
from slb.control.connection import Connection
from slb.control.durability import Durability
from slb.control.jobs import JobLane, Pulse
from slb.errors import (
    BAD_REQUEST,
    IDEMPOTENCY_REUSED,
    JOB_ENDED,
    NOT_REPLICATED,
    PAYLOAD_TOO_LARGE,
    REDIS_DOWN,
    UNKNOWN_JOB,
    NotReplicated,
    RedisUnavailable,
    Refused,
    ScriptFailed,
)
from slb.job import ENDED, MOST_KEPT, JobRequest, JobShown, ModelConfig, ModelStats, Submitted, route_of
from slb.jobs.buffer import TaskBuffer
from slb.jobs.callbacks import Callbacks
from slb.jobs.dispatcher import Dispatcher, Others
from slb.jobs.eta import seconds_left, slots_for
from slb.jobs.events import JobEvents, Stream
from slb.jobs.finding import lane_of
from slb.jobs.models import Model, Models
from slb.jobs.outcomes import Outcomes
from slb.jobs.pushes import Pushes
from slb.jobs.submission import submission_of
from slb.jobs.task_parts import NO_TASKS, TaskParts
from slb.lifecycle import set_within
from slb.observe.jobs import JobCounts
from slb.routing.mirror import Mirror
from slb.routing.table import Route

_LOOK = 1.0
"""Seconds between two looks at what is set on the models, and at how many jobs are where."""

_log = structlog.get_logger("slb.jobs")


MakeDispatcher = Callable[[JobLane, Callable[[], None], Others], Dispatcher]
"""Makes the dispatcher of one model, with its `on_end` and the other models."""


class JobService:
    """All that callers ask raises Refused, RedisUnavailable and ScriptFailed. Without `dispatcher`, `outcomes` and
    `callbacks` it takes jobs and tells of them, and leaves it to other processes to run them: a supervisor's. With
    `needs_replica` a job is taken once a replica of Redis has it."""

    def __init__(
        self,
        connection: Connection,
        mirror: Mirror,
        holder: str,
        counts: JobCounts,
        dispatcher: MakeDispatcher | None = None,
        outcomes: Outcomes | None = None,
        callbacks: Callbacks | None = None,
        needs_replica: bool = False,
        tasks: TaskParts = NO_TASKS,
        scores_of: Callable[[Route], Mapping[str, int]] | None = None,
    ) -> None:
        self._mirror = mirror
        self._scores_of = scores_of
        self._outcomes = outcomes
        self._needs_replica = needs_replica
        self._callbacks = callbacks
        self._connection = connection
        self._holder = holder
        self._make_dispatcher = dispatcher
        self._counts = counts
        self._models = Models(connection, mirror, self._made)
        self._events = JobEvents(connection, self._models.lanes)
        self._buffer = TaskBuffer(tasks.api, lambda: self._models.running, mirror, counts, tasks.timing)
        self._check_push = tasks.check
        self.durability = Durability(connection)
        self._has_ended = asyncio.Event()
        self._pushes = Pushes(self._models, self._has_ended, tasks.timing)
        self._broken: BaseException | None = None
        self._is_leaving = False
        self._burials: set[asyncio.Task[None]] = set()
        counts.is_on = True

    # -- models

    @property
    def models(self) -> Mapping[str, ModelConfig]:
        """All that are known, each with what holds for it."""
        return self._models.known

    async def look(self) -> None:
        """Know what was set on the models by way of another instance a moment ago."""
        await self._models.look()

    async def configure(self, model: str, fields: Mapping[str, Any]) -> ModelConfig:
        """Set what holds for a model: here at once, at other instances within a second. Raises ValidationError,
        InvalidName."""
        if fields.get("buffer", "redis") != "redis" and not self._buffer.is_on:
            raise Refused(BAD_REQUEST, "buffer: jobs_tasks_queues is not set here")
        return await self._models.configure(model, fields)

    async def unconfigure(self, model: str) -> bool:
        """Let the defaults hold again. Whether anything was set."""
        return await self._models.unconfigure(model)

    # -- jobs

    async def submit(self, request: JobRequest) -> Submitted:
        """Take a job: once this returns it is in Redis."""
        model, config = await self._models.of(request.model)
        priority = config.class_of(request.priority)
        if priority is None:
            known = ", ".join(name for name, _ in config.priorities)
            raise Refused(BAD_REQUEST, f"priority: {request.priority!r} is none of {known}")
        try:
            payload = orjson.dumps(request.payload)
        except orjson.JSONEncodeError as error:
            raise Refused(BAD_REQUEST, f"payload: {error}") from None
        if len(payload) > config.payload_limit:
            raise Refused(PAYLOAD_TOO_LARGE, f"payload: {len(payload)} bytes, and {config.payload_limit} may be")
        job = submission_of(request, priority, config.buffer == "cloud-tasks" and self._buffer.is_on)
        if len(job.written) > MOST_KEPT:
            raise Refused(PAYLOAD_TOO_LARGE, f"payload and metadata: {len(job.written)} bytes, {MOST_KEPT} may be")
        try:
            submitted = await model.lane.submit(job)
        except RedisUnavailable as error:
            reason = NOT_REPLICATED if isinstance(error, NotReplicated) else REDIS_DOWN
            if request.id or not error.reached:
                raise Refused(reason, str(error)) from None
            # sent again as it was, it would be another job
            again = f"it may have been taken as job {job.id}: sent again with that job_id it is the same"
            raise Refused(reason, f"{error}; {again}") from None
        if submitted is None:
            raise Refused(IDEMPOTENCY_REUSED, f"job_id: {job.id!r} stands for another job")
        if submitted.state == "buffered":
            self._buffer.wake()
        return submitted

    async def show(self, id_: str, model: str = "", with_result: bool = True) -> JobShown:
        """A job, wherever it stands."""
        lane = await lane_of(self._models, id_, model)
        if lane is not None:
            found = await (lane.show(id_) if with_result else lane.show(id_, 0))
            if found is not None:
                return found
        raise Refused(UNKNOWN_JOB, f"{id_!r} is no job, or ended longer ago than its model's result_ttl")

    async def eta(self, job: JobShown) -> float | None:
        """Seconds until a job that waits will have ended; None where that cannot be known."""
        model = self._models.running.get(job.model)
        if model is None or job.state != "queued" or model.lane.config.paused:
            return None
        line = await model.lane.line(job.id)
        if line is None:
            return None
        return seconds_left(line, dict(model.lane.config.priorities), self._slots_of(job.model, line.running))

    def _slots_of(self, model: str, running: int) -> float:
        """What is held is known as of a second ago; what ran then, and what runs now, is the jobs' own."""
        route, seen = self._mirror.table.routes.get(route_of(model)), self._counts.models.get(model)
        if route is None or self._scores_of is None:
            return 0
        if not route.settings.max_inflight:
            return math.inf
        scores = self._scores_of(route)
        capacity = sum(route.settings.max_inflight * each.spec.slots for each in route.serving)
        taken = sum(scores.get(each.member, 0) for each in route.serving)
        return slots_for(capacity, taken, max(running, seen.processing if seen is not None else 0))

    async def wait(self, id_: str, model: str, seconds: float) -> JobShown:
        """The job once it has ended, or as it stands after so long."""
        until = asyncio.get_running_loop().time() + seconds
        while True:
            found = await self.show(id_, model, with_result=False)  # which is long, and asked for often here
            model = found.model
            left = until - asyncio.get_running_loop().time()
            if found.state in ENDED or left <= 0:
                return await self.show(id_, model)
            await set_within(self._has_ended, min(left, _LOOK / 4))

    async def cancel(self, id_: str, model: str = "") -> str:
        """Cancel a job, one that runs too; the state it was in. Raises Refused where it has ended."""
        lane = await lane_of(self._models, id_, model)
        before = await lane.cancel(id_) if lane is not None else None
        if before is None:
            raise Refused(UNKNOWN_JOB, f"{id_!r} is no job")
        if before in ENDED:
            raise Refused(JOB_ENDED, f"{id_!r} is {before} already")
        return before

    async def listed(self, model: str, kind: str, first: int, most: int) -> tuple[list[JobShown], bool]:
        """Jobs of one model, as `JobLane.ids` names them; whether there may be more behind them."""
        lane = await self._models.lane(model)
        ids = await lane.ids(kind, first, most)
        found = await asyncio.gather(*(lane.show(each, 0) for each in ids))
        return [each for each in found if each is not None], len(ids) == most

    async def names(self) -> list[str]:
        """The models that may have jobs, in their order."""
        return sorted([lane.model async for lane in self._models.lanes("")])

    async def revive(self, id_: str, model: str = "") -> bool:
        """Let a dead job begin again."""
        return any([await lane.revive(id_) async for lane in self._models.lanes(model)])

    async def remove(self, id_: str, model: str = "") -> bool:
        """Forget a dead job."""
        return any([await lane.remove(id_) async for lane in self._models.lanes(model)])

    async def stats(self) -> Mapping[str, ModelStats]:
        """How many jobs of each model are where."""
        return {model: await each.lane.stats() for model, each in sorted(self._models.running.items())}

    @property
    def seen(self) -> Mapping[str, ModelStats]:
        """The same as of the last look, about a second ago."""
        return self._counts.models

    def follow(self, model: str, id_: str) -> AbstractAsyncContextManager[Stream]:
        """As `JobEvents.follow`."""
        return self._events.follow(model, id_)

    # -- what Cloud Tasks sends

    async def check_push(self, headers: Mapping[str, str]) -> None:
        """Raises Refused where it was not Cloud Tasks that sent it."""
        await self._check_push(headers)

    async def push(self, model: str, id_: str, retries: int) -> None:
        """Returns when the job has ended, or there is none. Raises Refused where its task is to be sent again."""
        await self._pushes.take(model, id_, retries)

    # -- its life

    async def prepare(self) -> None:
        """What is to be known before the first job is taken."""
        if self._outcomes is not None:
            await self._outcomes.recover()
        await self.durability.look()

    async def run(self) -> None:
        """Dispatch, and send callbacks, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self._callbacks is not None:
                tasks.create_task(self._callbacks.run(), name="job callbacks")
            if self._outcomes is not None:
                tasks.create_task(self._outcomes.run(), name="job outcomes")
            tasks.create_task(self._buffer.run(), name="job tasks")
            await self._keep_looking()

    async def _keep_looking(self) -> None:
        while True:
            if self._broken is not None:
                raise self._broken
            if not self._is_leaving:
                await self._look()
            raise_if_cancelled()
            await asyncio.sleep(_LOOK)

    async def _look(self) -> None:
        try:
            await self.durability.look()
            await self._models.look()
            self._counts.models = await self.stats()
            for model in self._models.forget(self._counts.models):
                await _quietly(model.lane, self._holder)
                model.task.cancel()
        except (RedisUnavailable, ScriptFailed) as error:
            _log.debug("job_models_not_read", error=str(error))

    def bury(self, instances: Collection[str]) -> None:
        """These instances have died: what they ran begins again, but for what they have left written that it
        ended."""
        task = asyncio.create_task(self._bury(instances))
        self._burials.add(task)
        task.add_done_callback(self._burials.discard)

    async def _bury(self, instances: Collection[str]) -> None:
        if self._outcomes is not None:
            await self._outcomes.recover()
            for name, model in self._models.running.items():
                if model.dispatcher is not None:
                    model.dispatcher.resume(self._outcomes.found_of(name))
            await asyncio.sleep(0)  # outcomes are told first
        lanes = [model.lane for model in self._models.running.values()]
        await asyncio.gather(*(_quietly(lane, each) for lane in lanes for each in instances))

    async def leave(self, seconds: float) -> None:
        """Begin nothing more; what runs has so long to end, and callbacks that are sent have what is left of it.
        Then others go on."""
        loop, self._is_leaving = asyncio.get_running_loop(), True
        self._events.close()
        self._pushes.is_leaving = True
        models, until = list(self._models.running.values()), loop.time() + seconds
        await asyncio.gather(*(each.dispatcher.leave(seconds) for each in models if each.dispatcher is not None))
        if self._callbacks is not None:
            await self._callbacks.leave(max(0.0, until - loop.time()))
        await asyncio.gather(*(_quietly(each.lane, self._holder) for each in models))
        for each in models:
            each.task.cancel()
        await asyncio.gather(*(each.task for each in models), return_exceptions=True)
        if self._outcomes is not None:
            await self._outcomes.aclose()

    def _made(self, model: str) -> Model:
        """A lane and its dispatcher need each other."""

        def on_pulse(pulse: Pulse) -> None:
            if dispatcher is not None:
                dispatcher.pulse(pulse)
            if self._callbacks is not None:
                self._callbacks.pulse(lane, pulse)

        def attempts() -> Iterable[tuple[str, str]]:
            return dispatcher.attempts() if dispatcher is not None else ()

        make = self._make_dispatcher
        lane = JobLane(
            self._connection,
            model,
            self._holder,
            attempts,
            on_pulse,
            needs_replica=self._needs_replica,
            dispatches=make is not None,
        )
        dispatcher = make(lane, self._note_end, self._models) if make is not None else None
        if dispatcher is not None and self._outcomes is not None:
            dispatcher.resume(self._outcomes.found_of(model))
        task = asyncio.create_task((dispatcher or lane).run(), name=f"jobs {model}")
        task.add_done_callback(self._lane_ended)
        return Model(lane, dispatcher, task)

    def _lane_ended(self, task: asyncio.Task[None]) -> None:
        """Without it the model's jobs would stand still: the process ends with it."""
        if not task.cancelled():
            self._broken = task.exception()

    def _note_end(self) -> None:
        self._has_ended.set()
        self._has_ended.clear()


async def _quietly(lane: JobLane, holder: str) -> None:
    """Where Redis is away the lease ends by itself."""
    try:
        await lane.bury(holder)
    except (RedisUnavailable, ScriptFailed) as error:
        _log.debug("job_holder_not_buried", model=lane.model, error=str(error))

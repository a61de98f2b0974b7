"""Jobs that wait for tasks of Cloud Tasks: each has a task made, and looked for, and a model's queue follows its
slots."""

import asyncio
from collections.abc import Callable, Mapping

import structlog

from slb.control.jobs import JobLane
from slb.errors import RedisUnavailable, ScriptFailed, TasksFailed
from slb.job import Buffered, route_of
from slb.jobs.cloud_tasks import CloudTasks, TaskTiming
from slb.jobs.models import Model
from slb.lifecycle import set_within
from slb.observe.jobs import JobCounts
from slb.routing.mirror import Mirror

_MOST_TAKEN = 256
_AGAIN = 60.0
"""Seconds before a queue is put again that could not be."""

_log = structlog.get_logger("slb.jobs")


class TaskBuffer:
    """Of one instance. Where `tasks` is None, since there are no settings for them, and for models that have
    another buffer now, it lets those jobs wait for slots whose tasks are due. `running` gives the models there are
    here."""

    def __init__(
        self,
        tasks: CloudTasks | None,
        running: Callable[[], Mapping[str, Model]],
        mirror: Mirror,
        counts: JobCounts,
        timing: TaskTiming,
    ) -> None:
        self._tasks = tasks
        self._running = running
        self._mirror = mirror
        self._counts = counts
        self._timing = timing
        self._has_new = asyncio.Event()
        self._queues: dict[str, tuple[int, float]] = {}
        self._errors: dict[str, str] = {}

    @property
    def is_on(self) -> bool:
        """Whether this instance has the settings."""
        return self._tasks is not None

    def wake(self) -> None:
        """A job waits for its task."""
        self._has_new.set()

    async def run(self) -> None:
        """Make tasks until cancelled."""
        try:
            while True:
                await set_within(self._has_new, self._timing.look)
                self._has_new.clear()
                for model in list(self._running().values()):
                    try:
                        await self._look(model.lane)
                    except (RedisUnavailable, ScriptFailed) as error:  # the lane says so
                        _log.debug("job_tasks_not_looked_at", model=model.lane.model, error=str(error))
        finally:
            if self._tasks is not None:
                await self._tasks.aclose()

    async def _look(self, lane: JobLane) -> None:
        known = self._counts.models.get(lane.model)
        is_buffered = lane.config.buffer == "cloud-tasks" and self._tasks is not None
        if is_buffered and self._tasks is not None:
            await self._follow_slots(lane.model, self._tasks)
        elif known is None or not known.buffered:
            return
        taken = await lane.buffered(self._timing.hold, _MOST_TAKEN)
        if not is_buffered or self._tasks is None:
            await asyncio.gather(*(lane.release(each.id) for each in taken))
            return
        failures = [each for each in await asyncio.gather(*(self._make(lane, each) for each in taken)) if each]
        if failures:
            self._counts.tasks[lane.model, "failed"] += len(failures)
            self._note(lane.model, failures[0])
        elif taken:
            self._errors.pop(lane.model, None)
        if len(taken) == _MOST_TAKEN and not failures:
            self._has_new.set()

    async def _make(self, lane: JobLane, job: Buffered) -> str:
        """Why the task of a job could not be made; empty where it was, or is there."""
        assert self._tasks is not None
        number = job.tasks
        try:
            if not number or not await self._tasks.has(lane.model, job, number):
                number += 1
                is_new = await self._tasks.create(lane.model, lane.config, job, number)
                self._counts.tasks[lane.model, "created" if is_new else "known"] += 1
        except TasksFailed as error:
            if error.status == 404:  # there is no such queue
                self._queues.pop(lane.model, None)
            return str(error)
        await lane.note_task(job, number, self._timing.lost)
        return ""

    async def _follow_slots(self, model: str, tasks: CloudTasks) -> None:
        """One that may not change queues makes tasks all the same."""
        if not self._mirror.ready:
            return
        route = self._mirror.table.routes.get(route_of(model))
        slots = 0
        if route is not None:
            slots = sum(each.spec.slots for each in route.upstreams) * (route.settings.max_inflight or 1)
        now = asyncio.get_running_loop().time()
        put, until = self._queues.get(model, (-1, 0.0))
        if slots == put and now < until:
            return
        try:
            await tasks.put_queue(model, slots)
        except TasksFailed as error:
            self._queues[model] = (slots, now + _AGAIN)
            self._note(model, str(error))
        else:
            self._queues[model] = (slots, float("inf"))
            _log.info("job_queue_put", model=model, slots=slots)

    def _note(self, model: str, error: str) -> None:
        """Once, until it is another."""
        if self._errors.get(model) != error:
            self._errors[model] = error
            _log.warning("job_tasks_failed", model=model, error=error)

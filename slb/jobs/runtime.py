"""What works at the jobs of one instance, from its start to its end: a lane and a dispatcher for each model."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

import structlog

from slb.control.cancelled import raise_if_cancelled
from slb.control.connection import Connection
from slb.control.durability import Durability
from slb.control.job_replies import Pulse
from slb.control.jobs import JobLane
from slb.errors import RedisUnavailable, ScriptFailed
from slb.job import Claimed
from slb.jobs.buffer import TaskBuffer
from slb.jobs.callbacks import Callbacks
from slb.jobs.dispatcher import Dispatcher, Means
from slb.jobs.ends import Ends
from slb.jobs.events import JobEvents
from slb.jobs.models import Model, Models
from slb.jobs.pushes import Pushes
from slb.jobs.task_parts import NO_TASKS, TaskParts
from slb.observe.jobs import JobCounts
from slb.routing.mirror import Mirror

LOOK = 1.0
"""Seconds between two looks at what is set on the models, and at how many jobs are where."""

_log = structlog.get_logger("slb.jobs")


class Runs(NamedTuple):
    """What an instance has that runs jobs: what its dispatchers have in common, and what sends callbacks."""

    means: Means
    callbacks: Callbacks


class JobRuntime:
    """Without `runs` this process takes jobs and tells of them, and others run them: a supervisor's.
    With `needs_replica` a job is taken once a replica of Redis has it. `ends` tells of attempts that have ended
    here."""

    def __init__(
        self,
        connection: Connection,
        mirror: Mirror,
        holder: str,
        counts: JobCounts,
        runs: Runs | None = None,
        needs_replica: bool = False,
        tasks: TaskParts = NO_TASKS,
    ) -> None:
        self._connection = connection
        self._holder = holder
        self._runs = runs
        self._needs_replica = needs_replica
        self.counts = counts
        self.models = Models(connection, mirror, self._made)
        self.events = JobEvents(connection, self.models)
        self.buffer = TaskBuffer(tasks.api, lambda: self.models.running, mirror, counts, tasks.timing)
        self.durability = Durability(connection)
        self.ends = Ends()
        self.pushes = Pushes(self.models, self.ends, tasks.check, tasks.timing)
        self._broken: BaseException | None = None
        self._is_leaving = False
        self._burials: set[asyncio.Task[None]] = set()
        counts.is_on = True

    async def prepare(self) -> None:
        """What is to be known before the first job is taken."""
        if self._runs is not None:
            await self._runs.means.outcomes.recover()
        await self.durability.look()

    async def run(self) -> None:
        """Dispatch, and send callbacks, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self._runs is not None:
                tasks.create_task(self._runs.callbacks.run(), name="job callbacks")
                tasks.create_task(self._runs.means.outcomes.run(), name="job outcomes")
            tasks.create_task(self.buffer.run(), name="job tasks")
            await self._keep_looking()

    async def _keep_looking(self) -> None:
        while True:
            if self._broken is not None:
                raise self._broken
            if not self._is_leaving:
                await self._look()
            raise_if_cancelled()
            await asyncio.sleep(LOOK)

    async def _look(self) -> None:
        try:
            await self.durability.look()
            await self.models.look()
            self.counts.models = await self.models.stats()
            await self.models.note_jobs([model for model, each in self.counts.models.items() if not each.is_empty])
            for model in await self.models.forget(self.counts.models):
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
        if self._runs is not None:
            outcomes = self._runs.means.outcomes
            await outcomes.recover()
            for name, model in self.models.running.items():
                if model.dispatcher is not None:
                    model.dispatcher.resume(outcomes.found_of(name))
            await asyncio.sleep(0)  # outcomes are told first
        lanes = [model.lane for model in self.models.running.values()]
        await asyncio.gather(*(_quietly(lane, each) for lane in lanes for each in instances))

    async def leave(self, seconds: float) -> None:
        """Begin nothing more; what runs has so long to end, and callbacks that are sent have what is left of it.
        Then others go on."""
        loop, self._is_leaving = asyncio.get_running_loop(), True
        self.events.close()
        self.pushes.is_leaving = True
        models, until = list(self.models.running.values()), loop.time() + seconds
        await asyncio.gather(*(each.dispatcher.leave(seconds) for each in models if each.dispatcher is not None))
        if self._runs is not None:
            await self._runs.callbacks.leave(max(0.0, until - loop.time()))
        await asyncio.gather(*(_quietly(each.lane, self._holder) for each in models))
        for each in models:
            each.task.cancel()
        await asyncio.gather(*(each.task for each in models), return_exceptions=True)
        if self._runs is not None:
            await self._runs.means.outcomes.aclose()

    # -- one model

    def _made(self, model: str) -> Model:
        lane, dispatcher = self._lane_alone(model) if self._runs is None else self._lane_of(model, self._runs)
        task = asyncio.create_task((dispatcher or lane).run(), name=f"jobs {model}")
        task.add_done_callback(self._lane_ended)
        return Model(lane, dispatcher, task)

    def _lane_alone(self, model: str) -> tuple[JobLane, None]:
        return self._lane(model, lambda: (), lambda pulse: None), None

    def _lane_of(self, model: str, runs: Runs) -> tuple[JobLane, Dispatcher]:
        """A lane and its dispatcher need each other."""

        def on_pulse(pulse: Pulse) -> None:
            dispatcher.pulse(pulse)
            runs.callbacks.pulse(lane, pulse)

        lane = self._lane(model, lambda: dispatcher.attempts(), on_pulse)
        dispatcher = Dispatcher(lane, runs.means, self._note_end, self.models)
        dispatcher.resume(runs.means.outcomes.found_of(model))
        return lane, dispatcher

    def _lane(
        self, model: str, attempts: Callable[[], Iterable[tuple[str, str]]], on_pulse: Callable[[Pulse], None]
    ) -> JobLane:
        return JobLane(
            self._connection,
            model,
            self._holder,
            attempts,
            on_pulse,
            needs_replica=self._needs_replica,
            dispatches=self._runs is not None,
        )

    def _lane_ended(self, task: asyncio.Task[None]) -> None:
        """Without it the model's jobs would stand still: the process ends with it."""
        if not task.cancelled():
            self._broken = task.exception()

    def _note_end(self, job: Claimed) -> None:
        self.ends.tell(job.model, job.id)


async def _quietly(lane: JobLane, holder: str) -> None:
    """Where Redis is away the lease ends by itself."""
    try:
        await lane.bury(holder)
    except (RedisUnavailable, ScriptFailed) as error:
        _log.debug("job_holder_not_buried", model=lane.model, error=str(error))

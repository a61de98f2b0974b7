"""What callers submit and ask of one instance's jobs."""

import asyncio
import math
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from slb.errors import (
    BAD_REQUEST,
    IDEMPOTENCY_REUSED,
    JOB_ENDED,
    NOT_REPLICATED,
    REDIS_DOWN,
    STALE_ATTEMPT,
    UNKNOWN_JOB,
    NotReplicated,
    RedisUnavailable,
    Refused,
)
from slb.job import ENDED, JobRequest, JobShown, ModelConfig, ModelStats, Submitted, route_of
from slb.jobs.eta import seconds_left, slots_for
from slb.jobs.events import Stream
from slb.jobs.finding import lane_of
from slb.jobs.runtime import JobRuntime
from slb.jobs.submission import submission_of
from slb.jobs.telling import note_word
from slb.jobs.verdict import told_by
from slb.jobs.waits import Waits
from slb.routing.mirror import Mirror
from slb.routing.table import Route

ScoresOf = Callable[[Route], Mapping[str, int]]
"""How many slots of each member of a route are in use."""


class JobService:
    """All raise Refused, RedisUnavailable and ScriptFailed. Without `scores_of` it is not known when a job
    will have ended. `runtime` works at the jobs."""

    def __init__(self, runtime: JobRuntime, mirror: Mirror, scores_of: ScoresOf | None = None) -> None:
        self.runtime = runtime
        self._models = runtime.models
        self._buffer = runtime.buffer
        self._events = runtime.events
        self._pushes = runtime.pushes
        self._counts = runtime.counts
        self._waits = Waits(lambda id_, model: self.show(id_, model, with_result=False), runtime.ends)
        self._mirror = mirror
        self._scores_of = scores_of

    # -- models

    @property
    def models(self) -> Mapping[str, ModelConfig]:
        """All that are known, each with what holds for it."""
        return self._models.known

    @property
    def configured(self) -> Mapping[str, ModelConfig]:
        """Those on which anything was set, each with what holds for it."""
        return self._models.configured

    async def look(self) -> None:
        """Know what was set on the models by way of another instance a moment ago."""
        await self._models.look()

    async def configure(
        self, model: str, fields: Mapping[str, Any], is_change: bool = False, dry_run: bool = False
    ) -> ModelConfig:
        """As `Models.configure`: here at once, at other instances within a second."""
        if fields.get("buffer") not in (None, "redis") and not self._buffer.is_on:
            raise Refused(BAD_REQUEST, "buffer: jobs_tasks_queues is not set here")
        return await self._models.configure(model, fields, is_change, dry_run)

    def check_room(self, models: Collection[str]) -> None:
        """As `Models.check_room`."""
        self._models.check_room(models)

    async def unconfigure(self, model: str) -> bool:
        """Let the defaults hold again. Whether anything was set."""
        return await self._models.unconfigure(model)

    # -- jobs

    def slotless(self, member: str) -> int:
        """Jobs that run at `member` and have no slot there: an instance that died began them, this one follows."""
        dispatchers = [each.dispatcher for each in self._models.running.values()]
        return sum(each.slotless(member) for each in dispatchers if each is not None)

    async def submit(self, request: JobRequest) -> Submitted:
        """Take a job: once this returns it is in Redis."""
        model, config = await self._models.of(request.model)
        priority = config.class_of(request.priority)
        if priority is None:
            known = ", ".join(name for name, _ in config.priorities)
            raise Refused(BAD_REQUEST, f"priority: {request.priority!r} is none of {known}")
        is_buffered = config.buffer == "cloud-tasks" and self._buffer.is_on
        job = submission_of(request, priority, is_buffered, config.payload_limit)
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

    async def wait(
        self, id_: str, model: str, seconds: float, is_wanted: Callable[[], bool] = lambda: True
    ) -> JobShown:
        """The job once it has ended, or as it stands after so long; without its result once it is not wanted."""
        found = await self._waits.until_ended(id_, model, seconds, is_wanted)
        return await self.show(id_, found.model) if is_wanted() else found

    async def cancel(self, id_: str, model: str = "") -> str:
        """Cancel a job, one that runs too; the state it was in. Raises Refused where it has ended."""
        lane = await lane_of(self._models, id_, model)
        before = await lane.cancel(id_) if lane is not None else None
        if before is None:
            raise Refused(UNKNOWN_JOB, f"{id_!r} is no job")
        if before in ENDED:
            raise Refused(JOB_ENDED, f"{id_!r} is {before} already")
        return before

    async def report(self, id_: str, token: str, model: str, told: Any, text: bytes) -> None:
        """A GPU tells how an attempt goes; `text`: the same as JSON. What is no end leaves an end that it has told
        before. Raises Refused where that is not the latest one, or has ended."""
        lane, verdict = await lane_of(self._models, id_, model), told_by(told, text)
        end = b"" if verdict.kind == "processing" else text
        is_taken = await lane.report(id_, token, end, verdict.progress) if lane is not None else None
        if is_taken and lane is not None and verdict.new_word:
            note_word(self._counts, lane.model, verdict)
        if is_taken is None:
            raise Refused(UNKNOWN_JOB, f"{id_!r} is no job")
        if not is_taken:
            raise Refused(STALE_ATTEMPT, f"attempt {token} of {id_!r} is not its latest, or has ended")

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
        """Let a dead or failed job begin again."""
        lane = await lane_of(self._models, id_, model)
        return lane is not None and await lane.revive(id_)

    async def remove(self, id_: str, model: str = "") -> bool:
        """Forget a dead or failed job."""
        lane = await lane_of(self._models, id_, model)
        return lane is not None and await lane.remove(id_)

    async def stats(self) -> Mapping[str, ModelStats]:
        """How many jobs of each model are where. Raises Refused where it is not known yet which models there are:
        none would be a lie."""
        await self._models.follow("")
        return await self._models.stats()

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
        await self._pushes.check(headers)

    async def push(self, model: str, id_: str, retries: int, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Returns when the job has ended, or there is none. Raises Refused where its task is to be sent again."""
        await self._pushes.take(model, id_, retries, is_wanted)

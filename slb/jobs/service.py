"""The job dispatcher of one instance: what callers submit and ask, and a dispatcher for each model."""

import asyncio
import hashlib
import math
from collections.abc import Collection, Mapping
from itertools import islice
from random import Random
from typing import Any
from uuid import uuid4

import orjson
import structlog
from pydantic import ValidationError

from slb.admission.gates import Gates
from slb.control.connection import Connection
from slb.control.durability import Durability
from slb.control.jobs import JobLane, JobModels, Pulse
from slb.errors import (
    BAD_REQUEST,
    IDEMPOTENCY_REUSED,
    JOB_ENDED,
    NOT_READY,
    PAYLOAD_TOO_LARGE,
    TOO_MANY_MODELS,
    UNKNOWN_JOB,
    UNKNOWN_MODEL,
    InvalidName,
    RedisUnavailable,
    Refused,
    ScriptFailed,
)
from slb.job import ENDED, ROUTE, JobRequest, JobShown, ModelConfig, ModelStats, Submission, Submitted
from slb.jobs.attempt import Caller
from slb.jobs.callbacks import Callbacks
from slb.jobs.dispatcher import Dispatcher
from slb.lifecycle import set_within
from slb.observe.jobs import JobCounts
from slb.quotas import MOST_MODELS, checked_model
from slb.routing.mirror import Mirror

_LOOK = 1.0
"""Seconds between two looks at what is set on the models, and at how many jobs are where."""

_OLD = 0.1
"""Seconds before they are read again for a model that is not known."""

_log = structlog.get_logger("slb.jobs")


class _Model:
    """One model here: its lane, its dispatcher, and the task that runs the lane."""

    def __init__(self, lane: JobLane, dispatcher: Dispatcher, task: asyncio.Task[None]) -> None:
        self.lane = lane
        self.dispatcher = dispatcher
        self.task = task


class JobService:
    """A model is known where it was configured, or where an upstream is registered for it. All that callers ask
    raises Refused, RedisUnavailable and ScriptFailed."""

    def __init__(
        self,
        connection: Connection,
        gates: Gates,
        mirror: Mirror,
        holder: str,
        call: Caller,
        callbacks: Callbacks,
        counts: JobCounts,
        rng: Random,
    ) -> None:
        self._callbacks = callbacks
        self._connection = connection
        self._gates = gates
        self._mirror = mirror
        self._holder = holder
        self._call = call
        self._counts = counts
        self._rng = rng
        self._stored = JobModels(connection)
        self.durability = Durability(connection)
        self._configs: Mapping[str, ModelConfig] = {}
        self._models: dict[str, _Model] = {}
        self._looked = -math.inf
        self._has_news = asyncio.Event()
        self._has_ended = asyncio.Event()
        counts.is_on = True

    # -- models

    @property
    def models(self) -> Mapping[str, ModelConfig]:
        """All that are known, each with what holds for it."""
        routed = (path.removeprefix(ROUTE) for path in self._mirror.table.routes if path.startswith(ROUTE))
        return {**dict.fromkeys(routed, ModelConfig()), **self._configs}

    async def configure(self, model: str, fields: Mapping[str, Any]) -> ModelConfig:
        """Set what holds for a model from the next job on. Raises ValidationError, InvalidName."""
        config = ModelConfig.model_validate(fields)
        if model not in self.models and len(self.models) >= MOST_MODELS:
            raise Refused(TOO_MANY_MODELS, f"there are {MOST_MODELS} models, and no more may be")
        await self._stored.put(checked_model(model), config.model_dump(mode="json", exclude_defaults=True))
        await self._look()
        return config

    async def unconfigure(self, model: str) -> bool:
        """Let the defaults hold again. Whether anything was set."""
        was_set = await self._stored.delete(model)
        await self._look()
        return was_set

    # -- jobs

    async def submit(self, request: JobRequest) -> Submitted:
        """Take a job: once this returns it is in Redis."""
        model, config = await self._model(request.model)
        priority = config.class_of(request.priority)
        if priority is None:
            known = ", ".join(name for name, _ in config.priorities)
            raise Refused(BAD_REQUEST, f"priority: {request.priority!r} is none of {known}")
        payload = orjson.dumps(request.payload)
        if len(payload) > config.payload_limit:
            raise Refused(PAYLOAD_TOO_LARGE, f"payload: {len(payload)} bytes, and {config.payload_limit} may be")
        job = _submission(request, priority)
        submitted = await model.lane.submit(job)
        if submitted is None:
            raise Refused(IDEMPOTENCY_REUSED, f"job_id: {job.id!r} stands for another job")
        return submitted

    async def show(self, id_: str, model: str = "") -> JobShown:
        """A job, wherever it stands."""
        for lane in await self._lanes(model):
            if (found := await lane.show(id_)) is not None:
                return found
        raise Refused(UNKNOWN_JOB, f"{id_!r} is no job, or ended longer ago than its model's result_ttl")

    async def wait(self, id_: str, model: str, seconds: float) -> JobShown:
        """The job once it has ended, or as it stands after so long."""
        until = asyncio.get_running_loop().time() + seconds
        while True:
            found = await self.show(id_, model)
            left = until - asyncio.get_running_loop().time()
            if found.state in ENDED or left <= 0:
                return found
            await set_within(self._has_ended, min(left, _LOOK / 4))

    async def cancel(self, id_: str, model: str = "") -> str:
        """Cancel a job, one that runs too; the state it was in. Raises Refused where it has ended."""
        for lane in await self._lanes(model):
            before = await lane.cancel(id_)
            if before in ENDED:
                raise Refused(JOB_ENDED, f"{id_!r} is {before} already")
            if before is not None:
                return before
        raise Refused(UNKNOWN_JOB, f"{id_!r} is no job")

    async def listed(self, model: str, kind: str, first: int, most: int) -> list[JobShown]:
        """Jobs of one model, as `JobLane.ids` names them."""
        lane = (await self._model(model))[0].lane
        ids = await lane.ids(kind, first, most)
        found = await asyncio.gather(*(lane.show(each, with_result=False) for each in ids))
        return [each for each in found if each is not None]

    async def revive(self, id_: str, model: str = "") -> bool:
        """Let a dead job begin again."""
        return any([await lane.revive(id_) for lane in await self._lanes(model)])

    async def remove(self, id_: str, model: str = "") -> bool:
        """Forget a dead job."""
        return any([await lane.remove(id_) for lane in await self._lanes(model)])

    async def stats(self) -> Mapping[str, ModelStats]:
        """How many jobs of each model are where."""
        return {model: await each.lane.stats() for model, each in sorted(self._models.items())}

    # -- its life

    async def run(self) -> None:
        """Dispatch, and send callbacks, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._callbacks.run(), name="job callbacks")
            await self._keep_looking()

    async def _keep_looking(self) -> None:
        while True:
            try:
                await self.durability.look()
                await self._look()
                self._counts.models = await self.stats()
            except (RedisUnavailable, ScriptFailed) as error:
                _log.debug("job_models_not_read", error=str(error))
            self._has_news.clear()
            await set_within(self._has_news, _LOOK)

    def bury(self, instances: Collection[str]) -> None:
        """These instances have died: what they ran begins again."""
        for model in self._models.values():
            for each in instances:
                task = asyncio.ensure_future(_quietly(model.lane, each))
                task.add_done_callback(lambda _: None)

    async def leave(self, seconds: float) -> None:
        """Begin nothing more; what runs has so long to end, and callbacks that are sent have what is left of it.
        Then others go on."""
        loop = asyncio.get_running_loop()
        models, until = list(self._models.values()), loop.time() + seconds
        await asyncio.gather(*(each.dispatcher.leave(seconds) for each in models))
        await self._callbacks.leave(max(0.0, until - loop.time()))
        await asyncio.gather(*(_quietly(each.lane, self._holder) for each in models))
        for each in models:
            each.task.cancel()
        await asyncio.gather(*(each.task for each in models), return_exceptions=True)

    async def _look(self) -> None:
        """Follow what is set on the models."""
        configs = {model: config for model, text in (await self._stored.all()).items() if (config := _config(text))}
        self._configs, self._looked = configs, asyncio.get_running_loop().time()
        for model, config in islice(self.models.items(), MOST_MODELS):
            known = self._models.get(model)
            if known is None:
                known = self._models[model] = self._made(model)
            known.lane.config = config
            known.dispatcher.seek()

    def _made(self, model: str) -> _Model:
        """A lane and its dispatcher need each other."""

        def on_pulse(pulse: Pulse) -> None:
            dispatcher.pulse(pulse)
            self._callbacks.pulse(lane, pulse)

        lane = JobLane(self._connection, model, self._holder, lambda: dispatcher.attempts(), on_pulse)
        dispatcher = Dispatcher(
            lane, self._gates, self._mirror, self._call, self._counts, self._rng, self._note_end
        )
        return _Model(lane, dispatcher, asyncio.create_task(lane.run(), name=f"jobs {model}"))

    def _note_end(self) -> None:
        self._has_ended.set()
        self._has_ended.clear()

    async def _follow(self, name: str) -> None:
        """Know what was set a moment ago, by way of another instance too: of a model that is not known here, or of
        any, where nothing has been read yet. Names are a stranger's, so this is not done for each of them."""
        is_old = asyncio.get_running_loop().time() - self._looked > _OLD
        if self._looked == -math.inf or (name and name not in self.models and is_old):
            await self._look()
        if not self._mirror.ready and name not in self.models:
            raise Refused(NOT_READY, "the first table is not loaded yet")

    async def _model(self, name: str) -> tuple[_Model, ModelConfig]:
        await self._follow(name)
        known, model = self.models, self._models.get(name)
        if name not in known:
            names = ", ".join(sorted(known)) or "none yet"
            raise Refused(UNKNOWN_MODEL, f"model: {name[:200]!r} is not known; known: {names}")
        if model is None:  # registered a moment ago
            model = self._models[name] = self._made(name)
            model.lane.config = known[name]
        return model, known[name]

    async def _lanes(self, name: str) -> list[JobLane]:
        """Of the model, where it is named; else of all."""
        if name:
            return [(await self._model(name))[0].lane]
        await self._follow("")
        return [each.lane for each in self._models.values()]


def _config(fields: Mapping[str, Any]) -> ModelConfig | None:
    """None where another version wrote what this one does not take."""
    try:
        return ModelConfig.model_validate(fields)
    except (ValidationError, InvalidName) as error:
        _log.warning("job_model_not_readable", error=str(error).splitlines()[0])
        return None


def _submission(request: JobRequest, priority: str) -> Submission:
    kept = {
        "payload": request.payload,
        "callback_url": request.callback_url,
        "metadata": request.metadata,
        "max_retries": request.max_retries,
    }
    written = orjson.dumps({name: value for name, value in kept.items() if value not in (None, "")})
    digest = hashlib.blake2b(
        orjson.dumps([request.model, request.priority, request.deadline, kept], option=orjson.OPT_SORT_KEYS),
        digest_size=16,
    )
    return Submission(
        model=request.model,
        id=request.id or uuid4().hex,
        priority=priority,
        digest=digest.hexdigest(),
        written=written,
        deadline=round(request.deadline * 1000),
        calls_back=bool(request.callback_url),
    )


async def _quietly(lane: JobLane, holder: str) -> None:
    """Where Redis is away the lease ends by itself."""
    try:
        await lane.bury(holder)
    except (RedisUnavailable, ScriptFailed) as error:
        _log.debug("job_holder_not_buried", model=lane.model, error=str(error))

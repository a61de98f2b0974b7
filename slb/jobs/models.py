"""The models that this instance dispatches for: what is set on each, its lane, its dispatcher."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from functools import lru_cache
from typing import Any

import orjson
import structlog
from pydantic import ValidationError

from slb.control.connection import Connection
from slb.control.job_models import JobModels
from slb.control.jobs import JobLane
from slb.errors import NOT_READY, TOO_MANY_MODELS, UNKNOWN_MODEL, InvalidName, Refused
from slb.job import ModelConfig, ModelStats, model_of, route_of
from slb.jobs.dispatcher import Dispatcher
from slb.jobs.lock_sync import LockSync
from slb.quotas import MOST_MODELS, checked_model
from slb.routing.mirror import Mirror
from slb.routing.table import Table

_OLD = 0.1
"""Seconds before the models are read again for one that is not known."""

_STAYING = {"endpoint", "paused"}
"""Settings that stay where they are not put: GPUs set the one by their registration, operators the other."""

_MOST_NAMED = 10
_NO_MORE = f"there are {MOST_MODELS} models of jobs, and no more may be"
_log = structlog.get_logger("slb.jobs")


class Model:
    """One model here: its lane, its dispatcher where this process has one, and the task that runs the lane."""

    def __init__(self, lane: JobLane, dispatcher: Dispatcher | None, task: asyncio.Task[None]) -> None:
        self.lane = lane
        self.dispatcher = dispatcher
        self.task = task

    @property
    def is_idle(self) -> bool:
        """Whether nothing of it runs here."""
        return self.dispatcher is None or self.dispatcher.is_idle


class Models:
    """A model is known where it was configured, or where an upstream is registered for it. `make` makes what a
    model has here; `running` is all of it. What awaits raises RedisUnavailable."""

    def __init__(self, connection: Connection, mirror: Mirror, make: Callable[[str], Model]) -> None:
        self.running: dict[str, Model] = {}
        self._mirror = mirror
        self._make = make
        self._stored = JobModels(connection)
        self._configs: Mapping[str, ModelConfig] = {}
        self._known_by: tuple[Table | None, Mapping[str, ModelConfig], Mapping[str, ModelConfig]] = (None, {}, {})
        self._looked = -math.inf
        self._with_jobs: set[str] = set()
        self._changing = asyncio.Lock()  # what a change leaves as it is was read before

    @property
    def known(self) -> Mapping[str, ModelConfig]:
        """All that are known, each with what holds for it. Each submit asks for them, and there may be thousands of
        routes: they are gone through once for each table."""
        table, configs = self._mirror.table, self._configs
        if self._known_by[0] is not table or self._known_by[1] is not configs:
            routed = (model for path in table.routes if (model := model_of(path)) is not None)
            self._known_by = table, configs, {**dict.fromkeys(routed, ModelConfig()), **configs}
        return self._known_by[2]

    @property
    def configured(self) -> Mapping[str, ModelConfig]:
        """Those on which anything was set, each with what holds for it."""
        return self._configs

    def config_of(self, model: str) -> ModelConfig:
        """What holds for a model, known or not."""
        return self._configs.get(model) or ModelConfig()

    def sync_of(self, model: str) -> LockSync | None:
        """What holds a model's slots back; None where it has none here."""
        known = self.running.get(model)
        return known.dispatcher.sync if known is not None and known.dispatcher is not None else None

    async def configure(
        self, model: str, fields: Mapping[str, Any], is_change: bool = False, dry_run: bool = False
    ) -> ModelConfig:
        """Set what holds for a model; without `endpoint` or `paused` these stay. `is_change`: all stays that is not
        in `fields`, and None resets one. `dry_run`: nothing is written. Raises ValidationError, InvalidName, and
        Refused where there are too many."""
        async with self._changing:
            return await self._configure(model, fields, is_change, dry_run)

    async def _configure(
        self, model: str, fields: Mapping[str, Any], is_change: bool, dry_run: bool
    ) -> ModelConfig:
        await self.look()  # a GPU's registration elsewhere may have set the path a moment ago
        known = self.config_of(model)
        kept = known.model_dump(exclude_defaults=True) if is_change else known.model_dump(include=_STAYING)
        resets = {
            name for name in fields if is_change and name in ModelConfig.model_fields and fields[name] is None
        }
        every = {**kept, **fields}
        config = ModelConfig.model_validate({name: every[name] for name in every if name not in resets})
        if model in config.fallback_models:
            raise InvalidName(f"fallback_models: {model!r} is the model itself")
        self.check_room([model])
        if dry_run:
            checked_model(model)
            return config
        await self._stored.put(checked_model(model), config.model_dump(mode="json", exclude_defaults=True))
        await self.look()
        return config

    def check_room(self, models: Collection[str]) -> None:
        """Raises Refused where there are too many models for these to be known besides."""
        known = self.known
        new = {each for each in models if each not in known}
        if new and len(known) + len(new) > MOST_MODELS:
            raise Refused(TOO_MANY_MODELS, _NO_MORE)

    async def unconfigure(self, model: str) -> bool:
        """Let the defaults hold again, but for the path of the GPUs that are registered, and a pause. Whether
        anything else was set."""
        await self.look()
        config = self.config_of(model)
        record = self._mirror.records.get(route_of(model))
        has_gpu = record is not None and bool(record.members)
        stays = config.model_dump(include=_STAYING if has_gpu else {"paused"}, exclude_defaults=True)
        if stays:
            was_set = config != ModelConfig(**stays)
            await self._stored.put(model, stays)
        else:
            was_set = await self._stored.delete(model)
        await self.look()
        return was_set

    async def look(self) -> None:
        """Follow what is set on the models."""
        routed = set(self.known)  # what is set on a model is written before its route: it is read after that
        stored = await self._stored.all()
        configs = {model: config for model, text in stored.items() if (config := _config(model, text))}
        self._configs, self._looked = configs, asyncio.get_running_loop().time()
        self._with_jobs = await self._stored.with_jobs()
        begun = {model: config for model, config in self.known.items() if model in routed or model in configs}
        for model in {**dict.fromkeys(self._with_jobs), **dict.fromkeys(configs), **begun}:
            known = self.running.get(model)
            if known is None and (len(self.running) < MOST_MODELS or model in self._with_jobs):
                known = self.running[model] = self._make(model)
            if known is None or model not in begun:
                continue
            known.lane.config = begun[model]
            if known.dispatcher is not None:
                known.dispatcher.seek()
        await self.note_jobs([model for model in begun if model in self.running])

    async def note_jobs(self, models: Collection[str]) -> None:
        """These may have jobs: instances that start know them by that, whatever else is forgotten."""
        if new := [each for each in models if each not in self._with_jobs]:
            await self._stored.note_jobs(new)
            self._with_jobs.update(new)

    async def stats(self) -> Mapping[str, ModelStats]:
        """How many jobs of each model are where."""
        return {model: await each.lane.stats() for model, each in sorted(self.running.items())}

    async def forget(self, stats: Mapping[str, ModelStats]) -> list[Model]:
        """Those that are known no more and have no jobs, by `stats`: what they have here is to end. A job may have
        come since they were read, and none comes to what is not known: they are read again."""
        gone = []
        for name in self._unused(stats):
            again = {name: await self.running[name].lane.stats()}
            if self._unused(again):
                gone.append(self.running.pop(name))
                self._with_jobs.discard(name)
                await self._stored.forget_jobs(name)
        return gone

    def _unused(self, stats: Mapping[str, ModelStats]) -> list[str]:
        empty = [model for model, each in stats.items() if each.is_empty and model in self.running]
        known = self.known if empty and self._mirror.ready else stats
        return [model for model in empty if model not in known and self.running[model].is_idle]

    async def follow(self, name: str) -> None:
        """Know what was set a moment ago, by way of another instance too: of a model that is not known here, or of
        any, where nothing has been read yet. Names are a stranger's, so this is not done for each of them."""
        is_old = asyncio.get_running_loop().time() - self._looked > _OLD
        is_new = name in self.known and name not in self.running and len(self.running) < MOST_MODELS
        if self._looked == -math.inf or is_new or (name and name not in self.known and is_old):
            await self.look()
        if not self._mirror.ready and name not in self.known:
            raise Refused(NOT_READY, "the first table is not loaded yet")

    async def of(self, name: str) -> tuple[Model, ModelConfig]:
        """What a model has here, and what holds for it. Raises Refused where it is not known."""
        await self.follow(name)
        known, model = self.known, self.running.get(name)
        if name in known and model is None:
            raise Refused(TOO_MANY_MODELS, f"model: {name[:200]!r} is beyond them: {_NO_MORE}")
        if name not in known or model is None:
            names = ", ".join(sorted(known)) or "none yet; POST /admin/register registers a GPU for it"
            raise Refused(UNKNOWN_MODEL, f"model: {name[:200]!r} is not known; known: {names}")
        return model, known[name]

    async def lane(self, name: str) -> JobLane:
        """Of a model, which has jobs maybe, and is not known any more."""
        if name not in self.running:
            await self.follow(name)
        running = self.running.get(name)
        return running.lane if running is not None else (await self.of(name))[0].lane

    async def lanes(self, name: str) -> AsyncIterator[JobLane]:
        """Of the model, where it is named; else of all. Those come last that became known by way of other instances
        a moment ago."""
        if name:
            yield await self.lane(name)
            return
        await self.follow("")
        seen = list(self.running.values())
        for each in seen:
            yield each.lane
        if asyncio.get_running_loop().time() - self._looked > _OLD:
            await self.look()
            for each in [each for each in self.running.values() if each not in seen]:
                yield each.lane


@lru_cache(maxsize=2 * MOST_MODELS)
def _config(model: str, text: str) -> ModelConfig | None:
    """None where another version wrote what this one does not take. What only a newer one has is left out, and the
    rest holds: a model that is paused or limited stays so behind a rollback. It is read once, and said once, for
    each text: all models are looked at every second."""
    written = text.encode(errors="surrogateescape")
    try:
        return ModelConfig.model_validate_json(_known_settings(model, written))
    except (ValidationError, InvalidName, orjson.JSONDecodeError) as error:
        _log.warning("job_model_not_readable", model=model, error=str(error).splitlines()[0])
        return None


def _known_settings(model: str, written: bytes) -> bytes:
    """JSON of a model's settings without those that this version does not have. Raises JSONDecodeError."""
    found = orjson.loads(written)
    newer = sorted(found.keys() - ModelConfig.model_fields.keys()) if isinstance(found, dict) else []
    if not newer:
        return written
    _log.warning("job_model_setting_unknown", model=model, settings=newer[:_MOST_NAMED])
    return orjson.dumps({name: value for name, value in found.items() if name not in newer})

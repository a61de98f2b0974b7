"""What is set on the models of jobs, in Redis, and which models may have jobs."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any
from uuid import uuid4

import orjson
import structlog
from redis.exceptions import ResponseError

from slb.control import keys
from slb.control.connection import Connection
from slb.errors import InvalidName, RedisUnavailable
from slb.quotas import MOST_MODELS, checked_model

_MOST_BYTES = 4 << 20
"""Of all models, as Redis counts them: 500 with every setting have a fourth of it."""
_MARK = "-mark"
"""A field that is no model: of each data that Redis ever had, another one."""

_log = structlog.get_logger("slb.jobs")


class JobModels:
    """What is set on the models, in Redis for all instances; what it loses with its data is written back, as routes
    are. All raise RedisUnavailable."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._mark = ""
        self._known: Mapping[str, str] = {}

    async def all(self) -> dict[str, str]:
        """What was set on each model that anything was set on, as JSON. Any program may write there: what is no
        model's id is left out, and nothing is read that is too large."""
        async with self._connection.answering() as redis:
            with suppress(ResponseError):  # an ACL may forbid it, a server not have it: then it is read as it is
                if (await redis.memory_usage(keys.JOB_MODELS, samples=MOST_MODELS) or 0) > _MOST_BYTES:
                    raise RedisUnavailable(f"{keys.JOB_MODELS} has more than {_MOST_BYTES >> 20} MiB")
            stored = await redis.hgetall(keys.JOB_MODELS)
            mark = stored.get(_MARK, "")
            found = {model: text for model, text in stored.items() if _is_model(model)}
            lost = {model: text for model, text in self._known.items() if self._mark and model not in found}
            if mark != self._mark and lost:
                _log.warning("job_models_written_back", models=len(lost))
                async with redis.pipeline(transaction=False) as pipe:
                    for model, text in lost.items():
                        pipe.hsetnx(keys.JOB_MODELS, model, text)
                    await pipe.execute()
                found = {**lost, **found}
            if found and not mark:
                await redis.hsetnx(keys.JOB_MODELS, _MARK, uuid4().hex)
                mark = await redis.hget(keys.JOB_MODELS, _MARK) or ""
        self._mark, self._known = mark or self._mark, found
        return found

    async def put(self, model: str, fields: dict[str, Any]) -> None:
        async with self._connection.answering() as redis:
            await redis.hsetnx(keys.JOB_MODELS, _MARK, uuid4().hex)
            await redis.hset(keys.JOB_MODELS, model, orjson.dumps(fields))

    async def delete(self, model: str) -> bool:
        async with self._connection.answering() as redis:
            return bool(await redis.hdel(keys.JOB_MODELS, model))

    async def with_jobs(self) -> set[str]:
        """The models that may have jobs."""
        async with self._connection.answering() as redis:
            return {model for model in await redis.smembers(keys.WITH_JOBS) if _is_model(model)}

    async def note_jobs(self, models: Collection[str]) -> None:
        """These may have jobs."""
        async with self._connection.answering() as redis:
            await redis.sadd(keys.WITH_JOBS, *models)

    async def forget_jobs(self, model: str) -> None:
        """It has none."""
        async with self._connection.answering() as redis:
            await redis.srem(keys.WITH_JOBS, model)


@lru_cache(maxsize=2 * MOST_MODELS)
def _is_model(text: str) -> bool:
    try:
        return checked_model(text) == text
    except InvalidName:
        return False

"""What is set on the models of jobs, in Redis."""

from contextlib import suppress
from functools import lru_cache
from typing import Any

import orjson
from redis.exceptions import ResponseError

from slb.control import keys
from slb.control.connection import Connection
from slb.errors import InvalidName, RedisUnavailable
from slb.quotas import MOST_MODELS, checked_model

_MOST_BYTES = 4 << 20
"""Of all models, as Redis counts them: 500 with every setting have a fourth of it."""


class JobModels:
    """What is set on the models, in Redis for all instances. All raise RedisUnavailable."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def all(self) -> dict[str, str]:
        """What was set on each model that anything was set on, as JSON. Any program may write there: what is no
        model's id is left out, and nothing is read that is too large."""
        async with self._connection.answering() as redis:
            with suppress(ResponseError):  # an ACL may forbid it, a server not have it: then it is read as it is
                if (await redis.memory_usage(keys.JOB_MODELS, samples=MOST_MODELS) or 0) > _MOST_BYTES:
                    raise RedisUnavailable(f"{keys.JOB_MODELS} has more than {_MOST_BYTES >> 20} MiB")
            stored = await redis.hgetall(keys.JOB_MODELS)
        return {model: text for model, text in stored.items() if _is_model(model)}

    async def put(self, model: str, fields: dict[str, Any]) -> None:
        async with self._connection.answering() as redis:
            await redis.hset(keys.JOB_MODELS, model, orjson.dumps(fields))

    async def delete(self, model: str) -> bool:
        async with self._connection.answering() as redis:
            return bool(await redis.hdel(keys.JOB_MODELS, model))


@lru_cache(maxsize=2 * MOST_MODELS)
def _is_model(text: str) -> bool:
    try:
        return checked_model(text) == text
    except InvalidName:
        return False

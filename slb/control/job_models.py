"""What is set on the models of jobs, in Redis."""

from typing import Any

import orjson

from slb.control import keys
from slb.control.connection import Connection


class JobModels:
    """What is set on the models, in Redis for all instances. All raise RedisUnavailable."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def all(self) -> dict[str, dict[str, Any]]:
        """What was set on each model that anything was set on. What cannot be read is left out."""
        async with self._connection.answering() as redis:
            stored = await redis.hgetall(keys.JOB_MODELS)
        return {model: fields for model, text in stored.items() if isinstance(fields := _object(text), dict)}

    async def put(self, model: str, fields: dict[str, Any]) -> None:
        async with self._connection.answering() as redis:
            await redis.hset(keys.JOB_MODELS, model, orjson.dumps(fields))

    async def delete(self, model: str) -> bool:
        async with self._connection.answering() as redis:
            return bool(await redis.hdel(keys.JOB_MODELS, model))


def _object(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None

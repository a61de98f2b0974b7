"""How much is asked of a pool, by all instances, as Redis has it now."""

import math
from typing import NamedTuple

from slb.control import keys
from slb.control.connection import Connection
from slb.control.scripts import ReadMany, own, pairs
from slb.errors import RedisUnavailable
from slb.job import CLASS


class Demand(NamedTuple):
    """`in_flight`: slots that are held. `tickets`: what waits for one; `of_jobs`: those of them that are of the
    class of jobs."""

    in_flight: int
    tickets: int
    of_jobs: int


class Demands:
    """Three commands for each question, in time that grows with the upstreams of the pool that have requests."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._read_many = ReadMany(connection)

    async def of(self, pool: str) -> Demand:
        """Raises RedisUnavailable."""
        named = dict(zip(keys.POOL_KEYS, keys.pool_keys(pool), strict=True))
        async with self._connection.answering() as redis:
            read = await self._read_many.first("z", named["inflight"])
            if read.size is not None:
                raise RedisUnavailable(f"{read.key} is too large to be read")
            scores = [float(score) for score in pairs(own(read.reply)).values()]
            tickets = await redis.hlen(named["queue:tickets"])
            of_jobs = await redis.zcard(named["queue:class:"] + CLASS)
        held = sum(int(score) for score in scores if math.isfinite(score) and score > 0)
        return Demand(held, tickets, min(of_jobs, tickets))

"""How many slots of each upstream the whole fleet has given out, as Redis has it at one moment."""

import math
from collections.abc import Mapping, Sequence

from slb.control import keys
from slb.control.connection import Connection
from slb.control.resp import readable
from slb.control.scripts import Read, ReadMany, own, pairs

Scores = Mapping[str, int]
"""member -> slots."""


class ScoresOfPools:
    """Reads them all at once: what frames of several instances say of slots is of different moments, and adds up to
    more than there ever were."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._read_many = ReadMany(connection)

    async def read(self, pools: Sequence[str]) -> dict[str, Scores]:
        """By pool; without those that are too large to be read. Raises RedisUnavailable."""
        wanted = [("z", keys.pool_keys(pool)[0]) for pool in pools]
        async with self._connection.answering():
            found = [each async for each in self._read_many(wanted)] if wanted else []
            return {pool: scores_of(each) for pool, each in zip(pools, found, strict=True) if each.size is None}


def scores_of(read: Read) -> Scores:
    """Empty where it was too large to be read. Raises RedisError for what is no set of scores."""
    with readable():
        scores = {member: float(score) for member, score in pairs(own(read.reply)).items() if member.isascii()}
        return {member: int(score) for member, score in scores.items() if math.isfinite(score)}

"""One holder's batches, as they go to Redis."""

import asyncio
from collections.abc import Callable
from typing import Any

import orjson

from slb.control import keys
from slb.control.batch import Batch
from slb.control.lane_timing import LaneTiming
from slb.control.outgoing import Outgoing
from slb.control.script_line import ScriptLine


class BatchLine:
    """Runs `lua/ledger.lua`. `new_holder` makes the names leases are held under; `start`: where the search among
    equals begins. `sent`: when the last batch was sent, in seconds of the event loop's clock."""

    def __init__(self, pool: str, line: ScriptLine, new_holder: Callable[[], str], start: int) -> None:
        self.holder = new_holder()
        self.sent = 0.0
        self._pool = pool
        self._line = line
        self._new_holder = new_holder
        self._start = start
        self._keys = keys.pool_keys(pool)
        self._loop = asyncio.get_running_loop()

    def rename(self) -> None:
        """From now on it is another holder."""
        self.holder = self._new_holder()

    async def run(self, batch: Batch, outgoing: Outgoing, timing: LaneTiming) -> Any:
        """The reply. Where Redis lacks candidates that the batch names, it is sent again with them. Raises
        RedisError, OSError."""
        reply = await self._send(batch, timing)
        if "unknown" in reply:
            outgoing.lacks(batch, reply["unknown"])
            reply = await self._send(batch, timing)
        self._start = (self._start + len(batch.asks)) % (1 << 30)
        return reply

    async def _send(self, batch: Batch, timing: LaneTiming) -> Any:
        data = batch.encode(
            self.holder,
            self._start,
            lease=int(timing.lease * 1000),
            life=int(timing.life * 1000),
            patience=int(timing.patience * 1000),
        )
        self.sent = self._loop.time()
        return orjson.loads(await self._line.call(self._keys, (data, keys.GRANTED_CHANNEL, self._pool)))

    async def drop(self) -> None:
        """Close the connection."""
        await self._line.drop()

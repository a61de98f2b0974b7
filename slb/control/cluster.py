"""Which node of a Redis Cluster has which slot.

The map is read by CLUSTER SLOTS from one node that answers: when it is older than REREAD, before a connection
is made, and after any MOVED. A node whose map led nowhere is not asked again before the others: one that is cut
off from them knows of no failover. Redis-py's own cluster client is not used: it tries commands again by
itself, and its keyspace notifications went deaf after a failover."""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, RedisError

from slb.control.endpoint import Endpoint
from slb.control.redis_url import Address
from slb.control.resp import pack, readable
from slb.control.sentinels import ANSWER_WITHIN
from slb.control.server import Server
from slb.control.wire import Wire

REREAD = 5.0
"""Seconds."""

_FRESH = 0.1
"""Seconds for which a map is not read again, whatever is found wrong with it: many connections break at once."""

_QUESTION = pack("CLUSTER", "SLOTS")

_log = structlog.get_logger()

Range = tuple[int, int, Address, tuple[Address, ...]]
"""First and last slot, the primary that has them, its replicas."""


class ClusterMap:
    """`endpoint` makes one for a node's address. `on_change`: called when slots have another primary."""

    def __init__(
        self,
        seeds: Sequence[Address],
        endpoint: Callable[[Address], Endpoint],
        on_change: Callable[[], None],
        ranges: Sequence[Range] = (),
    ) -> None:
        self._seeds = seeds
        self._endpoint = endpoint
        self._on_change = on_change
        self._ranges: Sequence[Range] = ranges
        self._asked: Address | None = None
        self._read_at = 0.0
        self._is_doubted = True
        self._reading: asyncio.Task[None] | None = None

    @property
    def primaries(self) -> list[Address]:
        """Those that have slots, in an order of their own."""
        return sorted({primary for _, _, primary, _ in self._ranges})

    @property
    def replicas(self) -> list[Address]:
        return sorted({each for _, _, _, replicas in self._ranges for each in replicas})

    def primary_of(self, slot: int) -> Address:
        """As it was last read. Raises RedisError where the map has a hole."""
        at = bisect_right(self._ranges, slot, key=lambda each: each[0]) - 1
        if at >= 0 and slot <= self._ranges[at][1]:
            return self._ranges[at][2]
        raise RedisConnectionError(f"no node of the cluster has slot {slot}")

    def has(self, slot: int, address: Address) -> bool:
        """Whether that node has the slot, as it was last read."""
        at = bisect_right(self._ranges, slot, key=lambda each: each[0]) - 1
        return at >= 0 and slot <= self._ranges[at][1] and self._ranges[at][2] == address

    def moved(self) -> None:
        """A node has answered that it is wrong: it is read anew, however new it is."""
        self._is_doubted, self._read_at = True, 0.0

    def doubt(self) -> None:
        """What it says led nowhere: it is read before it is used again, of another node."""
        self._is_doubted = True

    async def find(self, slot: int) -> Address:
        """Where the slot is now. Raises RedisError."""
        await self.refresh()
        return self.primary_of(slot)

    async def refresh(self, seconds: float = REREAD) -> None:
        """Read it where it is older than that, or doubted. Callers at one time share one question. Raises
        RedisError."""
        age = asyncio.get_running_loop().time() - self._read_at
        if self._ranges and (age < _FRESH or (age < seconds and not self._is_doubted)):
            return
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._read(), name="cluster-map")
            self._reading.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._reading)

    async def _read(self) -> None:
        errors: list[Exception] = []
        for address in self._in_turn():
            try:
                async with asyncio.timeout(ANSWER_WITHIN):
                    found = _ranges(await self._ask(address), address)
            except (RedisError, OSError, TimeoutError) as error:
                errors.append(error)
                continue
            self._asked, self._is_doubted = address, False
            self._read_at = asyncio.get_running_loop().time()
            self._take(found)
            return
        raise RedisConnectionError(f"no node of the cluster answers: {errors[0] or 'not in time'}") from errors[0]

    def _in_turn(self) -> list[Address]:
        """The one that answered last first; where its map is doubted, last."""
        known = list(dict.fromkeys([*self.primaries, *self.replicas, *self._seeds]))
        at = known.index(self._asked) + self._is_doubted if self._asked in known else 0
        return known[at:] + known[:at]

    async def _ask(self, address: Address) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        wire = Wire(self._endpoint(address))
        try:
            wire.send(_QUESTION, lambda reply: None if answer.done() else answer.set_result(reply))
            reply = await answer
        finally:
            wire.close()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _take(self, found: Sequence[Range]) -> None:
        before, self._ranges = self._ranges, found
        if [each[:3] for each in before] != [each[:3] for each in found]:
            if before and {each[2] for each in before} != {each[2] for each in found}:
                _log.warning("redis_primaries_changed", now=[f"{host}:{port}" for host, port in self.primaries])
            self._on_change()

    def close(self) -> None:
        """Ask nobody any more."""
        if self._reading is not None:
            self._reading.cancel()


class SlotServer(Server):
    """The primary of one slot."""

    def __init__(self, cluster: ClusterMap, slot: int) -> None:
        super().__init__()
        self._cluster = cluster
        self.slot = slot

    async def find(self) -> Address:
        return await self._cluster.find(self.slot)

    def is_current(self, address: Address) -> bool:
        return self._cluster.has(self.slot, address)

    def failed(self) -> None:
        self._cluster.doubt()

    def moved(self) -> None:
        self._cluster.moved()

    def refused_to_write(self) -> None:
        self._cluster.doubt()


class NodeServer(Server):
    """One node: what fails there puts the map in doubt."""

    def __init__(self, cluster: ClusterMap, address: Address) -> None:
        super().__init__()
        self._cluster = cluster
        self._address = address

    async def find(self) -> Address:
        return self._address

    def failed(self) -> None:
        self._cluster.doubt()

    def moved(self) -> None:
        self._cluster.moved()

    def refused_to_write(self) -> None:
        self._cluster.doubt()


def _ranges(reply: Any, asked: Address) -> list[Range]:
    """What CLUSTER SLOTS replied. A node that does not know its own address leaves it out."""
    with readable():
        found = []
        for first, last, *nodes in reply:
            primary, *replicas = ((str(host) if host else asked[0], int(port)) for host, port, *_ in nodes)
            found.append((int(first), int(last), primary, tuple(replicas)))
        if not found:
            raise InvalidResponse("a cluster without slots")
        return sorted(found)

"""Many keys of a Redis Cluster read at once: one call of `lua/read_many.lua` for those of one slot, over one
connection to each node, all of them under way together. redis-py's way costs ten times as much for each call,
and a full sync makes as many as there are slots with keys."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from redis.exceptions import RedisError

from slb.control.cluster import ClusterMap
from slb.control.hash_slots import slot_of
from slb.control.redis_url import Address
from slb.control.resp import Word
from slb.control.script_line import ScriptLine, settle

Asked = Sequence[tuple[str, str]]
"""Letters, as the script names them, and keys."""


class ClusterReads:
    """`new_line` makes the connection to a node."""

    def __init__(self, cluster: ClusterMap, new_line: Callable[[Address], ScriptLine], deadline: float) -> None:
        self._cluster = cluster
        self._new_line = new_line
        self._deadline = deadline
        self._lines: dict[Address, ScriptLine] = {}

    async def __call__(self, wanted: Asked, bounds: Sequence[Word]) -> list[tuple[Any, Any]]:
        """For each key the script's reply, and its bytes where it is large. Raises RedisError, TimeoutError."""
        by_slot: dict[int, list[int]] = {}
        for index, (_, key) in enumerate(wanted):
            by_slot.setdefault(slot_of(key), []).append(index)
        found: list[tuple[Any, Any]] = [(None, None)] * len(wanted)
        try:
            async with asyncio.timeout(self._deadline):
                await self._cluster.refresh()
                await self._rounds(wanted, bounds, by_slot, found)
        except (RedisError, OSError, TimeoutError):
            self._cluster.doubt()
            for line in self._lines.values():
                line.drop()
            raise
        return found

    async def _rounds(
        self, wanted: Asked, bounds: Sequence[Word], by_slot: dict[int, list[int]], found: list[tuple[Any, Any]]
    ) -> None:
        """A reply may end before the last key that was asked for."""
        while by_slot:
            calls = [
                self._call(slot, [wanted[index] for index in indexes], bounds) for slot, indexes in by_slot.items()
            ]
            for (slot, indexes), (replies, large) in zip(
                list(by_slot.items()), await asyncio.gather(*calls), strict=True
            ):
                if not 0 < len(replies) <= len(indexes):
                    raise ValueError(f"{len(replies)} replies to {len(indexes)}")
                sizes = dict(zip(large[::2], large[1::2], strict=True))
                for place, (index, reply) in enumerate(zip(indexes, replies, strict=False), 1):
                    found[index] = reply, sizes.get(place)
                by_slot[slot] = indexes[len(replies) :]
            by_slot = {slot: indexes for slot, indexes in by_slot.items() if indexes}

    def _call(self, slot: int, part: Asked, bounds: Sequence[Word]) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        address = self._cluster.primary_of(slot)
        if address not in self._lines:
            self._lines[address] = self._new_line(address)
        kinds, names = "".join(kind for kind, _ in part), [key for _, key in part]
        self._lines[address].send(names, [kinds, *bounds], lambda reply: settle(answer, reply))
        return answer

    def close(self) -> None:
        """End its connections."""
        for line in self._lines.values():
            line.drop()

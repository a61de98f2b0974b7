"""Keyspace notifications of a Redis Cluster: each node tells only of its own keys, so there is one subscription to
each primary, and all of them end when another set of primaries has the slots."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import NoReturn, Self
from uuid import uuid4

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from slb.control import keys
from slb.control.cancelled import errors_once_one_ends
from slb.control.cluster import ClusterMap
from slb.control.connection import Connection
from slb.control.hash_slots import slot_of
from slb.control.led import ClusterNodes
from slb.control.notifications import KeyEvents
from slb.control.redis_url import Address
from slb.control.subscription import OnMessage

_LOOK = 0.25
"""Seconds between two looks at the map, as far as it is known; it is read every 5 s, and after any MOVED."""


class ClusterKeyEvents:
    """As `KeyEvents`, of all primaries."""

    def __init__(self, connection: Connection, nodes: ClusterNodes, ping: float) -> None:
        self._connection = connection
        self._nodes = nodes
        self._ping = ping
        self._stack = AsyncExitStack()
        self._events: dict[Address, KeyEvents] = {}

    async def __aenter__(self) -> Self:
        cluster = self._nodes.cluster
        await cluster.refresh()
        async with AsyncExitStack() as stack:
            for address in cluster.primaries:
                events = KeyEvents(
                    self._connection, self._ping, self._nodes.node(address), _canary_at(cluster, address)
                )
                self._events[address] = await stack.enter_async_context(events)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def follow(self, on_event: OnMessage, on_pong: Callable[[], None]) -> NoReturn:
        """As `KeyEvents.follow`; `on_pong` is called when each has been answered since it was called last."""
        waiting = set(self._events)

        def answered(address: Address) -> None:
            waiting.discard(address)
            if not waiting:
                waiting.update(self._events)
                on_pong()

        parts = [
            events.follow(on_event, lambda address=address: answered(address))  # type: ignore[misc]
            for address, events in self._events.items()
        ]
        raise (await errors_once_one_ends(*parts, self._look()))[0]

    async def _look(self) -> NoReturn:
        cluster = self._nodes.cluster
        while cluster.primaries == list(self._events):
            await asyncio.sleep(_LOOK)
            try:
                await cluster.refresh()
            except RedisError:
                cluster.doubt()  # it is asked again; who is subscribed to hears of it otherwise
        raise RedisConnectionError("the cluster has other primaries")

    async def arrive(self, wait: float) -> bool:
        """Whether notifications come from all of them."""
        return all(await asyncio.gather(*(each.arrive(wait) for each in self._events.values())))


def _canary_at(cluster: ClusterMap, address: Address) -> str:
    """A key in a slot of that node."""
    while True:
        key = keys.CANARY + uuid4().hex
        if cluster.has(slot_of(key), address):
            return key


Events = KeyEvents | ClusterKeyEvents


def key_events(connection: Connection, ping: float) -> Events:
    """Of the one server, or of all primaries."""
    nodes = connection.servers
    return (
        ClusterKeyEvents(connection, nodes, ping)
        if isinstance(nodes, ClusterNodes)
        else KeyEvents(connection, ping)
    )

"""A Redis Cluster as the callers of one Redis see it: each command goes to the node that has its key.

A command that is answered with MOVED was not run: it is sent once more, to the node that has the slot. Nothing else
is sent twice. What is asked of several slots in one pipeline or MULTI is one for each slot."""

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import MovedError, NoScriptError, RedisError

from slb.control.cluster import ClusterMap
from slb.control.hash_slots import slot_of
from slb.control.redis_url import Address

_KEYED = frozenset(
    (
        *("delete", "exists", "get", "hdel", "hget", "hgetall", "hkeys", "hlen", "hmget", "hset", "hsetnx"),
        *("memory_usage", "pexpire", "publish", "sadd", "set", "sismember", "smembers", "srem", "type", "zadd"),
        *("zcard", "zmscore", "zrange", "zrem", "zscore"),
    )
)
"""Commands whose first argument is their one key. A message that is published reaches all nodes."""

_PIPED = frozenset(("delete", "exists", "hkeys", "hset", "hsetnx", "pexpire", "type", "zadd", "zrem"))


class ClusterClient:
    """`new_pool` makes one for a node. Commands are those of redis-py's client, with one key each."""

    def __init__(self, cluster: ClusterMap, new_pool: Callable[[Address], BlockingConnectionPool]) -> None:
        self._cluster = cluster
        self._new_pool = new_pool
        self._nodes: dict[Address, Any] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _KEYED:
            raise AttributeError(f"no command for a cluster: {name}")

        async def run(key: str, *given: Any, **named: Any) -> Any:
            return await self.at(key, lambda node: getattr(node, name)(key, *given, **named))

        return run

    async def at(self, key: str, run: Callable[[Any], Any]) -> Any:
        """What `run` makes of the client of the node that has `key`. Raises RedisError."""
        slot = slot_of(key)
        try:
            return await run(await self.of_slot(slot))
        except MovedError:
            self._cluster.moved()
        except (RedisError, OSError, TimeoutError):
            self._cluster.doubt()
            raise
        return await run(await self.of_slot(slot))

    async def of_slot(self, slot: int) -> Any:
        """The client of the node that has the slot. Raises RedisError."""
        return self.node(await self._cluster.find(slot))

    async def primaries(self) -> list[Any]:
        """The client of each node that has slots. Raises RedisError."""
        await self._cluster.refresh()
        return [self.node(each) for each in self._cluster.primaries]

    async def replicas(self) -> list[Any]:
        """The client of each other node. Raises RedisError."""
        await self._cluster.refresh()
        return [self.node(each) for each in self._cluster.replicas]

    def node(self, address: Address) -> Any:
        """The client of a node."""
        if address not in self._nodes:
            self._nodes[address] = Redis(connection_pool=self._new_pool(address))
        return self._nodes[address]

    def register_script(self, source: str) -> "ClusterScript":
        return ClusterScript(self, source)

    def pipeline(self, transaction: bool) -> "ClusterPipeline":
        return ClusterPipeline(self, transaction)

    async def aclose(self) -> None:
        """Close all connections."""
        for node in self._nodes.values():
            await node.aclose()
            await node.connection_pool.disconnect()


class ClusterScript:
    """A script whose keys are all in one slot."""

    def __init__(self, client: ClusterClient, source: str) -> None:
        self._client = client
        self._source = source
        self._scripts: dict[int, Any] = {}

    async def __call__(self, keys: Sequence[str], args: Sequence[Any] = ()) -> Any:
        return await self._client.at(keys[0], lambda node: self._run(node, keys, args))

    async def _run(self, node: Any, keys: Sequence[str], args: Sequence[Any]) -> Any:
        script = node.register_script(self._source)
        try:
            return await node.evalsha(script.sha, len(keys), *keys, *args)
        except NoScriptError:
            await node.script_load(self._source)
        return await node.evalsha(script.sha, len(keys), *keys, *args)


class ClusterPipeline:
    """Commands of one key each; those of one slot are one pipeline, or one MULTI, the others run beside it."""

    def __init__(self, client: ClusterClient, transaction: bool) -> None:
        self._client = client
        self._transaction = transaction
        self._commands: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._commands.clear()

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in _PIPED:
            raise AttributeError(f"no command for the pipeline of a cluster: {name}")
        return lambda key, *given, **named: self._commands.append((name, key, given, named))

    async def execute(self) -> list[Any]:
        """The replies, in the order of the commands. Raises RedisError; what is in other slots may have been
        done."""
        by_slot: dict[int, list[int]] = {}
        for index, (_, key, _, _) in enumerate(self._commands):
            by_slot.setdefault(slot_of(key), []).append(index)
        replies: list[Any] = [None] * len(self._commands)
        for part in await asyncio.gather(*(self._of_slot(each) for each in by_slot.values())):
            for index, reply in part:
                replies[index] = reply
        return replies

    async def _of_slot(self, indexes: list[int]) -> list[tuple[int, Any]]:
        async def run(node: Any) -> list[Any]:
            async with node.pipeline(transaction=self._transaction) as pipe:
                for index in indexes:
                    name, key, given, named = self._commands[index]
                    getattr(pipe, name)(key, *given, **named)
                replies: list[Any] = await pipe.execute()
                return replies

        replies = await self._client.at(self._commands[indexes[0]][1], run)
        return list(zip(indexes, replies, strict=True))

"""A URL made into clients and connections: of one server, wherever it is now, or of the nodes of a cluster."""

from collections.abc import Callable
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError, ResponseError

from slb.control import redis_url
from slb.control.cluster import ClusterMap, NodeServer, SlotServer
from slb.control.cluster_client import ClusterClient
from slb.control.endpoint import Endpoint
from slb.control.fitness import check_version
from slb.control.hash_slots import slot_of
from slb.control.pool import COMMAND_DEADLINE, CONNECT_DEADLINE, make_pool
from slb.control.redis_url import Address, Parts
from slb.control.sentinels import Sentinels
from slb.control.server import Server
from slb.errors import RedisRefused


class OneServer:
    """The one that the URL or a Sentinel names. `client`: of all commands; `db`: the number of the database, as
    keyspace channels name it. All that awaits raises RedisError."""

    cluster = None

    def __init__(self, parts: Parts, command_deadline: float, on_moved: Callable[[], None]) -> None:
        self._server = _sentinels(parts, on_moved) if parts.service else Server()
        pool = make_pool(parts.options, self._server, command_deadline)
        self.client: Any = Redis(connection_pool=pool)
        self.db = int(parts.options.get("db") or 0)
        self._endpoint = Endpoint(_prototype(pool), self._server)

    def endpoint(self, key: str) -> Endpoint:
        """Where what is asked of `key` is to be sent."""
        return self._endpoint

    async def look(self) -> None:
        """Find out which servers there are now."""
        await self._server.find()

    async def identity(self) -> str:
        """What tells the servers that answer commands from others; empty where that may not be asked. Raises Unfit
        where they are too old."""
        try:
            found = await self.client.info("server")
        except ResponseError:  # forbidden by an ACL, or by `rename-command`
            return ""
        check_version(found)
        return str(found.get("run_id", ""))

    async def clients(self) -> list[Any]:
        """The client of each server that has keys."""
        return [self.client]

    async def replicas(self) -> list[Any]:
        """The client of each replica that is known."""
        return []

    async def at(self, key: str, run: Callable[[Any], Any]) -> Any:
        """What `run` makes of the client of the server that has `key`."""
        return await run(self.client)

    def close(self) -> None:
        """Ask nobody any more which servers there are."""
        self._server.close()

    async def aclose(self) -> None:
        """Close all connections of the client."""
        await self.client.aclose()
        await self.client.connection_pool.disconnect()


class ClusterNodes:
    """The nodes of a cluster, each with its own pool; as `OneServer`."""

    db = 0

    def __init__(self, parts: Parts, command_deadline: float, on_moved: Callable[[], None]) -> None:
        self._options = parts.options
        self._deadline = command_deadline
        self._prototypes: dict[Address, AbstractConnection] = {}
        self.cluster = ClusterMap(parts.seeds, lambda address: Endpoint(self._prototype(address)), on_moved)
        self.client: Any = ClusterClient(self.cluster, self._pool)
        self._any = self._prototype(parts.seeds[0])

    def _pool(self, address: Address) -> BlockingConnectionPool:
        host, port = address
        options = {**self._options, "host": host, "port": port}
        return make_pool(options, NodeServer(self.cluster, address), self._deadline)

    def _prototype(self, address: Address) -> AbstractConnection:
        if address not in self._prototypes:
            self._prototypes[address] = _prototype(self._pool(address))
        return self._prototypes[address]

    def endpoint(self, key: str) -> Endpoint:
        return Endpoint(self._any, SlotServer(self.cluster, slot_of(key)))

    def node(self, address: Address) -> Endpoint:
        """Where one node listens."""
        return Endpoint(self._prototype(address), NodeServer(self.cluster, address))

    async def look(self) -> None:
        await self.cluster.refresh()

    async def identity(self) -> str:
        return ""  # `ClusterKeyEvents` sees which there are

    async def clients(self) -> list[Any]:
        found: list[Any] = await self.client.primaries()
        return found

    async def replicas(self) -> list[Any]:
        found: list[Any] = await self.client.replicas()
        return found

    async def at(self, key: str, run: Callable[[Any], Any]) -> Any:
        return await self.client.at(key, run)

    def close(self) -> None:
        self.cluster.close()

    async def aclose(self) -> None:
        await self.client.aclose()


def led(
    url: str, command_deadline: float = COMMAND_DEADLINE, on_moved: Callable[[], None] = lambda: None
) -> OneServer | ClusterNodes:
    """The servers of `url`; nothing is connected yet. `on_moved`: called when another one is the master than
    before. Raises RedisRefused for a URL that can never work."""
    parts = redis_url.parts(url)
    kind = ClusterNodes if parts.seeds and not parts.service else OneServer
    try:
        return kind(parts, command_deadline, on_moved)
    except (TypeError, ValueError, RedisError) as error:
        raise RedisRefused(f"redis_url {redis_url.shown(url)}: {error}") from None


def _sentinels(parts: Parts, on_moved: Callable[[], None]) -> Sentinels:
    endpoints = []
    for host, port in parts.seeds:
        options = {**(parts.asking or {}), "host": host, "port": port}
        endpoints.append(Endpoint(_prototype(make_pool(options, Server(), CONNECT_DEADLINE))))
    return Sentinels(parts.service, endpoints, on_moved)


def _prototype(pool: BlockingConnectionPool) -> AbstractConnection:
    """A connection that is never opened."""
    connection: AbstractConnection = pool.make_connection()  # type: ignore[no-untyped-call]
    return connection

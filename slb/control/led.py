"""A URL made into connections: who knows which server it is, and the pool that is led there."""

from collections.abc import Callable

from redis.asyncio import BlockingConnectionPool
from redis.exceptions import RedisError

from slb.control import redis_url
from slb.control.endpoint import Endpoint
from slb.control.pool import COMMAND_DEADLINE, CONNECT_DEADLINE, make_pool
from slb.control.redis_url import Address, Parts
from slb.control.sentinels import Sentinels
from slb.control.server import Server
from slb.errors import RedisRefused


def led(
    url: str, command_deadline: float = COMMAND_DEADLINE, on_moved: Callable[[Address], None] = lambda _: None
) -> tuple[Server, BlockingConnectionPool]:
    """What finds the server of `url`, and the pool of connections to it; nothing is connected yet. `on_moved` as in
    `Sentinels`. Raises RedisRefused for a URL that can never work."""
    parts = redis_url.parts(url)
    try:
        server = _sentinels(parts, on_moved) if parts.seeds else Server()
        return server, make_pool(parts.options, server, command_deadline)
    except (TypeError, ValueError, RedisError) as error:
        raise RedisRefused(f"redis_url {redis_url.shown(url)}: {error}") from None


def _sentinels(parts: Parts, on_moved: Callable[[Address], None]) -> Sentinels:
    endpoints = []
    for host, port in parts.seeds:
        options = {**(parts.asking or {}), "host": host, "port": port}
        pool = make_pool(options, Server(), CONNECT_DEADLINE)
        endpoints.append(Endpoint(pool.make_connection()))  # type: ignore[no-untyped-call]
    return Sentinels(parts.service, endpoints, on_moved)

"""redis-py's connections as slb uses them: deadlines, no retries, and made to the server that is right now."""

import asyncio
from typing import Any

from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ReadOnlyError, RedisError

from slb.control.redis_url import Address
from slb.control.resp import PoolParser
from slb.control.server import CHECKED_WITHIN, Server, fault_in_role

CONNECT_DEADLINE = 1.0

COMMAND_DEADLINE = 2.0
"""Seconds a command may take; a frozen Redis is noticed by it."""

_POOL = 32


class _Led(AbstractConnection):
    """Led by a `Server`: to the address it finds, and anew where it has another since. `disconnect` and the
    like are redis-py's."""

    def __init__(self, *, server: Server, **options: Any) -> None:
        self._server = server
        self._version = server.version
        super().__init__(**options)

    async def connect(self) -> None:
        if self.is_connected and self._version != self._server.version:
            await self.disconnect()
        if not self.is_connected:
            await self._connect_anew()

    async def _connect_anew(self) -> None:
        try:
            found = await self._server.find()
            self._version = self._server.version
            if found is not None:
                self._lead_to(found)
            await super().connect()  # type: ignore[no-untyped-call]
        except (RedisError, OSError, TimeoutError):
            self._server.failed()
            raise

    def _lead_to(self, address: Address) -> None:
        raise NotImplementedError

    async def on_connect_check_health(self, check_health: bool = True) -> None:
        await super().on_connect_check_health(check_health)
        if self._server.is_checked:
            async with asyncio.timeout(CHECKED_WITHIN):
                await self.send_command("ROLE", check_health=False)
                fault = fault_in_role(await self.read_response())
            if fault is not None:
                raise fault

    async def read_response(self, *given: Any, **named: Any) -> Any:
        try:
            return await super().read_response(*given, **named)
        except ReadOnlyError:
            self._server.refused_to_write()
            self.mark_for_reconnect()  # type: ignore[no-untyped-call]
            raise


class _LedConnection(_Led, Connection):
    def _lead_to(self, address: Address) -> None:
        self.host, self.port = address


class _LedSSLConnection(_Led, SSLConnection):
    def _lead_to(self, address: Address) -> None:
        self.host, self.port = address


class _LedUnixConnection(_Led, UnixDomainSocketConnection):
    pass


_LED: dict[Any, type[_Led]] = {
    Connection: _LedConnection,
    SSLConnection: _LedSSLConnection,
    UnixDomainSocketConnection: _LedUnixConnection,
}


def make_pool(options: dict[str, Any], server: Server, command_deadline: float) -> BlockingConnectionPool:
    """A pool of connections with redis-py's `options`; nothing is connected yet. Raises TypeError, ValueError,
    RedisError for options that can never work."""
    # A burst of registrations waits for a connection: the plain pool would fail it as if Redis were away.
    waiting = {"max_connections": _POOL, "timeout": command_deadline, "queue_class": asyncio.LifoQueue}
    kind = options.get("connection_class", Connection)
    if kind not in _LED:
        raise ValueError(f"Invalid value for 'connection_class': {kind}")
    led = {"connection_class": _LED[kind], "server": server}
    pool = BlockingConnectionPool(**{**options, **ours(command_deadline), **waiting, **led})
    pool.make_connection()  # type: ignore[no-untyped-call]
    return pool


def ours(deadline: float) -> dict[str, Any]:
    """The options of every connection, whatever the URL asks for. No command is sent twice on its own: a Redis
    that was frozen runs calls that were given up, and would run them again."""
    return {
        "client_name": "slb",
        "decode_responses": True,
        "parser_class": PoolParser,
        "driver_info": None,  # CLIENT SETINFO is more than the ACL allows
        "encoding": "utf-8",
        "encoding_errors": "surrogateescape",
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0, supported_errors=()),
        "socket_connect_timeout": CONNECT_DEADLINE,
        "socket_timeout": deadline,
    }

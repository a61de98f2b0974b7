"""Where Redis listens and how to log in there, as redis-py understands the URL."""

import asyncio
import copy
import socket
from collections.abc import Mapping
from typing import Any, cast

from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeout
from redis.utils import format_error_message

from slb.control.redis_url import Address
from slb.control.resp import pack
from slb.control.server import CHECKED_WITHIN, Server, fault_in_role


class Endpoint:
    """`options`: a connection of redis-py's, which is never opened: it holds the parts of the URL. `server`: where
    that is now."""

    def __init__(self, options: AbstractConnection, server: Server | None = None) -> None:
        self._options = options
        self._server = server or Server()

    @property
    def shown(self) -> str:
        options = self._options
        if isinstance(options, UnixDomainSocketConnection):
            return str(options.path)
        assert isinstance(options, Connection)
        return f"{options.host}:{options.port}"

    def login(self) -> list[bytes]:
        options = self._options
        commands = []
        if options.username or options.password:
            user = (options.username,) if options.username else ()
            commands.append(pack("AUTH", *user, options.password or ""))
        if options.client_name:
            commands.append(pack("CLIENT", "SETNAME", options.client_name))
        if options.db:
            commands.append(pack("SELECT", options.db))
        if self._server.is_checked:
            commands.append(pack("ROLE"))
        return commands

    @property
    def is_awaited(self) -> bool:
        """Whether a command that is sent behind a login which fails may run in a database that is not ours."""
        return bool(self._options.db) or self._server.is_checked

    @property
    def login_within(self) -> float | None:
        """Seconds from the connection on; None where only what is asked behind it has a deadline."""
        return CHECKED_WITHIN if self._server.is_checked else None

    def fault_in(self, reply: Any) -> RedisError | None:
        """What a reply to one of `login` shows: an error where the connection is of no use."""
        if isinstance(reply, RedisError):
            return reply
        return fault_in_role(reply) if isinstance(reply, list) else None

    def failed(self) -> None:
        """A connection was lost before its login was through."""
        self._server.failed()

    def is_current(self, address: Address | None) -> bool:
        """Whether a connection to there would be made again; also where the URL says where."""
        return address is None or self._server.is_current(address)

    def moved(self) -> None:
        """The server has answered that another one has the key."""
        self._server.moved()

    def refused_to_write(self) -> None:
        """The server has answered that it is a replica."""
        self._server.refused_to_write()

    async def connect(self, protocol: asyncio.Protocol) -> Address | None:
        """Connect it, within `socket_connect_timeout` once it is known where to; that, where it was to be found.
        Raises RedisError; ValueError for a host that is no name."""
        address = await self._server.find()
        try:
            async with asyncio.timeout(self._options.socket_connect_timeout):
                await self._connect(protocol, address)
        except TimeoutError as error:
            raise RedisTimeout("Timeout connecting to server") from error
        except OSError as error:
            raise RedisConnectionError(format_error_message(self.shown, error)) from error
        if not self.is_current(address):
            raise RedisConnectionError("the master has moved meanwhile")
        return address

    async def _connect(self, protocol: asyncio.Protocol, address: Address | None) -> None:
        loop, options = asyncio.get_running_loop(), self._options
        if isinstance(options, UnixDomainSocketConnection):
            await loop.create_unix_connection(lambda: protocol, options.path)
            return
        assert isinstance(options, Connection)
        context = options.ssl_context.get() if isinstance(options, SSLConnection) else None
        host, port = address or (options.host, options.port)
        transport, _ = await loop.create_connection(lambda: protocol, host, port, ssl=context)
        connected = transport.get_extra_info("socket")
        if options.socket_keepalive and connected is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in cast("Mapping[int, int]", options.socket_keepalive_options).items():
                connected.setsockopt(socket.IPPROTO_TCP, name, value)


def caused(error: RedisError, by: BaseException) -> RedisError:
    error.__cause__ = error.__context__ = by
    return error


def again(error: RedisError) -> RedisError:
    """The same error for another caller: raised twice, one exception would gather both tracebacks."""
    twin = copy.copy(error)
    twin.__cause__, twin.__context__ = error.__cause__, error.__context__
    return twin

"""Where Redis listens and how to log in there, as redis-py understands the URL."""

import asyncio
import copy
import socket
from collections.abc import Mapping
from typing import cast

from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeout
from redis.utils import format_error_message

from slb.control.resp import pack


class Endpoint:
    """`options`: a connection of redis-py's, which is never opened: it holds the parts of the URL."""

    def __init__(self, options: AbstractConnection) -> None:
        self._options = options

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
        return commands

    @property
    def must_be_selected(self) -> bool:
        """Whether a command that is sent behind a login which fails may run in a database that is not ours."""
        return bool(self._options.db)

    async def connect(self, protocol: asyncio.Protocol) -> None:
        """Connect it, within `socket_connect_timeout`. Raises RedisError; ValueError for a host that is no name."""
        try:
            async with asyncio.timeout(self._options.socket_connect_timeout):
                await self._connect(protocol)
        except TimeoutError as error:
            raise RedisTimeout("Timeout connecting to server") from error
        except OSError as error:
            raise RedisConnectionError(format_error_message(self.shown, error)) from error

    async def _connect(self, protocol: asyncio.Protocol) -> None:
        loop, options = asyncio.get_running_loop(), self._options
        if isinstance(options, UnixDomainSocketConnection):
            await loop.create_unix_connection(lambda: protocol, options.path)
            return
        assert isinstance(options, Connection)
        context = options.ssl_context.get() if isinstance(options, SSLConnection) else None
        transport, _ = await loop.create_connection(lambda: protocol, options.host, options.port, ssl=context)
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

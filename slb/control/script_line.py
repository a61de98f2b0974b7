"""One connection to Redis that runs one script, call after call: what the hot path speaks through."""

import hashlib
import math
from collections.abc import Sequence
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoScriptError


class ScriptLine:
    """Made without being connected; a call connects where that is needed. It has no deadline of its own, and no
    command is sent twice: who calls bounds the call, and drops the line where it has not ended."""

    def __init__(self, connection: AbstractConnection, source: str) -> None:
        self._connection = connection
        self._source = source
        self._sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    async def call(self, keys: Sequence[str], args: Sequence[str | bytes]) -> Any:
        """The script's reply. The first call on a connection brings the script along, and so does one that finds it
        forgotten: a server far away is not asked twice. Raises RedisError, OSError."""
        command = ("EVALSHA", self._sha, len(keys), *keys, *args)
        if self._connection.is_connected:
            try:
                await self._send(*command)
                return await self._read()
            except NoScriptError:
                pass
        await self._send("SCRIPT LOAD", self._source)
        await self._send(*command)
        await self._read()
        return await self._read()

    async def _send(self, *command: Any) -> None:
        await self._connection.send_command(*command, check_health=False)

    async def _read(self) -> Any:
        return await self._connection.read_response(timeout=math.inf)

    async def drop(self) -> None:
        """Close the connection: what it still owes is nobody's answer any more."""
        await self._connection.disconnect(nowait=True)

"""One typed caller for each Lua file."""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Literal

from slb.control.connection import Connection


class ReadMany:
    """`lua/read_many.lua`: SMEMBERS or HGETALL of many keys in one step."""

    def __init__(self, connection: Connection) -> None:
        source = files("slb.control").joinpath("lua/read_many.lua").read_text()
        self._script = connection.client.register_script(source)

    async def __call__(self, command: Literal["SMEMBERS", "HGETALL"], keys: Sequence[str]) -> list[Any]:
        """The replies in the order of `keys`: lists of texts (a hash as names and values in turn), or errors."""
        replies: list[Any] = await self._script(keys=list(keys), args=[command])
        return replies

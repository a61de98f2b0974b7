"""Which server the connections of one URL are made to: where it is now, and which connections are of one
before.

A command is never sent twice: what fails while a server is replaced fails, and the next connection is made to
the server that is right then."""

import asyncio
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from slb.control.redis_url import Address

CHECKED_WITHIN = 0.5
"""Seconds in which a server that was connected to has to say that it is the master: one that is frozen is not
waited for while another may take its place."""

_DOUBTED_FOR = 1.0
"""Seconds between two times that all connections of the pool are made anew since writes are refused: a Redis
that is a replica for good is read all the same."""


class Server:
    """The one that the URL names; its name is resolved at each connect. Where it answers that it is read-only,
    the address may have moved to another. `version`: connections made under another number are to be made
    anew."""

    is_checked = False
    """Whether a connection is used only once the server has said that it is a master."""

    def __init__(self) -> None:
        self.version = 0
        self._doubted_at = 0.0

    async def find(self) -> Address | None:
        """Where to connect to; None: where the URL says. Raises RedisError where that is not known."""
        return None

    def is_current(self, address: Address) -> bool:
        """Whether that is still where to connect to, by what was found last."""
        return True

    def failed(self) -> None:
        """A connection to what was found did not come to be."""

    def moved(self) -> None:
        """A server has answered that another one has the key."""

    def close(self) -> None:
        """Ask nobody any more."""

    def refused_to_write(self) -> None:
        """A server has answered that it is a replica."""
        now = asyncio.get_running_loop().time()
        if now - self._doubted_at >= _DOUBTED_FOR:
            self._doubted_at = now
            self.version += 1


def fault_in_role(reply: Any) -> RedisError | None:
    """What ROLE shows: an error for a server that is no master."""
    if isinstance(reply, RedisError):
        return reply
    role = reply[0] if isinstance(reply, list) and reply else reply
    return None if role == "master" else RedisConnectionError(f"the server is no master: its role is {role!s:.20}")

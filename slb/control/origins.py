"""Where each member of a route is from: registered for good, registered with a lease, or written by discovery."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from slb.control import keys
from slb.control.connection import Connection
from slb.control.leases import seconds_left

Origin = Literal["static", "lease", "discovered"]
"""`lease`: it ends unless it is renewed (`slb:leases`). `discovered`: sources of discovery alone name it
(`slb:discovered:...`, whose fields lua/discovered.lua explains). `static`: somebody registered it, and it stays."""

_ROUTES_AT_ONCE = 200


async def origins(connection: Connection, routes: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Origin]]:
    """Of each route (path -> members) each member's. Raises what the connection does."""
    pairs = [(path, member) for path, members in routes.items() for member in members]
    leased = {
        pair for pair, left in zip(pairs, await seconds_left(connection, pairs), strict=True) if left is not None
    }
    found: dict[str, dict[str, Origin]] = {}
    for paths in _handfuls(list(routes)):
        async with connection.client.pipeline(transaction=False) as pipe:
            for path in paths:
                pipe.hkeys(keys.discovered_key(path))
            replies = await pipe.execute()
        for path, fields in zip(paths, replies, strict=True):
            discovered = discovery_alone(fields)
            found[path] = {
                member: "lease" if (path, member) in leased else "discovered" if member in discovered else "static"
                for member in routes[path]
            }
    return found


def discovery_alone(fields: Sequence[str]) -> set[str]:
    """The members that sources name, and nobody else registered, by the fields of a hash of discovery."""
    words = [field.split(" ", 2) for field in fields]
    named = {each[1] for each in words if len(each) == 3 and each[0] == "is"}
    return named - {each[1] for each in words if len(each) == 2 and each[0] == "others"}


def _handfuls(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(paths), _ROUTES_AT_ONCE):
        yield paths[start : start + _ROUTES_AT_ONCE]

"""Writes routes, settings and attributes to Redis. To see them, read the mirror."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from uuid import uuid4

from redis.exceptions import RedisError, ResponseError

from slb.control import keys
from slb.control.changes import Change, OnWritten, flat, leaving, orphaned, replies_of
from slb.control.connection import Connection
from slb.control.leases import Renew, seconds_left
from slb.control.origins import Origin, origins
from slb.control.resp import readable
from slb.control.scripts import ReadMany, own, pairs, scan_names
from slb.control.written import Row
from slb.errors import BAD_REQUEST, RedisUnavailable, Refused
from slb.routing.mirror import Mirror

ToRegister = tuple[str, str, Mapping[str, str]]
"""path, member (both in normal form), attributes to set."""

_WRONG_TYPE = "WRONGTYPE"
_DELETE_AT_ONCE = 200
_MOST_TRACED = 1000
_PATIENCE = 0.25
"""Seconds to wait for what is shown in addition to this instance's own data."""


_HOLDS = {
    keys.MEMBERS: ("set", "targets", "path"),
    keys.SETTINGS: ("hash", "settings", "path"),
    keys.UPSTREAM: ("hash", "attributes", "target"),
}
"""By how a key begins: its type, what of, and the field of a request that names it."""


class Registry:
    """Every method but `reset` is one atomic step in Redis, with its traces in `slb:changes`. They raise
    RedisUnavailable where Redis does not take it within the deadline (it may have been written all the same),
    Refused where a key holds something of another type. Names are in normal form. `mirror`: which routes name a
    member, and what Redis may have lost of a route; without it the hash of a member is left to `Orphans`.
    `on_written`: called with each change, before the method returns."""

    def __init__(
        self,
        connection: Connection,
        mirror: Mirror | None = None,
        on_written: OnWritten | None = None,
    ) -> None:
        self._connection = connection
        self._mirror = mirror
        self._change = Change(connection, on_written)
        self._renew = Renew(connection)
        self._read_many = ReadMany(connection)

    async def register(self, path: str, member: str, attributes: Mapping[str, str]) -> bool:
        """Add a member to a route; True where it was not there yet."""
        return (await self.register_all([(path, member, attributes)]))[0]

    async def deregister(self, path: str, member: str) -> bool:
        """Take a member from a route; True where it was there."""
        return (await self.deregister_all([(path, member)]))[0]

    async def register_all(
        self, items: Sequence[ToRegister], ttls: Sequence[float | None] | None = None
    ) -> list[bool]:
        """Add them all or none; for each, whether it was not there yet. Attributes come before the member, so
        that no member is read without them. `ttls`: for each the seconds until it ends unless it is registered
        again, None for good. Where all of them are only renewed that is one call, and no change of the table."""
        return (await self.register_and_compare(items, ttls))[0]

    async def register_and_compare(
        self, items: Sequence[ToRegister], ttls: Sequence[float | None] | None = None
    ) -> tuple[list[bool], set[str]]:
        """`register_all`, and the members of which an attribute had another value, or none."""
        leases = [None if ttl is None else round(ttl * 1000) for ttl in ttls or [None] * len(items)]
        async with self._answering():
            if items and all(leases) and await self._renew(items, leases):
                return [False] * len(items), set()
            rows: list[Row] = [("describe", keys.upstream_key(each), flat(new)) for _, each, new in items if new]
            for (path, member, _), lease in zip(items, leases, strict=True):
                rows.append(("join", keys.route_key(path), (member,)))
                rows.append(("claim", keys.discovered_key(path), (member,)))
                if lease is not None:
                    rows.append(("lease", keys.route_key(path), (member, str(lease))))
            await self._check([key for operation, key, _ in rows if operation != "claim"])
            replies = await self._change(rows)
        described = [member for _, member, new in items if new]
        differing = zip(described, replies_of("describe", rows, replies), strict=True)
        return replies_of("join", rows, replies), {member for member, is_other in differing if is_other}

    async def deregister_all(self, items: Sequence[tuple[str, str]]) -> list[bool]:
        """Take them all from their routes or none; for each, whether it was there."""
        async with self._answering():
            await self._check([keys.route_key(path) for path, _ in items])
            rows = leaving("leave", items, self._mirror)
            replies = await self._change(rows)
        return replies_of("leave", rows, replies)

    async def leases(self, items: Sequence[tuple[str, str]]) -> list[float | None] | None:
        """Of each registration the seconds until it ends, None for good. None at all where Redis is slow."""
        if not self._connection.up:
            return None
        try:
            async with asyncio.timeout(_PATIENCE):
                with readable():
                    return await seconds_left(self._connection, items)
        except (RedisError, OSError, TimeoutError):
            return None

    async def origins(self, routes: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Origin]]:
        """Of each route (path -> members) where each of its members is from."""
        async with self._answering():
            with readable():
                return await origins(self._connection, routes)

    async def settings(self, path: str) -> dict[str, str]:
        """The route's settings as they are written. Of a hash too large for that, the fields that are settings."""
        key = keys.settings_key(path)
        async with self._answering():
            await self._check([key])
            return pairs(own((await self._read_many.first("h", key)).reply))

    async def put_settings(self, path: str, settings: Mapping[str, str]) -> None:
        key = keys.settings_key(path)
        async with self._answering():
            await self._change([("replace", key, flat(settings)) if settings else ("remove", key, ())])

    async def patch_settings(self, path: str, changes: Mapping[str, str | None]) -> None:
        """Set some of the route's settings; None takes one back to its default."""
        await self._patch(keys.settings_key(path), changes)

    async def patch_upstream(self, member: str, changes: Mapping[str, str | None]) -> None:
        """Set some of the upstream's attributes; None takes one back to its default."""
        await self._patch(keys.upstream_key(member), changes)

    async def _patch(self, key: str, changes: Mapping[str, str | None]) -> None:
        kept = {name: value for name, value in changes.items() if value is not None}
        dropped = [name for name, value in changes.items() if value is None]
        rows: list[Row] = [("set", key, flat(kept)), ("unset", key, dropped)]
        async with self._answering():
            await self._check([key])
            await self._change([row for row in rows if row[2]])

    async def delete_route(self, path: str) -> bool:
        """Remove the route's members and settings, and the attributes of those that no other route names. True
        where there was any, in Redis or in the mirror: what Redis has lost would be written back otherwise."""
        known = self._mirror.records.get(path) if self._mirror else None
        async with self._answering():
            members = sorted({*await self._members(path), *(known.members if known else ())})
            rows: list[Row] = [_cleared(keys.route_key(path), members), ("remove", keys.settings_key(path), ())]
            rows.append(("forget", keys.discovered_key(path), ()))
            if (mirror := self._mirror) is not None:
                last = [each for each in members if mirror.uses(each, [path]) <= 0]
                rows += [orphaned("remove_unused", each, mirror) for each in last]
            gone = await self._change(rows)
        return any(gone[:2]) or known is not None

    async def reset(self) -> int:
        """Remove all routes, settings and attributes; how many routes. The generation shows that this was on
        purpose. All entries count as changed, also those that Redis had lost."""
        routes: set[str | None] = set()
        async with self._answering():
            made = uuid4().hex
            for name in keys.generation_keys(self._connection.servers.cluster is not None):
                await self._connection.client.set(name, made, nx=True)
        async with self._answering():
            await self._connection.client.delete(keys.LEASES)
        async for found in self._keys_of_routes():
            async with self._answering():
                await self._change([_cleared(key, ()) for key in found])
            routes.update(map(keys.path_of, found))
        async with self._answering():
            await self._change([("all", keys.GENERATION, ())])
        return len(routes - {None})

    async def _keys_of_routes(self) -> AsyncIterator[list[str]]:
        """All keys `reset` removes, in handfuls. Keys not in our form belong to other programs and stay."""
        pages = scan_names(self._connection, keys.OURS)
        while True:
            async with self._answering():
                page = await anext(pages, None)
            if page is None:
                return
            ours = [key for key in page if keys.path_of(key) is not None or keys.member_of(key) is not None]
            for start in range(0, len(ours), _DELETE_AT_ONCE):
                yield ours[start : start + _DELETE_AT_ONCE]

    async def _members(self, path: str) -> list[str]:
        """The members of the route; none for a set that is too large: their attributes are removed as orphans."""
        found = (await self._read_many.first("s", keys.route_key(path))).reply
        if isinstance(found, ResponseError) and _WRONG_TYPE in str(found):
            return []
        return list(filter(keys.is_normal_member, own(found)))

    async def _check(self, names: Collection[str]) -> None:
        """A transaction does not undo what came before a WRONGTYPE, so ask first."""
        asked = sorted(set(names))
        async with self._connection.client.pipeline(transaction=False) as pipe:
            for key in asked:
                pipe.type(key)
            kinds = await pipe.execute() if asked else []
        for key, kind in zip(asked, kinds, strict=True):
            wanted, what, field = next(each for start, each in _HOLDS.items() if key.startswith(start))
            if kind not in (wanted, "none"):
                raise Refused(BAD_REQUEST, f"{field}: {key} in Redis holds a {kind}, not a {wanted} of {what}")

    @asynccontextmanager
    async def _answering(self) -> AsyncIterator[None]:
        try:
            async with self._connection.answering():
                yield
        except RedisUnavailable as error:
            if _WRONG_TYPE in str(error):
                raise Refused(BAD_REQUEST, f"a key in Redis has become one of another type: {error}") from None
            raise


def _cleared(key: str, members: Sequence[str]) -> Row:
    """The row that removes a set; without its members where they are too many to log one by one."""
    return "clear", key, members if len(members) <= _MOST_TRACED else ()

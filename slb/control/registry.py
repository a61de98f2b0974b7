"""Writes routes, settings and attributes to Redis. Who wants to see them read the mirror."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from redis.exceptions import RedisError, ResponseError

from slb.control import keys
from slb.control.connection import Connection
from slb.errors import BAD_REQUEST, RedisUnavailable, Refused

Registration = tuple[str, str, Mapping[str, str]]
"""path, member (both in normal form), attributes to set."""

_SCAN_COUNT = 1000
_DELETE_AT_ONCE = 200


class Registry:
    """Every method but `reset` is one atomic step in Redis, or raises: RedisUnavailable where Redis does not take
    it within the deadline, Refused where a key holds something that is not a route. Names are in normal form.

    `uses(member)` is how many routes are known to name a member: its hash goes with the last of them. Without
    it hashes stay until the watcher finds them orphaned.
    """

    def __init__(self, connection: Connection, uses: Callable[[str], int] | None = None) -> None:
        self._connection = connection
        self._uses = uses

    async def register(self, path: str, member: str, attributes: Mapping[str, str]) -> bool:
        """Add a member to a route; True where it was not there yet."""
        return (await self.register_all([(path, member, attributes)]))[0]

    async def deregister(self, path: str, member: str) -> bool:
        """Take a member from a route; True where it was there."""
        return (await self.deregister_all([(path, member)]))[0]

    async def register_all(self, items: Sequence[Registration]) -> list[bool]:
        """Add them all or none; for each, whether it was not there yet. Attributes come before the member, so
        that nobody reads a member without them."""
        async with self._answering():
            await self._check_types(path for path, _, _ in items)
            joined = await self._redis_time()
            replies = await self._transaction(lambda pipe: _add_all(pipe, items, joined))
        return [bool(added) for added in replies[-len(items) :]] if items else []

    async def deregister_all(self, items: Sequence[tuple[str, str]]) -> list[bool]:
        """Take them all from their routes or none; for each, whether it was there."""
        async with self._answering():
            await self._check_types(path for path, _ in items)
            replies = await self._transaction(lambda pipe: self._remove_all(pipe, items))
        return [bool(removed) for removed in replies[: len(items)]]

    async def settings(self, path: str) -> dict[str, str]:
        """The route's settings as they are written; empty where there are none."""
        async with self._answering():
            return dict(await self._connection.client.hgetall(keys.settings_key(path)))

    async def put_settings(self, path: str, settings: Mapping[str, str]) -> None:
        """Replace the route's settings."""

        def write(pipe: Any) -> None:
            pipe.delete(keys.settings_key(path))
            if settings:
                pipe.hset(keys.settings_key(path), mapping=dict(settings))

        async with self._answering():
            await self._transaction(write)

    async def patch_settings(self, path: str, changes: Mapping[str, str | None]) -> None:
        """Set some of the route's settings; None takes one back to its default."""
        kept = {name: value for name, value in changes.items() if value is not None}
        dropped = [name for name, value in changes.items() if value is None]

        def write(pipe: Any) -> None:
            if kept:
                pipe.hset(keys.settings_key(path), mapping=kept)
            if dropped:
                pipe.hdel(keys.settings_key(path), *dropped)

        async with self._answering():
            await self._transaction(write)

    async def delete_route(self, path: str) -> bool:
        """Remove the route's members and settings; True where there was any."""
        async with self._answering():
            gone: int = await self._connection.client.delete(keys.route_key(path), keys.settings_key(path))
        return gone > 0

    async def reset(self) -> int:
        """Empty Redis of routes, settings and attributes on purpose; the number of routes removed.

        The generation stays, or is made: it tells every instance that this emptiness is the truth, to follow.
        """
        routes = 0
        await self._ensure_generation()
        async for found in self._keys_of_routes():
            async with self._answering():
                await self._connection.client.delete(*found)
            routes += sum(key.startswith(keys.MEMBERS) for key in found)
        return routes

    async def _ensure_generation(self) -> None:
        async with self._answering():
            await self._connection.client.set(keys.GENERATION, uuid4().hex, nx=True)

    async def _keys_of_routes(self) -> AsyncIterator[list[str]]:
        """All keys `reset` removes, in handfuls. Keys not in our form are somebody else's and stay."""
        cursor = 0
        while True:
            async with self._answering():
                cursor, page = await self._connection.client.scan(cursor, match=keys.OURS, count=_SCAN_COUNT)
            ours = [key for key in page if keys.path_of(key) is not None or keys.member_of(key) is not None]
            for start in range(0, len(ours), _DELETE_AT_ONCE):
                yield ours[start : start + _DELETE_AT_ONCE]
            if not cursor:
                return

    def _remove_all(self, pipe: Any, items: Sequence[tuple[str, str]]) -> None:
        for path, member in items:
            pipe.srem(keys.route_key(path), member)
        for member in self._last_uses(items):
            pipe.delete(keys.upstream_key(member))

    def _last_uses(self, items: Sequence[tuple[str, str]]) -> Iterable[str]:
        """Members that, as far as is known, no route names after this."""
        if self._uses is None:
            return ()
        going: dict[str, int] = {}
        for _, member in set(items):
            going[member] = going.get(member, 0) + 1
        return [member for member, count in going.items() if self._uses(member) <= count]

    async def _check_types(self, paths: Iterable[str]) -> None:
        """A transaction does not undo what came before a WRONGTYPE, so ask first."""
        names = sorted({keys.route_key(path) for path in paths})
        async with self._connection.client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.type(name)
            kinds = await pipe.execute() if names else []
        for name, kind in zip(names, kinds, strict=True):
            if kind not in ("set", "none"):
                raise Refused(BAD_REQUEST, f"path: {name} in Redis holds a {kind}, not a route's set of targets")

    async def _redis_time(self) -> str:
        """Unix time by Redis's clock: instances' own clocks differ."""
        seconds, microseconds = await self._connection.client.time()
        return f"{seconds}.{microseconds:06d}"

    async def _transaction(self, fill: Callable[[Any], None]) -> list[Any]:
        async with self._connection.client.pipeline(transaction=True) as pipe:
            fill(pipe)
            return list(await pipe.execute()) if len(pipe) else []

    @asynccontextmanager
    async def _answering(self) -> AsyncIterator[None]:
        """Turns Redis being away, or refusing to write, into RedisUnavailable with a sentence."""
        try:
            async with asyncio.timeout(self._connection.command_deadline):
                yield
        except TimeoutError:
            raise RedisUnavailable(f"Redis did not answer within {self._connection.command_deadline:g} s") from None
        except ResponseError as error:
            raise RedisUnavailable(f"Redis refused: {error}") from None
        except (RedisError, OSError) as error:
            raise RedisUnavailable(f"Redis does not answer: {error}") from None


def _add_all(pipe: Any, items: Sequence[Registration], joined: str) -> None:
    for _, member, attributes in items:
        if attributes:
            pipe.hset(keys.upstream_key(member), mapping=dict(attributes))
            pipe.hsetnx(keys.upstream_key(member), "joined", joined)
    for path, member, _ in items:
        pipe.sadd(keys.route_key(path), member)

"""What discovery writes of a route: its members and their attributes, and which source each is of. One instance
writes a source, by a lease; the number of its term fences off whoever wrote before."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from redis.exceptions import ResponseError

from slb.control import keys
from slb.control.changes import Change, OnWritten, flat, leaving
from slb.control.connection import Connection
from slb.control.scripts import source as source_of_script
from slb.control.written import Row
from slb.names import is_normal_path
from slb.routing.mirror import Mirror

Attributes = Mapping[str, str]
"""As in the hash of an upstream: `weight`, `slots`, `zone`, `node`, and `drain`, which is "true" or not there."""

_AT_ONCE = 100  # members in one call
_MOST_KNOWN = 100_000  # sources that are read at once
_DRAIN = "drain"


class Fenced(Exception):
    """Another instance has written by a later lease; nothing was written."""


class Lost(Exception):
    """Redis does not have what this instance had written; nothing was written."""


class Term(NamedTuple):
    """One source of one route, and the number of the lease by which it is written."""

    path: str
    source: str
    number: int


class Writers:
    """`lua/writers.lua`: who writes which source."""

    def __init__(self, connection: Connection, id_: str, name: str) -> None:
        self._connection = connection
        self._script = connection.client.register_script(source_of_script("writers"))
        self._who = [id_, name]

    async def ask(
        self, sources: Sequence[tuple[str, str, bool]], lease: float, first: float = 0.0
    ) -> list[tuple[int, str]]:
        """Take or keep for `lease` seconds those of the sources (path, name, whether this instance writes it now)
        that no other instance writes; 0 gives them back. What no one has ever written others may take before it for
        `first` seconds, if they did: Redis may have lost that. Of each the number of this instance's term, 0 for
        none, and the name of who writes it. Raises RedisUnavailable."""
        if not sources:
            return []
        named = (f"{'+' if writes else ''}{path} {name}" for path, name, writes in sources)
        args = [*self._who, round(lease * 1000), round(first * 1000), *named]
        async with self._connection.answering():
            reply = await self._script(keys=[keys.DISCOVERY_WRITERS], args=args)
            return [(int(number), name) for number, name in zip(reply[::2], reply[1::2], strict=True)]

    async def known(self) -> list[tuple[str, str]]:
        """The sources (path, name) that were ever asked for, unless none has been for a day; none at all where
        there are too many. Raises RedisUnavailable."""
        async with self._connection.answering() as client:
            is_many = await client.hlen(keys.DISCOVERY_WRITERS) > _MOST_KNOWN
            found = [] if is_many else await client.hkeys(keys.DISCOVERY_WRITERS)
            pairs = [str(field).split(" ", 1) for field in found]
        return [(path, name[0]) for path, *name in pairs if name and is_normal_path(path)]


class Discovered:
    """Raises Fenced and Lost, and RedisUnavailable where Redis does not take it. Names are in normal form."""

    def __init__(self, connection: Connection, mirror: Mirror, on_written: OnWritten | None = None) -> None:
        self._connection = connection
        self._change = Change(connection, on_written)
        self._mirror = mirror

    async def take(self, term: Term) -> dict[str, dict[str, str]]:
        """Begin a term: no earlier one writes from now on. The members that the source had, and what it had said of
        each."""
        key, end = keys.discovered_key(term.path), f" {term.source}"
        async with self._connection.answering() as client:
            await self._write(term, [], is_known=False)
            kept = await client.hgetall(key)
            found = {
                field[3 : -len(end)]: text
                for field, text in kept.items()
                if field.startswith("is ") and field.endswith(end)
            }
        return {member: _read(text) for member, text in found.items() if keys.is_normal_member(member)}

    async def write(
        self,
        term: Term,
        before: Mapping[str, Attributes],
        after: Mapping[str, Attributes],
        mine: Collection[str] = (),
    ) -> tuple[int, int]:
        """Write what has changed since `before`, which is what the source said last: attributes that others have
        set stay. `mine`: members that this source had, though Redis may not know it any more. How many members came
        and went."""
        came = went = 0
        for some in _handfuls(sorted(m for m in before.keys() | after.keys() if before.get(m) != after.get(m))):
            rows = [row for member in some for row in self._rows(term.path, member, before, after, mine)]
            async with self._connection.answering():
                done = dict(_members(rows, await self._write(term, rows, is_known=True)))
                stay = [member for member, changed in done.items() if member not in after and not changed]
                drained = [member for member in stay if _DRAIN in before[member]]
                await self._change([("unset", keys.upstream_key(member), (_DRAIN,)) for member in drained])
            came += sum(changed for member, changed in done.items() if member in after)
            went += sum(changed for member, changed in done.items() if member not in after)
        return came, went

    def _rows(
        self,
        path: str,
        member: str,
        before: Mapping[str, Attributes],
        after: Mapping[str, Attributes],
        mine: Collection[str],
    ) -> Iterator[Row]:
        if member not in after:
            yield from leaving("lost", [(path, member)], self._mirror)
            return
        then, now, key = before.get(member), after[member], keys.upstream_key(member)
        if then is None:
            yield "describe", key, flat(now)
        else:
            changed = {name: text for name, text in now.items() if then.get(name) != text}
            dropped = sorted(then.keys() - now.keys())
            yield from [("set", key, flat(changed))] if changed else []
            yield from [("unset", key, dropped)] if dropped else []
        is_mine = then is not None or member in mine
        yield "found", keys.route_key(path), (member, _written(now), str(int(is_mine)))

    async def _write(self, term: Term, rows: Sequence[Row], is_known: bool) -> list[bool]:
        """For each row whether something came or went."""
        fence = "fence", keys.discovered_key(term.path), (term.source, str(term.number), str(int(is_known)))
        try:
            return (await self._change([fence, *rows]))[1:]
        except ResponseError as error:
            if str(error).startswith("FENCED"):
                raise Fenced(str(error)) from None
            if str(error).startswith("LOST"):
                raise Lost from None
            raise


def _members(rows: Sequence[Row], replies: Sequence[bool]) -> Iterator[tuple[str, bool]]:
    for (operation, _, given), reply in zip(rows, replies, strict=True):
        if operation in ("found", "lost"):
            yield given[0], reply


def _handfuls(members: Sequence[str]) -> Iterator[list[str]]:
    waiting = iter(members)
    while some := list(islice(waiting, _AT_ONCE)):
        yield some


def _written(attributes: Attributes) -> str:
    """`drain=true zone=a`: no attribute has a blank."""
    return " ".join(f"{name}={text}" for name, text in sorted(attributes.items()))


def _read(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split() if "=" in part)

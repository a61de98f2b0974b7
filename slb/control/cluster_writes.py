"""What slb writes of the table where it is in a Redis Cluster: keys of a route, of its upstreams, of the log
and of the leases are in different slots, so a change takes several steps, each of one key.

It is noted in the log first: what is interrupted after that leaves a number of what was there before, and the next
instance that sees the change finds it explained. A lease begins before its member comes, and ends after it has
left: interrupted, it ends for nobody, or once more. What several clients change at one time is as the last of
them left it."""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from redis.exceptions import ResponseError

from slb.control import keys
from slb.control.history import State
from slb.control.scripts import source
from slb.control.written import Row

if TYPE_CHECKING:
    from slb.control.connection import Connection

FLOOR = "floor"
_AT_ONCE = 100
_MOST_FIELDS = 1000
"""As lua/write_back.lua has it."""

_HELD_MORE = 2
_LAST = frozenset({"remove_after", "remove_unused"})
_WRONG_TYPE = "WRONGTYPE"

LeaseRow = tuple[str, str, int | str]
"""An operation of `lua/lease_rows.lua`, an entry, milliseconds or nothing."""


class ClusterWrites:
    """`change`, `write_back` and `renew` do what the scripts of these names do in one server. Raise RedisError."""

    def __init__(self, connection: "Connection") -> None:
        self._client = connection.client
        self._note = self._client.register_script(source("revisions", "note"))
        self._one = self._client.register_script(source("change_one"))
        self._discovered_rows = self._client.register_script(
            source("discovered_alone", "discovered", "discovered_rows")
        )
        self._lease_rows = self._client.register_script(source("leases", "lease_rows"))

    # -- changes

    async def change(self, rows: Sequence[Row]) -> tuple[int, list[bool]]:
        """The number, and for each row whether something came or went."""
        if rows[0][0] == "fence":
            return await self._discovered(rows)
        replies = [0] * len(rows)
        due = await self._due(rows)
        number = await self._noted([entry for at in due for entry in _entries(rows[at])])
        await self._leases(list(_leases_before([rows[at] for at in due])))
        first = [at for at in due if rows[at][0] == "describe"]
        last = [at for at in due if rows[at][0] in _LAST]
        await self._run(rows, first, replies)
        await self._run(rows, [at for at in due if at not in {*first, *last}], replies)
        await self._run_last(rows, last, replies)
        await self._leases([("drop", entry, "") for at in due for entry in _left(rows[at])])
        await self._settle_expired([rows[at] for at in due if rows[at][0] == "expire"])
        return number, [bool(reply) for reply in replies]

    async def _discovered(self, rows: Sequence[Row]) -> tuple[int, list[bool]]:
        """What one source writes of one route. The fence is asked before anything is written, and again with the
        members; a writer that is frozen between the two, and replaced, may set attributes once more."""
        replies = [1] + [0] * (len(rows) - 1)
        own = [at for at, row in enumerate(rows) if row[0] in ("found", "lost")]
        last = [at for at, row in enumerate(rows) if row[0] in _LAST]
        others = [at for at in range(1, len(rows)) if at not in {*own, *last}]
        await self._fenced(rows[0], [])
        number = await self._noted([entry for row in rows for entry in _entries(row)])
        await self._run(rows, others, replies)
        for at, reply in zip(own, await self._fenced(rows[0], [rows[at] for at in own]), strict=True):
            replies[at] = reply
        came = [f"{rows[at][1]} {rows[at][2][0]}" for at in own if rows[at][0] == "found" and replies[at]]
        await self._leases([("drop", entry, "") for entry in came])
        await self._run_last(rows, last, replies)
        return number, [bool(reply) for reply in replies]

    async def _fenced(self, fence: Row, rows: Sequence[Row]) -> list[int]:
        """`lua/discovered_rows.lua`; without rows it asks whether these may be written."""
        names = [fence[1], rows[0][1] if rows else fence[1]]
        args = [text for operation, _, given in rows for text in (operation, *given, *[""] * (3 - len(given)))]
        return [int(reply) for reply in await self._discovered_rows(keys=names, args=[*fence[2], *args])]

    async def _due(self, rows: Sequence[Row]) -> list[int]:
        """Which rows there is something to do for: not where a lease has not ended."""
        ends = [f"{key} {given[0]}" for operation, key, given in rows if operation == "expire"]
        ended = dict(zip(ends, await self._leases([("ended", entry, "") for entry in ends]), strict=True))
        return [
            at
            for at, (operation, key, given) in enumerate(rows)
            if operation != "expire" or ended[f"{key} {given[0]}"]
        ]

    async def _run(self, rows: Sequence[Row], some: Collection[int], replies: list[int]) -> None:
        """These rows, beside each other."""
        wanted = [at for at in some if rows[at][0] not in ("lease", "all")]
        for start in range(0, len(wanted), _AT_ONCE):
            part = wanted[start : start + _AT_ONCE]
            calls = (self._one(keys=[rows[at][1]], args=[rows[at][0], *rows[at][2]]) for at in part)
            for at, reply in zip(part, await asyncio.gather(*calls), strict=True):
                replies[at] = int(reply)
        if any(rows[at][0] == "clear" and replies[at] == _HELD_MORE for at in wanted):
            await self._noted([FLOOR])  # of members that nobody has named no trace could be left one by one

    async def _run_last(self, rows: Sequence[Row], last: Sequence[int], replies: list[int]) -> None:
        """Hashes of upstreams that are in no route, as lua/change.lua says."""
        some = [at for at in last if rows[at][0] != "remove_after" or replies[at - 1]]
        if some and (some := await self._unused(rows, some)):
            await self._noted([rows[at][1] for at in some])
            await self._run(rows, some, replies)

    async def _unused(self, rows: Sequence[Row], some: Sequence[int]) -> list[int]:
        """Those whose upstreams have come to no route since what the caller has read."""
        number = rows[some[0]][2][0]
        since = await self._client.zrange(keys.CHANGES, f"({number}", "+inf", byscore=True)
        if (await self._client.zscore(keys.CHANGES, FLOOR) or 0) > int(number):
            return []
        members = {rows[at][1].removeprefix(keys.UPSTREAM) for at in some}
        named = [each for entry in since if (each := keys.membership_of(entry)) and each[1] in members]
        there = await asyncio.gather(*(self._client.sismember(keys.route_key(path), each) for path, each in named))
        used = {member for (_, member), is_there in zip(named, there, strict=True) if is_there}
        return [at for at in some if rows[at][1].removeprefix(keys.UPSTREAM) not in used]

    async def _settle_expired(self, rows: Sequence[Row]) -> None:
        """One that was renewed after it was found to have ended comes back."""
        taken = await self._leases([("take", f"{key} {given[0]}", "") for _, key, given in rows])
        back: list[Row] = [("join", *row[1:]) for row, was_taken in zip(rows, taken, strict=True) if not was_taken]
        await self._noted([entry for row in back for entry in _entries(row)] if back else [])
        await self._run(back, range(len(back)), [0] * len(back))

    async def _noted(self, entries: Sequence[str]) -> int:
        return int(await self._note(keys=[keys.CHANGES], args=entries)) if entries else 0

    async def _leases(self, rows: Sequence[LeaseRow]) -> list[int]:
        found: list[int] = []
        for start in range(0, len(rows), _AT_ONCE):
            args = [text for row in rows[start : start + _AT_ONCE] for text in row]
            found += map(int, await self._lease_rows(keys=[keys.LEASES], args=args))
        return found

    # -- renewals

    async def renew(self, items: Sequence[tuple[str, str, Mapping[str, str]]], ttls: Sequence[int | None]) -> bool:
        """False where one is no member, has no lease, or other attributes; others may be renewed."""
        for start in range(0, len(items), _AT_ONCE):
            if not all(await asyncio.gather(*map(self._stands, items[start : start + _AT_ONCE]))):
                return False
        rows: list[LeaseRow] = [
            ("renew", keys.membership(path, member), ttl or "")
            for (path, member, _), ttl in zip(items, ttls, strict=True)
        ]
        return all(await self._leases(rows))

    async def _stands(self, item: tuple[str, str, Mapping[str, str]]) -> bool:
        path, member, attributes = item
        try:
            if not await self._client.sismember(keys.route_key(path), member):
                return False
            found = await self._client.hmget(keys.upstream_key(member), list(attributes)) if attributes else []
        except ResponseError as error:
            if _WRONG_TYPE in str(error):
                return False
            raise
        return list(found) == list(attributes.values())

    # -- what Redis has lost

    async def write_back(self, rows: Sequence[tuple[str, State, Sequence[str]]]) -> int:
        """Entries, their states, and these as a row's operation and arguments. How many were not written, for a key
        of another type."""
        before = await self._stand([entry for entry, _, _ in rows])
        newer = [(row, stood) for row, stood in zip(rows, before, strict=True) if row[1].number >= stood]
        refused = sum(await asyncio.gather(*(self._put(*row) for row, _ in newer)))
        await self._leases([("drop", row[0], "") for row, stood in newer if row[1].number > stood])
        logged = {entry: each.number for (entry, each, _), _ in newer if each.is_logged}
        if logged:
            await self._client.zadd(keys.CHANGES, logged, gt=True)
        return refused

    async def _put(self, entry: str, each: State, given: Sequence[str]) -> int:
        key = entry.partition(" ")[0]
        try:
            if given[0] == "replace":
                await self._replace(key, dict(zip(given[1::2], given[2::2], strict=True)), each.number)
            else:
                await self._one(keys=[key], args=given)
        except ResponseError as error:
            if _WRONG_TYPE in str(error):
                return 1
            raise
        return 0

    async def _replace(self, key: str, fields: Mapping[str, str], number: int) -> None:
        """A hash made anew, but for fields that have changed since."""
        if await self._client.hlen(key) > _MOST_FIELDS:
            await self._client.delete(key)
        there = await self._client.hkeys(key)
        names = list(dict.fromkeys([*there, *fields]))
        logged = await self._client.zmscore(keys.CHANGES, [f"{key} {name}" for name in names]) if names else []
        older = {name for name, at in zip(names, logged, strict=True) if (at or 0) <= number}
        if gone := [name for name in there if name in older]:
            await self._client.hdel(key, *gone)
        if new := {name: value for name, value in fields.items() if name in older}:
            await self._client.hset(key, mapping=new)

    async def _stand(self, entries: Sequence[str]) -> list[float]:
        """The number at which each last changed, as far as the log has it."""
        if not entries:
            return []
        names = [FLOOR, *(name for entry in entries for name in (entry, keys.whole_of(entry)))]
        floor, *found = (score or 0 for score in await self._client.zmscore(keys.CHANGES, names))
        return [max(floor, own, whole) for own, whole in zip(found[::2], found[1::2], strict=True)]


def _entries(row: Row) -> Iterator[str]:
    """What a row notes in the log, but for what depends on another row."""
    operation, key, given = row
    if operation in ("join", "leave", "expire", "clear"):
        yield from (f"{key} {member}" for member in given)
    elif operation in ("found", "lost"):
        yield f"{key} {given[0]}"
    elif operation in ("set", "describe"):
        yield from (f"{key} {field}" for field in given[::2])
        if operation == "describe":
            yield f"{key} joined"
    elif operation == "unset":
        yield from (f"{key} {field}" for field in given)
    elif operation in ("replace", "remove"):
        yield key
    elif operation == "all":
        yield FLOOR


def _leases_before(rows: Sequence[Row]) -> Iterator[LeaseRow]:
    leased = {f"{key} {given[0]}": int(given[1]) for operation, key, given in rows if operation == "lease"}
    yield from (("lease", entry, ttl) for entry, ttl in leased.items())
    for operation, key, given in rows:
        if operation == "join" and (entry := f"{key} {given[0]}") not in leased:
            yield "drop", entry, ""


def _left(row: Row) -> Iterator[str]:
    operation, key, given = row
    if operation in ("leave", "clear"):
        yield from (f"{key} {member}" for member in given)

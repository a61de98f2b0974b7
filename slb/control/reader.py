"""Reads routes, settings and attributes out of Redis, and passes over what is not ours or is broken."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import ResponseError

from slb.control import keys
from slb.control.connection import Connection
from slb.control.scripts import ReadMany
from slb.control.skipped import Skipped
from slb.control.slices import Slices
from slb.model import RouteRecord

Found = dict[str, Counter[str]]

_SCAN_COUNT = 500
_AT_ONCE = 100
"""Keys read in one step: it holds Redis, and the handling of its reply our event loop, for about a millisecond."""

_NOTHING = RouteRecord()


@dataclass
class Snapshot:
    """What Redis held: path -> record, member -> its hash. `generation` is None where Redis has none. `instances`:
    id -> its hash.

    From `Reader.some`, a path that is gone maps to None and a hash that is gone is empty.
    """

    records: dict[str, RouteRecord] = field(default_factory=dict)
    attributes: dict[str, Mapping[str, str]] = field(default_factory=dict)
    generation: str | None = None
    instances: dict[str, Mapping[str, str]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)


@dataclass
class _Names:
    """What a SCAN turned up: paths with a set, paths with settings, members with a hash, ids of instances."""

    sets: set[str] = field(default_factory=set)
    settings: set[str] = field(default_factory=set)
    members: set[str] = field(default_factory=set)
    instances: set[str] = field(default_factory=set)


class GenerationChanged(Exception):
    """The generation changed while Redis was read: what was read is of two minds."""


class Reader:
    """Reads in slices; `known` and `known_attributes` let unchanged entries keep their objects."""

    def __init__(self, connection: Connection, skipped: Skipped) -> None:
        self._connection = connection
        self._read_many = ReadMany(connection)
        self._skipped = skipped

    async def everything(
        self, known: Mapping[str, RouteRecord], known_attributes: Mapping[str, Mapping[str, str]]
    ) -> Snapshot:
        """A full sync's reading. Raises GenerationChanged where Redis was emptied or restored meanwhile."""
        slices = Slices()
        generation = await self._connection.client.get(keys.GENERATION)
        found: Found = {}
        names = await self._scan(found, slices)
        snapshot = Snapshot(generation=generation)
        snapshot.instances = await self._hashes(list(names.instances), keys.instance_key, found, slices)
        members = _Members()
        settings = await self._hashes(list(names.settings), keys.settings_key, found, slices)
        await self._sets(list(names.sets), known, settings, members, snapshot, found, slices)
        for path in settings.keys() - snapshot.records.keys():
            snapshot.records[path] = _kept(RouteRecord(settings=settings[path]), known.get(path))
        attributes = await self._hashes(list(names.members), keys.upstream_key, found, slices)
        for member, each in attributes.items():
            before = known_attributes.get(member)
            snapshot.attributes[members.same(member)] = before if before == each else each
            await slices.rest()
        if await self._connection.client.get(keys.GENERATION) != generation:
            raise GenerationChanged
        self._skipped.replace(found)
        return snapshot

    async def some(
        self,
        paths: Sequence[str],
        members: Sequence[str],
        foreign: Sequence[str],
        known: Mapping[str, RouteRecord],
    ) -> Snapshot:
        """The state of a few paths and members. Whether `foreign` keys are still there is noted as skipped."""
        slices = Slices()
        found: Found = {}
        async with self._connection.client.pipeline(transaction=False) as pipe:
            for path in paths:
                pipe.smembers(keys.route_key(path))
                pipe.hgetall(keys.settings_key(path))
            for member in members:
                pipe.hgetall(keys.upstream_key(member))
            for key in foreign:
                pipe.exists(key)
            pipe.get(keys.GENERATION)
            replies = await pipe.execute(raise_on_error=False)
        snapshot = Snapshot(generation=_own(replies.pop()))
        reply = iter(replies)
        normal = _Members()
        for path in paths:
            raw = self._checked(next(reply), keys.route_key(path), found)
            settings = self._checked(next(reply), keys.settings_key(path), found)
            if raw or settings:
                before = known.get(path, _NOTHING)
                kept = await self._members(path, raw or (), before, normal, found, slices)
                snapshot.records[path] = _kept(RouteRecord(kept, settings or None), before)
            else:
                snapshot.gone.add(path)
        for member in members:
            snapshot.attributes[member] = self._checked(next(reply), keys.upstream_key(member), found) or {}
        for key in foreign:
            if self._checked(next(reply), key, found):
                self._skipped.note(found, "key", key)
        self._skipped.update(_keys_read(paths, members, foreign), found)
        return snapshot

    async def _scan(self, found: Found, slices: Slices) -> _Names:
        names = _Names()
        cursor: Any = 0
        while True:
            cursor, page = await self._connection.client.scan(cursor, match=keys.OURS, count=_SCAN_COUNT)
            for key in page:
                self._sort(key, names, found)
            await slices.rest()
            if not int(cursor):
                return names

    def _sort(self, key: str, names: _Names, found: Found) -> None:
        name: str | None
        if key.startswith(keys.UPSTREAM):
            name, place = keys.member_of(key), names.members
        elif key.startswith(keys.MEMBERS):
            name, place = keys.path_of(key), names.sets
        elif key.startswith(keys.SETTINGS):
            name, place = keys.path_of(key), names.settings
        elif key.startswith(keys.INSTANCE):
            name, place = key.removeprefix(keys.INSTANCE), names.instances
        else:
            return
        if name is not None:
            place.add(name)
        elif key not in found:
            self._skipped.note(found, "key", key)

    async def _sets(
        self,
        paths: list[str],
        known: Mapping[str, RouteRecord],
        settings: Mapping[str, Mapping[str, str]],
        members: "_Members",
        snapshot: Snapshot,
        found: Found,
        slices: Slices,
    ) -> None:
        for some in _handfuls(paths):
            replies = await self._read_many("SMEMBERS", [keys.route_key(path) for path in some])
            for path, reply in zip(some, replies, strict=True):
                raw = self._checked(reply, keys.route_key(path), found)
                if raw:
                    before = known.get(path, _NOTHING)
                    kept = await self._members(path, raw, before, members, found, slices)
                    snapshot.records[path] = _kept(RouteRecord(kept, settings.get(path)), before)
                await slices.rest()

    async def _hashes(
        self, names: list[str], key_of: Callable[[str], str], found: Found, slices: Slices
    ) -> dict[str, Mapping[str, str]]:
        """name -> hash, for those that are hashes and still there."""
        hashes: dict[str, Mapping[str, str]] = {}
        for some in _handfuls(names):
            replies = await self._read_many("HGETALL", [key_of(name) for name in some])
            for name, reply in zip(some, replies, strict=True):
                written = self._checked(reply, key_of(name), found)
                if written:
                    hashes[name] = dict(zip(written[::2], written[1::2], strict=True))
            await slices.rest()
        return hashes

    async def _members(
        self,
        path: str,
        raw: Collection[str],
        before: RouteRecord,
        members: "_Members",
        found: Found,
        slices: Slices,
    ) -> frozenset[str]:
        """Those of `raw` in normal form; the others are noted."""
        if len(raw) == len(before.members) and before.members.issuperset(raw):
            return before.members
        kept: list[str] = []
        for count, member in enumerate(raw):
            if member in before.members or members.valid(member):
                kept.append(members.same(member))
            else:
                self._skipped.note(found, "member", keys.route_key(path), member)
            if count % 100 == 99:
                await slices.rest()
        return frozenset(kept)

    def _checked(self, reply: Any, key: str, found: Found) -> Any:
        """The reply, or None where the key is not of the type we expect."""
        if isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE"):
            self._skipped.note(found, "type", key)
            return None
        return _own(reply)


class _Members:
    """Members met during one reading: each is checked once, and kept as one string."""

    def __init__(self) -> None:
        self._met: dict[str, str] = {}

    def valid(self, member: str) -> bool:
        return member in self._met or keys.is_normal_member(member)

    def same(self, member: str) -> str:
        return self._met.setdefault(member, member)


def _kept(new: RouteRecord, before: RouteRecord | None) -> RouteRecord:
    """The old object where nothing changed: a resync then leaves no work for the garbage collector."""
    return before if before == new and before is not None else new


def _own(reply: Any) -> Any:
    if isinstance(reply, Exception):
        raise reply
    return reply


def _handfuls(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), _AT_ONCE):
        yield names[start : start + _AT_ONCE]


def _keys_read(paths: Sequence[str], members: Sequence[str], foreign: Sequence[str]) -> set[str]:
    return {
        *map(keys.route_key, paths),
        *map(keys.settings_key, paths),
        *map(keys.upstream_key, members),
        *foreign,
    }

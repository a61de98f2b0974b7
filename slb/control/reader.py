"""Reads routes, settings and attributes out of Redis, and passes over what is not ours or is broken."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import ResponseError

from slb.control import keys
from slb.control.connection import Connection
from slb.control.history import Snapshot
from slb.control.scripts import Read, ReadMany, ScanNames, own
from slb.control.skipped import Found, Skipped
from slb.control.slices import Slices
from slb.model import RouteRecord

_MEMBERS_AT_ONCE = 20
"""Members judged between two rests: one that is skipped takes as long as ten others, for it is logged."""

SPOILT = "spoilt"
"""Stands for a generation that is no text."""

_NOTHING = RouteRecord()


@dataclass
class _Names:
    """What a SCAN turned up: paths with a set, paths with settings, members with a hash, ids of instances."""

    sets: set[str] = field(default_factory=set)
    settings: set[str] = field(default_factory=set)
    members: set[str] = field(default_factory=set)
    instances: set[str] = field(default_factory=set)


class GenerationChanged(Exception):
    """The generation changed while Redis was read: what was read is not one consistent state."""


class Reader:
    """Reads in slices; `known` and `known_attributes` let unchanged entries keep their objects."""

    def __init__(self, connection: Connection, skipped: Skipped) -> None:
        self._read_many = ReadMany(connection)
        self._scan_names = ScanNames(connection)
        self._skipped = skipped

    async def everything(
        self, known: Mapping[str, RouteRecord], known_attributes: Mapping[str, Mapping[str, str]]
    ) -> Snapshot:
        """A full sync's reading. Raises GenerationChanged where Redis was emptied or restored meanwhile."""
        slices = Slices()
        found = Found()
        generation = self._generation(await self._read_many.first("g", keys.GENERATION), found)
        names = await self._scan(found, slices)
        snapshot = Snapshot(generation=generation)
        snapshot.instances = await self._hashes(names.instances, keys.instance_key, found, slices)
        members = _Members()
        settings = await self._hashes(names.settings, keys.settings_key, found, slices)
        await self._sets(names.sets, known, settings, members, snapshot, found, slices)
        for path in settings.keys() - snapshot.records.keys():
            snapshot.records[path] = _kept(RouteRecord(settings=settings[path]), known.get(path))
            await slices.rest()
        attributes = await self._hashes(names.members, keys.upstream_key, found, slices)
        for member, each in attributes.items():
            before = known_attributes.get(member)
            snapshot.attributes[members.same(member)] = before if before == each else each
            await slices.rest()
        if self._generation(await self._read_many.first("g", keys.GENERATION), found) != generation:
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
        found = Found()
        snapshot = Snapshot()
        normal = _Members()
        wanted = _wanted(paths, members, foreign)
        reads = self._read_many(wanted)
        for path in paths:
            raw, settings = await anext(reads), await anext(reads)
            written = self._hash(settings, found)
            before = known.get(path, _NOTHING)
            kept = await self._members(raw, before, normal, found, slices)
            if raw.is_there or written:
                snapshot.records[path] = _kept(RouteRecord(kept, written or None), before)
            else:
                snapshot.gone.add(path)
            await slices.rest()
        for member in members:
            snapshot.attributes[member] = self._hash(await anext(reads), found)
            await slices.rest()
        for key in foreign:
            if self._checked(await anext(reads), found):
                self._skipped.note(found, "key", key)
        async for last in reads:
            snapshot.generation = self._generation(last, found)
        self._skipped.update({key for _, key in wanted}, found)
        return snapshot

    async def _scan(self, found: Found, slices: Slices) -> _Names:
        names = _Names()
        async for page in self._scan_names(keys.OURS):
            for key in page:
                self._sort(key, names, found)
                await slices.rest()
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
            name, place = keys.instance_of(key), names.instances
            if len(place) >= keys.MOST_INSTANCES and name not in place:
                self._skipped.note(found, "key", keys.EVERY_INSTANCE)
                return
        else:
            return
        if name is not None:
            place.add(name)
        elif key not in found.by_key:
            self._skipped.note(found, "key", key)

    async def _sets(
        self,
        paths: Collection[str],
        known: Mapping[str, RouteRecord],
        settings: Mapping[str, Mapping[str, str]],
        members: "_Members",
        snapshot: Snapshot,
        found: Found,
        slices: Slices,
    ) -> None:
        each = iter(paths)
        async for raw in self._read_many(("s", keys.route_key(path)) for path in paths):
            path = next(each)
            before = known.get(path, _NOTHING)
            kept = await self._members(raw, before, members, found, slices)
            if raw.is_there:
                snapshot.records[path] = _kept(RouteRecord(kept, settings.get(path)), before)
            await slices.rest()

    async def _hashes(
        self, names: Collection[str], key_of: Callable[[str], str], found: Found, slices: Slices
    ) -> dict[str, Mapping[str, str]]:
        """name -> hash, for those that are hashes and still there."""
        hashes: dict[str, Mapping[str, str]] = {}
        each = iter(names)
        async for read in self._read_many(("h", key_of(name)) for name in names):
            name = next(each)
            if written := self._hash(read, found):
                hashes[name] = written
            await slices.rest()
        return hashes

    def _hash(self, read: Read, found: Found) -> dict[str, str]:
        """Empty where there is none. Of one that is too large, only the fields that slb uses."""
        written = self._checked(read, found) or ()
        return dict(zip(written[::2], written[1::2], strict=True))

    async def _members(
        self, read: Read, before: RouteRecord, members: "_Members", found: Found, slices: Slices
    ) -> frozenset[str]:
        """Those in normal form; the others are noted. A set that is too large is not read: the route keeps the
        members it had, since which part of them would be served otherwise is chance, and may be none."""
        raw = self._checked(read, found) or ()
        if read.size is not None:
            return before.members
        if len(raw) == len(before.members) and before.members.issuperset(raw):
            return before.members
        kept: list[str] = []
        for count, member in enumerate(raw):
            if member in before.members or members.valid(member):
                kept.append(members.same(member))
            else:
                self._skipped.note(found, "member", read.key, member)
            if count % _MEMBERS_AT_ONCE == 0:
                await slices.rest()
        return frozenset(kept)

    def _checked(self, read: Read, found: Found) -> Any:
        """The reply, or None where the key is not of the type we expect."""
        if read.size is not None:
            self._skipped.note(found, "large", read.key, size=read.size)
        if isinstance(read.reply, ResponseError) and str(read.reply).startswith("WRONGTYPE"):
            self._skipped.note(found, "type", read.key)
            return None
        return own(read.reply)

    def _generation(self, read: Read, found: Found) -> str | None:
        """Where the key exists, Redis has its data, even if another program has changed the key."""
        generation = self._checked(read, found)
        return SPOILT if isinstance(read.reply, Exception) else generation


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


def _wanted(paths: Sequence[str], members: Sequence[str], foreign: Sequence[str]) -> list[tuple[str, str]]:
    """Of each path its set and its settings. The generation last: what is gone with it was not removed."""
    of_paths = [each for path in paths for each in (("s", keys.route_key(path)), ("h", keys.settings_key(path)))]
    of_members = [("h", keys.upstream_key(member)) for member in members]
    return [*of_paths, *of_members, *(("x", key) for key in foreign), ("g", keys.GENERATION)]

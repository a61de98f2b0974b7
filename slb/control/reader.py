"""Reads routes, settings and attributes out of Redis, and passes over what is not ours or is broken."""

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from redis.exceptions import ResponseError

from slb.control import keys
from slb.control.connection import Connection
from slb.control.dirty import Batch
from slb.control.history import Snapshot
from slb.control.scripts import Read, ReadMany, own, pairs, scan_names
from slb.control.skipped import Found, Skipped
from slb.control.slices import Slices, rested
from slb.model import RouteRecord

_MEMBERS_AT_ONCE = 20
"""Members judged between two rests: one that is skipped takes as long as ten others, for it is logged."""

SPOILT = "spoilt"
"""Stands for a generation that is no text."""

_NOTHING = RouteRecord()


class GenerationChanged(Exception):
    """The generation changed while Redis was read: what was read is not one consistent state."""


class Reader:
    """Reads in slices; `known` and `known_attributes` let unchanged entries keep their objects. `pages`: so many a
    scan for names took. Redis looks at all its keys for it, and a queue or another program may have millions."""

    def __init__(self, connection: Connection, skipped: Skipped) -> None:
        self._connection = connection
        self._read_many = ReadMany(connection)
        self._skipped = skipped
        self.pages = 0
        names = keys.generation_keys(connection.servers.cluster is not None)
        self._of_generation = [("g", name) for name in names]

    async def _generation(self, reading: "_Reading") -> str | None:
        return reading.generation([each async for each in self._read_many(self._of_generation)])

    async def everything(
        self,
        known: Mapping[str, RouteRecord],
        known_attributes: Mapping[str, Mapping[str, str]],
        scans: bool = True,
    ) -> Snapshot:
        """A full sync's reading; where it does not scan, of what is known. Raises GenerationChanged where Redis was
        emptied or restored meanwhile."""
        reading = _Reading(self._read_many, self._skipped)
        snapshot = Snapshot(generation=await self._generation(reading))
        if scans:
            names = await reading.names(scan_names(self._connection, keys.OURS))
            self.pages = reading.pages
        else:
            names = await _names_of(known, known_attributes)
        settings = await reading.hashes(names[keys.SETTINGS], keys.settings_key)
        async for path, raw in reading.each("s", names[keys.MEMBERS], keys.route_key):
            before = known.get(path, _NOTHING)
            kept = await reading.members(raw, before)
            if raw.is_there:
                snapshot.records[path] = _kept(RouteRecord(kept, settings.get(path)), before)
        async for path in rested(settings.keys() - snapshot.records.keys()):
            snapshot.records[path] = _kept(RouteRecord(settings=settings[path]), known.get(path))
        attributes = await reading.hashes(names[keys.UPSTREAM], keys.upstream_key)
        async for member, each in rested(attributes.items()):
            seen = known_attributes.get(member)
            snapshot.attributes[reading.same(member)] = seen if seen == each else each
        if await self._generation(reading) != snapshot.generation:
            raise GenerationChanged
        if scans:
            self._skipped.replace(reading.found)
        else:
            read = {key async for key in rested(_keys_of(names))}
            self._skipped.update(read, reading.found)
        return snapshot

    async def some(self, batch: Batch, known: Mapping[str, RouteRecord]) -> Snapshot:
        """The state of a few paths and members."""
        reading = _Reading(self._read_many, self._skipped)
        snapshot = Snapshot()
        wanted = [*_wanted(batch), *self._of_generation]
        reads = self._read_many(wanted)
        async for path in rested(batch.paths):
            raw, settings = await anext(reads), await anext(reads)
            written = reading.hash(settings)
            before = known.get(path, _NOTHING)
            kept = await reading.members(raw, before)
            if raw.is_there or written:
                snapshot.records[path] = _kept(RouteRecord(kept, written or None), before)
            else:
                snapshot.gone.add(path)
        async for member in rested(batch.members):
            snapshot.attributes[member] = reading.hash(await anext(reads))
        snapshot.generation = reading.generation([last async for last in reads])
        self._skipped.update({key for _, key in wanted}, reading.found)
        return snapshot


_NAME_OF = {
    keys.MEMBERS: keys.path_of,
    keys.SETTINGS: keys.path_of,
    keys.UPSTREAM: keys.member_of,
}
"""How keys begin that are read, and what they are the keys of."""

_KEY_OF = {keys.MEMBERS: keys.route_key, keys.SETTINGS: keys.settings_key, keys.UPSTREAM: keys.upstream_key}


class _Reading:
    """One reading: `found` is what it passes over. Members are checked once, and each is kept as one string."""

    def __init__(self, read_many: ReadMany, skipped: Skipped) -> None:
        self.found = Found()
        self._read_many = read_many
        self._skipped = skipped
        self.pages = 0
        self._slices = Slices()
        self._met: dict[str, str] = {}

    def note(self, kind: str, key: str, entry: str = "", **sizes: int) -> None:
        self._skipped.note(self.found, kind, key, entry, **sizes)

    async def names(self, pages: AsyncIterator[list[str]]) -> dict[str, set[str]]:
        """By how their keys begin: paths with a set, paths with settings, members with a hash."""
        names: dict[str, set[str]] = {start: set() for start in _NAME_OF}
        async for page in pages:
            self.pages += 1
            for key in page:
                for start, name_of in _NAME_OF.items():
                    if not key.startswith(start):
                        continue
                    if (name := name_of(key)) is not None:
                        names[start].add(name)
                    elif key not in self.found.by_key:
                        self.note("key", key)
                await self._slices.rest()
        return names

    async def each(
        self, kind: str, names: Collection[str], key_of: Callable[[str], str]
    ) -> AsyncIterator[tuple[str, Read]]:
        waiting = iter(names)
        async for read in self._read_many((kind, key_of(name)) for name in names):
            yield next(waiting), read
            await self._slices.rest()

    async def hashes(self, names: Collection[str], key_of: Callable[[str], str]) -> dict[str, Mapping[str, str]]:
        """name -> hash, for those that are hashes and still there."""
        return {name: there async for name, read in self.each("h", names, key_of) if (there := self.hash(read))}

    def hash(self, read: Read) -> dict[str, str]:
        """Empty where there is none. Of one that is too large, only the fields that slb uses."""
        return pairs(self.checked(read) or ())

    async def members(self, read: Read, before: RouteRecord) -> frozenset[str]:
        """Those in normal form; the others are noted. Of a set that is too large to be read the route keeps the
        members it had."""
        raw = self.checked(read) or ()
        if read.size is not None:
            return before.members
        if len(raw) == len(before.members) and before.members.issuperset(raw):
            return before.members
        kept: list[str] = []
        for count, member in enumerate(raw):
            if member in before.members or member in self._met or keys.is_normal_member(member):
                kept.append(self.same(member))
            else:
                self.note("member", read.key, member)
            if count % _MEMBERS_AT_ONCE == 0:
                await self._slices.rest()
        return frozenset(kept)

    def same(self, member: str) -> str:
        """The same text, as one object however often it was met."""
        return self._met.setdefault(member, member)

    def checked(self, read: Read) -> Any:
        """The reply, or None where the key is not of the type we expect."""
        if read.size is not None:
            self.note("large", read.key, size=read.size)
        if isinstance(read.reply, ResponseError) and str(read.reply).startswith("WRONGTYPE"):
            self.note("type", read.key)
            return None
        return own(read.reply)

    def generation(self, reads: Sequence[Read]) -> str | None:
        """Where all keys exist, Redis has its data, even if another program has changed them. The first one's."""
        texts = [(self.checked(read), isinstance(read.reply, Exception)) for read in reads]
        found = [SPOILT if is_another_type else text for text, is_another_type in texts]
        return None if None in found else found[0]


def _keys_of(names: Mapping[str, set[str]]) -> Iterator[str]:
    return (make(each) for start, make in _KEY_OF.items() for each in names[start])


async def _names_of(
    known: Mapping[str, RouteRecord], attributes: Mapping[str, Mapping[str, str]]
) -> dict[str, set[str]]:
    """As `_Reading.names`, of what is known."""
    names: dict[str, set[str]] = {start: set() for start in _NAME_OF}
    async for path, record in rested(known.items()):
        if record.members:
            names[keys.MEMBERS].add(path)
        if record.settings is not None:
            names[keys.SETTINGS].add(path)
    async for member in rested(attributes):
        names[keys.UPSTREAM].add(member)
    return names


def _kept(new: RouteRecord, before: RouteRecord | None) -> RouteRecord:
    """The old object where nothing changed: a resync then leaves no work for the garbage collector."""
    return before if before == new and before is not None else new


def _wanted(batch: Batch) -> list[tuple[str, str]]:
    """Of each path its set and its settings. The generation is to be read last: what is gone with it was not
    removed."""
    of_paths = [
        each for path in batch.paths for each in (("s", keys.route_key(path)), ("h", keys.settings_key(path)))
    ]
    of_members = [("h", keys.upstream_key(member)) for member in batch.members]
    return [*of_paths, *of_members]

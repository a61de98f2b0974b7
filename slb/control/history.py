"""When the entries of the table last changed, as one side knows it, and what one side knows to be newer. Pure.

An entry is a member of a route (`keys.membership`), the settings of a route, or the attributes of an upstream (the
keys of their hashes). Each change gives it a number, the next of one counter; what has left has its number too. A
history holds the last few thousand: what is not in it changed at its `floor`, or before.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from slb.control import keys
from slb.model import RouteRecord

LAST_NUMBER = 2**53 - 1
"""Numbers are lower: they are scores of a sorted set."""

_NOTHING = RouteRecord()

_AT_ONCE = 500
"""Routes or upstreams compared between two rests."""


@dataclass
class History:
    """`of`: entry -> number. `last`: the highest number given so far, where it was read. `generation`: of which
    Redis. `is_known` is False of a log in Redis that cannot be read: nothing can be said about what is newer.
    `ends_early`: it ended before a number that this instance had seen given when it asked for it."""

    of: dict[str, int] = field(default_factory=dict)
    floor: int = 0
    last: int = 0
    generation: str | None = None
    is_known: bool = True
    ends_early: bool = False

    def revision(self, entry: str) -> int:
        """The number of its last change, or one that is not lower."""
        return max(self.of.get(entry, 0), self.floor)

    def learn(self, entry: str, number: int) -> None:
        """It has changed at this number, if not later."""
        if number > self.revision(entry):
            self.of[entry] = number

    def raise_floor(self, floor: int) -> Iterator[None]:
        """The table is complete as of `floor`. Yields now and then."""
        if floor <= self.floor:
            return
        self.floor = floor
        for count, (entry, number) in enumerate(list(self.of.items()), 1):
            if number <= floor:
                del self.of[entry]
            if count % _AT_ONCE == 0:
                yield

    def copy(self) -> "History":
        """One that does not change with this one."""
        return replace(self, of=dict(self.of))


@dataclass
class Snapshot:
    """What Redis held: path -> record, member -> its hash. `generation` is None where Redis has none. `instances`:
    id -> its hash. `history`: when that changed.

    From `Reader.some`, a path that is gone maps to None and a hash that is gone is empty.
    """

    records: dict[str, RouteRecord] = field(default_factory=dict)
    attributes: dict[str, Mapping[str, str]] = field(default_factory=dict)
    generation: str | None = None
    instances: dict[str, Mapping[str, str]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    history: History = field(default_factory=History)


class State(NamedTuple):
    """What an entry is. `value`: whether the member is there, or the hash (empty where there is none). `is_logged`:
    its number is its own, not the floor of the history that says so."""

    number: int
    is_logged: bool
    path: str
    member: str
    value: bool | Mapping[str, str]


def state(entry: str, table: Snapshot) -> State | None:
    """What `table` says of an entry; None where it names nothing that slb reads."""
    number, is_logged = table.history.revision(entry), table.history.of.get(entry, 0) > table.history.floor
    key, blank, member = entry.partition(" ")
    if path := keys.path_of(key):
        record = table.records.get(path, _NOTHING)
        if blank:
            there = member in record.members
            return State(number, is_logged, path, member, there) if keys.is_normal_member(member) else None
        return State(number, is_logged, path, "", record.settings or {}) if key.startswith(keys.SETTINGS) else None
    named = keys.member_of(entry)
    return State(number, is_logged, "", named, table.attributes.get(named, {})) if named else None


def newer(mine: Snapshot, theirs: Snapshot) -> Iterator[str | None]:
    """The entries that `mine` knows to be newer; None now and then, where the caller may rest.

    What neither log holds is told by the floors. A floor comes from Redis and never falls there: a lower one means
    that Redis has gone back behind it, so whatever differs is older there, unless it has changed since.
    """
    for count, (entry, number) in enumerate(mine.history.of.items(), 1):
        if number > theirs.history.revision(entry):
            yield entry
        if count % _AT_ONCE == 0:
            yield None
    if theirs.history.floor < mine.history.floor:
        for each in differing(mine, theirs):
            if each is None or (each not in mine.history.of and mine.history.floor > theirs.history.revision(each)):
                yield each


def evicted(mine: Snapshot, theirs: Snapshot) -> Iterator[str | None]:
    """The entries that `mine` has and `theirs` lacks, without a number that says that they have left; None now and
    then, where the caller may rest."""
    for entry in differing(mine, theirs):
        if entry is None or _is_evicted(entry, mine, theirs):
            yield entry


def _is_evicted(entry: str, mine: Snapshot, theirs: Snapshot) -> bool:
    known, found = state(entry, mine), state(entry, theirs)
    if known is None or found is None or not known.value or found.value:
        return False
    return known.number >= theirs.history.revision(entry)


def differing(one: Snapshot, other: Snapshot) -> Iterator[str | None]:
    """The entries in which two tables differ; None now and then, where the caller may rest. Costs one look at each
    route and upstream that is the same object in both."""
    for count, path in enumerate(_either(one.records, other.records), 1):
        yield from _of_route(path, one.records.get(path), other.records.get(path))
        if count % _AT_ONCE == 0:
            yield None
    for count, member in enumerate(_either(one.attributes, other.attributes), 1):
        mine, theirs = one.attributes.get(member), other.attributes.get(member)
        if mine is not theirs and (mine or {}) != (theirs or {}):
            yield keys.upstream_key(member)
        if count % _AT_ONCE == 0:
            yield None


def changed_by(
    records: Mapping[str, RouteRecord | None],
    attributes: Mapping[str, Mapping[str, str]],
    before: Mapping[str, RouteRecord],
    attributes_before: Mapping[str, Mapping[str, str]],
) -> Iterator[str]:
    """The entries that a batch (None and empty: it has left) changes in the table that was there before."""
    for path, record in records.items():
        yield from _of_route(path, before.get(path), record)
    for member, each in attributes.items():
        if each != attributes_before.get(member, {}):
            yield keys.upstream_key(member)


def _of_route(path: str, one: RouteRecord | None, other: RouteRecord | None) -> Iterator[str]:
    """The entries in which two records of a route differ."""
    if one is other:
        return
    mine, theirs = one or _NOTHING, other or _NOTHING
    for member in mine.members ^ theirs.members:
        yield keys.membership(path, member)
    if (mine.settings or {}) != (theirs.settings or {}):
        yield keys.settings_key(path)


def with_states(table: Snapshot, states: Iterable[State]) -> Snapshot:
    """`table` with these entries as they are said to be. A route that is left without anything is gone."""
    both = Snapshot(dict(table.records), dict(table.attributes), table.generation)
    members: dict[str, set[str]] = {}
    settings: dict[str, Mapping[str, str]] = {}
    for each in states:
        if isinstance(each.value, bool):
            here = members.setdefault(each.path, set(both.records.get(each.path, _NOTHING).members))
            (here.add if each.value else here.discard)(each.member)
        elif each.path:
            settings[each.path] = each.value
        elif each.value:
            both.attributes[each.member] = each.value
        else:
            both.attributes.pop(each.member, None)
    for path in members.keys() | settings.keys():
        record = both.records.pop(path, _NOTHING)
        after = RouteRecord(
            frozenset(members.get(path, record.members)), settings.get(path, record.settings or {}) or None
        )
        if after.members or after.settings:
            both.records[path] = after
    return both


def _either(one: Mapping[str, object], other: Mapping[str, object]) -> Iterator[str]:
    yield from one
    yield from (name for name in other if name not in one)

"""When each entry of the table last changed, in one side's log, and which entries of one side are newer. Pure.

Entries are those of `slb:changes`, in control/keys.py. Each change gives one a number, the next of one counter;
what has left has its number too. A history holds the last few thousand: all else changed by its `floor`."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from slb.control import keys
from slb.model import RouteRecord

LAST_NUMBER = 2**53 - 1
"""Numbers are lower: they are scores of a sorted set."""

_NOTHING = RouteRecord()

_AT_ONCE = 500
"""Entries looked at between two rests."""


@dataclass
class History:
    """`of`: entry -> number. `last`: the highest number given so far, where it was read. `generation`: of the Redis
    it was read from. `is_known` is False for a log in Redis that cannot be read: what is newer is unknown then.
    `ends_early`: it ended before a number that this instance had seen given when it asked for it."""

    of: dict[str, int] = field(default_factory=dict)
    floor: int = 0
    last: int = 0
    generation: str | None = None
    is_known: bool = True
    ends_early: bool = False

    def logged(self, entry: str) -> int:
        """The number of its last change, or of its hash as a whole; 0 where neither is in this history."""
        return max(self.of.get(entry, 0), self.of.get(keys.whole_of(entry), 0))

    def revision(self, entry: str) -> int:
        """The number of its last change, or an upper bound of it."""
        return max(self.logged(entry), self.floor)

    def learn(self, entry: str, number: int) -> None:
        """Note that `entry` has changed at this number. A higher one stays."""
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
        """An independent copy."""
        return replace(self, of=dict(self.of))


@dataclass
class Snapshot:
    """What Redis held: path -> record, member -> its hash. `generation`: None where Redis has none. `history`: when
    that changed. From `Reader.some`: paths that are `gone`, and empty hashes."""

    records: dict[str, RouteRecord] = field(default_factory=dict)
    attributes: dict[str, Mapping[str, str]] = field(default_factory=dict)
    generation: str | None = None
    gone: set[str] = field(default_factory=set)
    history: History = field(default_factory=History)


class State(NamedTuple):
    """The state of an entry. `value`: whether the member is there, or the hash (empty where there is none); of a
    `field` that field alone. `is_logged`: it has a number of its own above the floor of that history."""

    number: int
    is_logged: bool
    path: str
    member: str
    value: bool | Mapping[str, str]
    field: str = ""

    @property
    def is_whole_hash(self) -> bool:
        """Whether it stands for all fields of a hash."""
        return not self.field and not isinstance(self.value, bool)


def state(entry: str, table: Snapshot) -> State | None:
    """The state of an entry in `table`; None where it names nothing that slb reads."""
    number, is_logged = table.history.revision(entry), table.history.of.get(entry, 0) > table.history.floor
    key, blank, named = entry.partition(" ")
    path, member = keys.path_of(key) or "", keys.member_of(key) or ""
    record = table.records.get(path, _NOTHING)
    if key.startswith(keys.MEMBERS):
        there = named in record.members
        return State(number, is_logged, path, named, there) if path and keys.is_normal_member(named) else None
    if not (path or member) or (blank and not keys.is_field(named)):
        return None
    whole = (record.settings if path else table.attributes.get(member)) or {}
    value = {name: whole[name] for name in (named,) if name in whole} if blank else whole
    return State(number, is_logged, path, member, value, named)


def holds(entry: str, table: Snapshot) -> bool:
    """Whether an entry is there; of a key, whether anything is in its set or hash."""
    if entry.startswith(keys.MEMBERS) and " " not in entry:
        return bool(table.records.get(keys.path_of(entry) or "", _NOTHING).members)
    each = state(entry, table)
    return each is not None and bool(each.value)


def newer(mine: Snapshot, theirs: Snapshot) -> Iterator[str | None]:
    """The entries that are newer in `mine`; None now and then, where the caller may yield.

    What neither log holds is judged by the floors. A floor comes from Redis and never falls there: a lower one
    means that Redis has gone back behind it, so whatever differs is older there, unless it has changed since."""
    for entry, number in mine.history.of.items():
        yield entry if number > theirs.history.revision(entry) else None
    if theirs.history.floor < mine.history.floor:
        for each in differing(mine, theirs):
            if each is None or (each not in mine.history.of and mine.history.floor > theirs.history.revision(each)):
                yield each


def missing(mine: Snapshot, theirs: Snapshot) -> Iterator[str | None]:
    """The entries that `mine` has and `theirs` lacks; None now and then, where the caller may rest."""
    for entry in differing(mine, theirs):
        if entry is None or (holds(entry, mine) and not holds(entry, theirs)):
            yield entry


def differing(one: Snapshot, other: Snapshot) -> Iterator[str | None]:
    """The entries in which two tables differ; None now and then, where the caller may rest. Costs one look at each
    route and upstream that is the same object in both."""
    for path in _either(one.records, other.records):
        yield from _of_route(path, one.records.get(path), other.records.get(path))
        yield None
    for member in _either(one.attributes, other.attributes):
        yield from _of_hash(keys.upstream_key(member), one.attributes.get(member), other.attributes.get(member))
        yield None


def changed_by(
    records: Mapping[str, RouteRecord | None],
    attributes: Mapping[str, Mapping[str, str]],
    before: Mapping[str, RouteRecord],
    attributes_before: Mapping[str, Mapping[str, str]],
) -> Iterator[str]:
    """The entries of the table before that a batch changes; in the batch None or empty means removed."""
    for path, record in records.items():
        yield from _of_route(path, before.get(path), record)
    for member, each in attributes.items():
        yield from _of_hash(keys.upstream_key(member), attributes_before.get(member), each)


def _of_route(path: str, one: RouteRecord | None, other: RouteRecord | None) -> Iterator[str]:
    """The entries in which two records of a route differ."""
    if one is other:
        return
    mine, theirs = one or _NOTHING, other or _NOTHING
    for member in mine.members ^ theirs.members:
        yield keys.membership(path, member)
    yield from _of_hash(keys.settings_key(path), mine.settings, theirs.settings)


def _of_hash(key: str, one: Mapping[str, str] | None, other: Mapping[str, str] | None) -> Iterator[str]:
    """The entries in which two hashes differ: their fields."""
    if one is other:
        return
    mine, theirs = one or {}, other or {}
    for name in _either(mine, theirs):
        if mine.get(name) != theirs.get(name) and keys.is_field(name):
            yield keys.field_entry(key, name)


def with_states(table: Snapshot, states: Iterable[State]) -> Snapshot:
    """`table` with these entries in these states; fields of it that are newer than the state of a hash stay."""
    both = Snapshot(dict(table.records), dict(table.attributes), table.generation)
    members: dict[str, set[str]] = {}
    settings: dict[str, Mapping[str, str]] = {}
    for each in states:
        if isinstance(each.value, bool):
            here = members.setdefault(each.path, set(both.records.get(each.path, _NOTHING).members))
            (here.add if each.value else here.discard)(each.member)
        elif each.path:
            before = settings.get(each.path, both.records.get(each.path, _NOTHING).settings or {})
            settings[each.path] = _hash_with(before, each, keys.settings_key(each.path), table.history)
        else:
            before = both.attributes.pop(each.member, {})
            if after := _hash_with(before, each, keys.upstream_key(each.member), table.history):
                both.attributes[each.member] = after
    for path in members.keys() | settings.keys():
        record = both.records.pop(path, _NOTHING)
        now = RouteRecord(
            frozenset(members.get(path, record.members)), settings.get(path, record.settings or {}) or None
        )
        if now.members or now.settings:
            both.records[path] = now
    return both


def _hash_with(before: Mapping[str, str], each: State, key: str, history: History) -> dict[str, str]:
    """`before` with `each` applied, but for the fields that have changed since by `history`."""
    value = each.value if isinstance(each.value, Mapping) else {}
    if each.field:
        changed = {each.field}
    else:
        names = before.keys() | value.keys()
        changed = {name for name in names if history.revision(keys.field_entry(key, name)) <= each.number}
    kept = {name: text for name, text in before.items() if name not in changed}
    return kept | {name: text for name, text in value.items() if name in changed}


def _either(one: Mapping[str, object], other: Mapping[str, object]) -> Iterator[str]:
    yield from one
    yield from (name for name in other if name not in one)

"""The log of changes in Redis (`slb:changes`): a typed caller for each of its scripts, and this instance's copy."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from slb.control import keys
from slb.control.cluster_writes import ClusterWrites
from slb.control.connection import Connection
from slb.control.history import History, Snapshot, State, state, with_states
from slb.control.scripts import change_source, source
from slb.control.slices import rested, step_through
from slb.control.written import Row, Written
from slb.routing.mirror import Mirror

OnWritten = Callable[[Sequence[Row], Sequence[bool], int], None]
"""Called with rows, for each whether something came or went, and the number they have."""

_MOST_BYTES = 32 << 20
"""Of the log, as Redis counts it: the size of 15,000 of the longest entries. A larger key is not slb's."""

_AT_ONCE = 100
"""Changes by hand that get their number in one call."""

_ALL_AT_ONCE = 10_000
"""Twice what the log holds. More changes by hand at once get one number, as a change of everything."""

_FLOOR = "floor"


class Change:
    """`lua/change.lua`: all writes of slb to the table."""

    def __init__(self, connection: Connection, on_written: OnWritten | None = None) -> None:
        self._by_key = ClusterWrites(connection) if connection.servers.cluster else None
        self._script = connection.client.register_script(change_source())
        self._on_written = on_written

    async def __call__(self, rows: Sequence[Row]) -> list[bool]:
        """For each row whether something was added or removed. Without rows Redis is not called."""
        if not rows:
            return []
        number, done = await (self._by_key.change(rows) if self._by_key else self._at_once(rows))
        if self._on_written is not None:
            self._on_written(rows, done, number)
        return done

    async def _at_once(self, rows: Sequence[Row]) -> tuple[int, list[bool]]:
        args = [text for operation, _, given in rows for text in (operation, len(given), *given)]
        number, *replies = await self._script(
            keys=[keys.CHANGES, *(key for _, key, _ in rows), keys.LEASES], args=args
        )
        return int(number), [bool(reply) for reply in replies]


class WriteBack:
    """`lua/write_back.lua`: writes entries that Redis has lost, where they are newer than its own."""

    def __init__(self, connection: Connection) -> None:
        self._by_key = ClusterWrites(connection) if connection.servers.cluster else None
        self._script = connection.client.register_script(source("revisions", "leases", "write_back"))

    async def __call__(self, rows: Iterable[tuple[str, State]]) -> int:
        """`rows`: entries and their states. Returns how many were not written, for a key of another type."""
        if self._by_key:
            return await self._by_key.write_back([(entry, each, _given(each)) for entry, each in rows])
        names, args = [keys.CHANGES], []
        for entry, each in rows:
            names.append(entry.partition(" ")[0])
            given = _given(each)
            kind = "logged" if each.is_logged else _FLOOR
            args += [entry, str(each.number), kind, given[0], str(len(given) - 1), *given[1:]]
        return int((await self._script(keys=[*names, keys.LEASES], args=args))[1]) if args else 0

    async def finish(self, floor: int) -> None:
        """Report that this instance's table as of `floor` has been written."""
        await self._script(keys=[keys.CHANGES], args=[floor])


def leaving(operation: str, items: Sequence[tuple[str, str]], mirror: Mirror | None) -> list[Row]:
    """Members leave routes; `items`: path, member. Attributes go with the last route that names one, by the mirror
    and by what has been changed since what it shows."""
    paths: dict[str, set[str]] = {}
    for path, member in items:
        paths.setdefault(member, set()).add(path)
    rows: list[Row] = []
    for path, member in items:
        rows.append((operation, keys.route_key(path), (member,)))
        if mirror is not None and mirror.uses(member, paths[member]) <= 0:
            rows.append(orphaned("remove_after", member, mirror))
    return rows


def orphaned(operation: str, member: str, mirror: Mirror) -> Row:
    """The row that removes the attributes of one in no route: `mirror` shows none, and none has come since."""
    return operation, keys.upstream_key(member), (str(mirror.shown_to),)


def replies_of(operation: str, rows: Sequence[Row], replies: Sequence[bool]) -> list[bool]:
    """The replies to rows of one operation."""
    return [reply for reply, row in zip(replies, rows, strict=True) if row[0] == operation]


def flat(fields: Mapping[str, str]) -> list[str]:
    """Fields and values in turn, as the scripts take them."""
    return [text for field in fields.items() for text in field]


def _given(each: State) -> list[str]:
    if isinstance(each.value, bool):
        return ["join" if each.value else "leave", each.member]
    if each.field and not each.value:
        return ["unset", each.field]
    return ["set" if each.field else "replace", *flat(each.value)]


class Changes:
    """This instance's copy of the log. `history`: the numbers of changes that the mirror shows; the others are in
    `waiting`, by the key that is still to be read. `read_to`: the last number read. `written`: what this instance
    wrote since. A Redis without a number that this instance has read or was given is an older one."""

    def __init__(self, connection: Connection, mirror: Mirror) -> None:
        self._client = connection.client
        self._mirror = mirror
        self._read = connection.client.register_script(source("revisions", "read_changes"))
        self._number = connection.client.register_script(source("revisions", "number"))
        self.history = History()
        self.written = Written()
        self.read_to = 0
        self._numbered_to = 0
        self.waiting: dict[str, dict[str, int]] = {}
        self._floor_ahead = 0

    async def read(self, whole: bool = False) -> History:
        """The log, or its new part since the last reading. One that ends before that is read whole."""
        since, known = 0 if whole else self.read_to, max(self.read_to, self._numbered_to)
        reply = await self._read(keys=[keys.CHANGES], args=[since, _MOST_BYTES, keys.LONGEST_ENTRY])
        if not reply:
            return History(is_known=False, ends_early=known > 0)
        last, floor, lines = reply
        if int(last) < known and not whole:
            return await self.read(whole=True)
        found = History(floor=int(floor), last=int(last), ends_early=int(last) < known)
        async for line in rested(lines.split("\n")):
            entry, _, number = line.rpartition(" ")
            if number.isdecimal():
                found.of[entry] = int(number)
        return found

    async def arrived(self, found: History) -> None:
        """Take up what was read of the log; the mirror does not show it yet."""
        async for entry, number in rested(found.of.items()):
            self._wait(entry, number)
        self._floor_ahead = max(self._floor_ahead, found.floor)
        self.read_to = found.last
        if found.ends_early:
            self._numbered_to = 0  # what it lacks has been looked for; another Redis gives other numbers

    def explain(self, entry: str) -> bool:
        """Whether the log has a change of `entry` that the mirror does not show yet, or this instance has made one
        since the log was read, before which the data may have been; else it was made by hand."""
        if self.written.number(entry) > self.read_to:
            return True
        waiting = self.waiting.get(keys.key_of(entry), {})
        ahead = max(waiting.get(entry, 0), waiting.get(keys.whole_of(entry), 0), self._floor_ahead)
        return ahead > self.history.revision(entry)

    async def lacks(self, entries: Collection[str]) -> bool:
        """Whether Redis has an older number of one of these: it has lost a change, which was not made by hand."""
        mine = [
            (entry, number)
            async for entry in rested(entries)
            if (number := max(self.history.logged(entry), self.written.number(entry)))
        ]
        for start in range(0, len(mine), _AT_ONCE):
            some = mine[start : start + _AT_ONCE]
            names = [_FLOOR, *(name for entry, _ in some for name in (entry, keys.whole_of(entry)))]
            floor, *found = (score or 0 for score in await self._client.zmscore(keys.CHANGES, names))
            there = zip(some, found[::2], found[1::2], strict=True)
            if any(max(floor, own, whole) < number for (_, number), own, whole in there):
                return True
        return False

    async def number(self, entries: Collection[str]) -> set[str]:
        """Give changes by hand their numbers. Returns the keys of those that another instance has numbered: they
        are to be read again, since what was read of them may be older than that number."""
        taken: set[str] = set()
        wanted = list(entries) if len(entries) <= _ALL_AT_ONCE else [_FLOOR]
        for start in range(0, len(wanted), _AT_ONCE):
            some = wanted[start : start + _AT_ONCE]
            known = (self.history.floor if each == _FLOOR else self.history.revision(each) for each in some)
            args = [text for pair in zip(some, known, strict=True) for text in pair]
            replies = await self._number(keys=[keys.CHANGES], args=args)
            for entry, number in zip(some, map(int, replies), strict=True):
                if not number:
                    taken.add(keys.key_of(entry))
                elif entry == _FLOOR:
                    self._floor_ahead = max(self._floor_ahead, number)
                else:
                    self._wait(entry, number)
                self._numbered_to = max(self._numbered_to, number)
        return taken

    def note(self, rows: Sequence[Row], replies: Sequence[bool], number: int) -> None:
        if self.written.note(rows, replies, number):
            self._numbered_to = max(self._numbered_to, number)

    async def begin(self) -> None:
        """Make the log of a Redis that has none; its floor covers all entries that are there now."""
        await self.number([_FLOOR])

    async def shown(self, names: Iterable[str] | None = None) -> None:
        """The mirror shows what these keys hold; None: all that was read."""
        shown = list(self.waiting) if names is None else names
        async for entry, number in rested(each for name in shown for each in self.waiting.pop(name, {}).items()):
            self.history.learn(entry, number)
            self.written.known(entry, number)
        if not self.waiting:
            await step_through(self.history.raise_floor(self._floor_ahead))
            self._mirror.shown_to = self.read_to

    def with_written(self, shown: Snapshot) -> Snapshot:
        """This instance's newest table: what the mirror shows and what the instance wrote, unless a later change
        has been read."""
        behind: dict[str, State] = {}
        for entry, number, value in self.written.made():
            waiting = self.waiting.get(keys.key_of(entry), {}).get(entry, 0)
            each = state(entry, shown)
            if each is None or number <= self.history.revision(entry) or number < waiting:
                continue
            if each.value == value:
                self.history.learn(entry, number)
            else:
                behind[entry] = each._replace(number=number, is_logged=True, value=value)
        shown.history = self.history
        table = with_states(shown, behind.values()) if behind else shown
        table.history = self.history.copy()
        for entry, each in behind.items():
            table.history.learn(entry, each.number)
        return table

    def forget(self) -> None:
        """Redis has another table now: drop the copy of the log of the old one."""
        self.history = History()
        self.written.forget()
        self.waiting.clear()
        self._floor_ahead = self.read_to = self._numbered_to = self._mirror.shown_to = 0

    def _wait(self, entry: str, number: int) -> None:
        self.waiting.setdefault(keys.key_of(entry), {})[entry] = number

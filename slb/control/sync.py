"""Makes the mirror true: by reading everything, or what is dirty; and gives Redis back what it lost."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from slb.control import keys
from slb.control.behind import Behind, behind, undoes
from slb.control.changes import Changes
from slb.control.connection import Connection
from slb.control.dirty import Dirty
from slb.control.disk import DiskTable
from slb.control.eviction import Evictions
from slb.control.generation import RestoreTiming, kept_with, lost, union
from slb.control.heap import Heap
from slb.control.history import Snapshot, changed_by, differing, with_states
from slb.control.orphans import Orphans
from slb.control.reader import GenerationChanged, Reader
from slb.control.refused_writes import RefusedWrites
from slb.control.restore import Restorer
from slb.control.skipped import Skipped
from slb.control.slices import Slices, same_objects, step_through
from slb.model import RouteRecord
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror

_READ_TRIES = 3
_LOCKED_RETRY = 0.1
"""Seconds until a restore that somebody else is at is looked at again."""

_log = structlog.get_logger()


@dataclass
class _Loss:
    """Redis has no generation and lacks what we know: `good` is served with what it has, and written back."""

    good: Snapshot
    present: Snapshot
    restore_at: float


@dataclass(frozen=True, slots=True)
class SyncTiming:
    """Seconds; see `RestoreTiming`. `refused_retry`: until what Redis refused to write is tried again."""

    restore: RestoreTiming = field(default_factory=RestoreTiming)
    orphan_age: float = 30.0
    refused_retry: float = 1.0


class Sync:
    """Only one task may call it, one step after another: that is what makes the mirror converge."""

    def __init__(
        self,
        connection: Connection,
        mirror: Mirror,
        metrics: Metrics,
        disk: DiskTable | None,
        timing: SyncTiming,
        clock: Callable[[], float],
        changes: Changes,
    ) -> None:
        self.dirty = Dirty()
        self._connection = connection
        self._changes = changes
        self._mirror = mirror
        self._metrics = metrics
        self._disk = disk
        self._timing = timing
        self._clock = clock
        self._reader = Reader(connection, Skipped(metrics))
        self._restorer = Restorer(connection, self._changes)
        self.heap = Heap()
        self._evictions = Evictions(connection)
        self._orphans = Orphans(connection, mirror, timing.orphan_age, clock)
        self._started = clock()
        self._synced = False
        self._true_at = self._started
        self._generation: str | None = None
        self._reconnected = True
        self._loss: _Loss | None = None
        self._behind: Behind | None = None
        self._make_at: float | None = None
        self._refused = RefusedWrites()
        self.on_instances: Callable[[Mapping[str, Mapping[str, str]]], None] | None = None
        self.kept: Snapshot | None = None

    def adopt_disk(self, kept: Snapshot, age: float) -> None:
        """The table of the last run, `age` seconds old: what is good until Redis says otherwise."""
        self.kept = kept
        self._changes.history = kept.history.copy()
        self._true_at = self._started - age

    def staleness(self) -> float:
        """Seconds since the mirror was last known to be true."""
        return self._clock() - self._true_at

    def known_true(self) -> None:
        """Redis has just been heard from, with nothing dirty: the mirror is what it says."""
        if self._synced and self._is_settled and not self.dirty:
            self._true_at = self._clock()

    def heard(self, key: str, event: str) -> None:
        """A keyspace notification."""
        self._evictions.heard(key, event)
        self.dirty.mark(key)

    def begin(self) -> None:
        """A new connection: events may have been missed, and Redis may have lost its data."""
        self._reconnected = True
        self.dirty.clear()

    @property
    def _is_settled(self) -> bool:
        """Whether Redis has all that is known to be newer than what it has."""
        return self._loss is None and self._behind is None

    def due_at(self) -> float | None:
        """When `act` is to be called, on this clock; None where nothing is planned."""
        if self._loss is not None:
            return self._loss.restore_at
        return self._behind.write_at if self._behind else self._make_at

    async def act(self) -> None:
        """Write back what Redis lost, or make the generation of a Redis that has none."""
        retry_at = self._clock() + self._timing.refused_retry
        if self._loss is not None:
            self._loss.restore_at = retry_at
            if await self._restored(self._loss):
                await self.full()
        elif self._behind is not None:
            self._behind.write_at = retry_at
            with self._refused.passed_over():
                await self._restorer.catch_up(self._behind.lost, self._behind.floor)
                await self.full()
        elif self._make_at is not None:
            self._make_at = retry_at
            with self._refused.passed_over():
                self._generation = await self._restorer.make_generation(self._changes.history.generation)
                self._changes.history.generation = self._generation or None  # else a restore would make another
                self._make_at = None
            if self._make_at is None:
                await self.full()

    async def full(self) -> None:
        """Read everything, and swap it in where it differs."""
        with self.heap.building():
            served, found = await self._read_and_judged()
            if not self._mirror.ready or await self._differs(served):
                by_hand = await self._by_hand(differing(self._table(), served))
                if await self._is_lost(by_hand):
                    served, found = await self._read_and_judged()
                    by_hand = await self._by_hand(differing(self._table(), served))
                await self._number(by_hand)
                await step_through(self._mirror.replace(served.records, served.attributes))
                self._changed(len(served.records))
            if self._is_settled and self._has_no_log(found):
                with self._refused.passed_over():
                    await self._changes.begin()
            await self._changes.all_shown()
        self._metrics.full_syncs += 1
        self._finish()
        if self._is_settled:
            with self._refused.passed_over():
                await self._orphans.sweep()
            if self._disk is not None:
                self._disk.still_true()

    async def _read_and_judged(self) -> tuple[Snapshot, Snapshot]:
        """What to serve, and what Redis has."""
        found = await self._read()
        if self.on_instances is not None:
            self.on_instances(found.instances)
        served = await self._judged(found)
        self._reconnected = False
        return served, found

    async def drain(self) -> None:
        """Read what has been dirty longest, and swap it in. Where the generation is another, or the log of changes
        ends earlier than it did, all is dirty; and as long as Redis is behind."""
        if self.dirty.all or self._behind is not None:
            self.dirty.clear()
            await self.full()
            return
        batch = self.dirty.take()
        history = await self._changes.read()
        part = await self._reader.some(batch.paths, batch.members, batch.foreign, self._mirror.records)
        if part.generation != self._generation or history.ends_early:
            await self.full()
            return
        await self._changes.arrived(history)
        changes: dict[str, RouteRecord | None] = {**part.records, **dict.fromkeys(part.gone)}
        attributes = part.attributes
        if self._loss is not None:
            changes, attributes = kept_with(self._loss.good, self._loss.present, part)
        await asyncio.sleep(0)
        if changes or attributes:
            mirror = self._mirror
            by_hand = await self._by_hand(changed_by(changes, attributes, mirror.records, mirror.attributes))
            if by_hand and (await self._evictions.look() or await self._is_lost(by_hand)):
                await self.full()
                return
            await self._number(by_hand)
            await step_through(self._mirror.updating(changes, attributes))
            self._changed(len(changes))
        await self._changes.shown(batch.keys())
        await self._mark(history.of)
        self._finish()

    async def look(self) -> None:
        """Ask whether Redis still has its data: no event tells of a FLUSHALL or an eviction. And read its log."""
        history = await self._changes.read()
        there = await self._restorer.has_generation()
        is_doubtful = there is (self._generation is None) or history.ends_early
        if is_doubtful or await self._evictions.look():
            await self.full()
            return
        await self._changes.arrived(history)
        await self._mark(history.of)

    async def _mark(self, entries: Iterable[str]) -> None:
        """Read what is new in the log and not shown yet: maybe no event tells of it, as where what is there was
        registered again. Once: what is not ours waits for the next full sync."""
        slices = Slices()
        for key in map(keys.key_of, entries):
            if key in self._changes.waiting:
                self.dirty.mark(key)
            await slices.rest()

    async def _by_hand(self, changed: Iterable[str | None]) -> list[str]:
        """Of these the entries that have no number. What is found at the start is as it is, and what Redis has lost
        has its numbers."""
        found: list[str] = []
        if self._synced and self._is_settled:
            slices = Slices()
            for entry in changed:
                if entry is not None and not self._changes.explain(entry):
                    found.append(entry)
                await slices.rest()
        return found

    async def _is_lost(self, by_hand: Collection[str]) -> bool:
        """Whether what looks like changes by hand is the loss of others: another instance, which knows less, has
        written back what it knew, and more has been changed since. Redis is in doubt then, as after a reconnect."""
        is_lost = False
        if by_hand:
            with self._refused.passed_over():
                is_lost = await self._changes.lacks(by_hand)
        self._reconnected = self._reconnected or is_lost
        return is_lost

    async def _number(self, by_hand: Collection[str]) -> None:
        """Changes made by hand get their number from whoever sees them first."""
        if by_hand:
            slices = Slices()
            with self._refused.passed_over():
                for key in await self._changes.number(by_hand):
                    self.dirty.mark(key)
                    await slices.rest()

    async def _read(self) -> Snapshot:
        """Everything, and before it the log: what changes meanwhile is read again. The log is whole where it is
        compared with what is known here."""
        for _ in range(_READ_TRIES):
            whole = await self._evictions.begin() or self._is_in_doubt
            try:
                history = await self._changes.read(whole)
                found = await self._reader.everything(self._mirror.records, self._mirror.attributes)
                found.history = history
                if not await self._evictions.look() or whole:
                    return found
            except GenerationChanged:
                _log.info("generation_changed_while_reading")
        raise TimeoutError("Redis changes its generation, or evicts keys, faster than it can be read")

    def _has_no_log(self, found: Snapshot) -> bool:
        """Whether Redis has its data, of before there was a log."""
        return found.generation is not None and found.history.is_known and not found.history.last

    @property
    def _is_in_doubt(self) -> bool:
        """Whether Redis may have other data than before."""
        return self._reconnected or self._generation is None or not self._is_settled

    async def _judged(self, snapshot: Snapshot) -> Snapshot:
        """What to serve, given what Redis has."""
        if snapshot.generation is None:
            self._behind = None
            await self._look_for_loss(snapshot)
        else:
            await self._look_for_newer(snapshot)
            self._loss = None
        self._generation = snapshot.generation
        if self._is_settled:
            self._evictions.settled()
        await self._changes.arrived(snapshot.history)
        if self._behind is not None:
            return with_states(snapshot, self._behind.lost.values())
        if self._loss is None:
            return snapshot
        self._loss.present = snapshot
        return await union(self._loss.good, snapshot, Slices())

    async def _look_for_newer(self, snapshot: Snapshot) -> None:
        """Redis has its data; maybe that of some time ago. What is known to be newer stays, and goes back."""
        known = self._changes.history
        was_behind, self._behind = self._behind, None
        if known.generation not in (None, snapshot.generation):
            self._changes.forget()  # another table has taken the place of the one that was known
            snapshot.history = await self._changes.read(whole=True)
        elif self._may_lack(snapshot, was_behind is not None) and snapshot.history.is_known:
            good = self._last_good() or Snapshot()
            self._behind = await behind(good, snapshot, self._evictions, self._clock())
            if self._behind is not None and was_behind is None:
                self._behind.log(self._connection.url_shown)
        self._changes.history.generation = snapshot.generation

    def _may_lack(self, snapshot: Snapshot, was_behind: bool) -> bool:
        """Whether it may be older than what is known here, or lack some of it."""
        is_older = was_behind or snapshot.history.ends_early
        return is_older or self._is_in_doubt or self._evictions.happened

    async def _look_for_loss(self, snapshot: Snapshot) -> None:
        """Without a generation from the start and an unbroken connection, what is gone was removed, not lost."""
        is_doubtful = self._reconnected or self._generation is not None or self._evictions.happened
        if self._loss is not None or not is_doubtful:
            return
        good = self._last_good()
        if good is not None and (await lost(good, snapshot, Slices()) or await self._undoes(good, snapshot)):
            now = self._clock()
            delay = self._timing.restore.delay(self.staleness(), not self._synced, now - self._started)
            self._loss = _Loss(good, snapshot, now + delay)
            _log.warning(
                "redis_has_no_generation", missing_routes_kept=len(good.records), restore_in=round(delay, 3)
            )

    async def _undoes(self, good: Snapshot, snapshot: Snapshot) -> bool:
        """Whether somebody is writing back what this instance knows to have changed since."""
        log = await self._changes.read(whole=True)
        return log.is_known and await undoes(good, snapshot, log)

    def _last_good(self) -> Snapshot | None:
        """A table, and when it changed. The mirror is not that while Redis lacks what we know: then it shows what
        others write back as well, be it known here to have left."""
        if self._loss is not None:
            return self._loss.good
        return self._table() if self._mirror.ready else self.kept

    def _table(self) -> Snapshot:
        """What the mirror shows, and what this instance wrote itself."""
        return self._changes.with_written(Snapshot(dict(self._mirror.records), dict(self._mirror.attributes)))

    async def _restored(self, loss: _Loss) -> bool:
        """Whether Redis has its data again, be it from another."""
        if await self._restorer.has_generation():
            return True
        with self._refused.passed_over():
            if await self._restorer.write_back(loss.good, loss.present):
                return True
            loss.restore_at = self._clock() + _LOCKED_RETRY
        return False

    async def _differs(self, served: Snapshot) -> bool:
        await asyncio.sleep(0)  # the reader's last slice may be full
        slices = Slices()
        return not (
            await same_objects(self._mirror.records, served.records, slices)
            and await same_objects(self._mirror.attributes, served.attributes, slices)
        )

    def _finish(self) -> None:
        """After each step that brought the mirror up to date."""
        self._synced = True
        self.kept = None
        self.known_true()
        if self._generation is None and self._loss is None and self._mirror.records:
            if self._make_at is None:
                self._make_at = max(self._clock(), self._started + self._timing.restore.settle)
        else:
            self._make_at = None

    def _changed(self, routes: int) -> None:
        self.heap.grown(routes)
        if self._disk is not None:
            self._disk.changed()

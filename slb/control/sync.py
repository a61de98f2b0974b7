"""Makes the mirror true: by reading everything, or what is dirty."""

import asyncio
from collections.abc import Callable, Collection, Iterable

import structlog

from slb.control import keys
from slb.control.changes import Changes
from slb.control.connection import Connection
from slb.control.dirty import Dirty
from slb.control.disk import DiskTable
from slb.control.heap import Heap
from slb.control.history import Snapshot, changed_by, differing
from slb.control.orphans import Orphans
from slb.control.reader import GenerationChanged, Reader
from slb.control.recovery import Recovery, SyncTiming
from slb.control.skipped import Skipped
from slb.control.slices import Slices, rested, same_objects, step_through
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror

_READ_TRIES = 3
_UNSETTLED_PAUSE = 0.1

_log = structlog.get_logger()


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
        self._changes = changes
        self._mirror = mirror
        self._metrics = metrics
        self._disk = disk
        self._clock = clock
        self._reader = Reader(connection, Skipped(metrics))
        self.heap = Heap()
        self._orphans = Orphans(connection, mirror, timing.orphan_age, clock)
        self._true_at = clock()
        self.recovery = Recovery(connection, mirror, changes, timing, clock, self.staleness)

    def adopt_disk(self, kept: Snapshot, age: float) -> None:
        """The table of the last run, `age` seconds old: what is good until Redis has been read."""
        self.recovery.kept = kept
        self._changes.history = kept.history.copy()
        self._true_at -= age

    def staleness(self) -> float:
        """Seconds since the mirror was last known to be true."""
        return self._clock() - self._true_at

    def known_true(self) -> None:
        """Redis has just answered, with nothing dirty: the mirror is true."""
        if self.recovery.has_synced and self.recovery.is_settled and not self.dirty:
            self._true_at = self._clock()

    def notified(self, key: str, event: str) -> None:
        self.recovery.evictions.notified(key, event)
        self.dirty.mark(key)

    def begin(self) -> None:
        """A new connection: events may have been missed, and Redis may have lost its data."""
        self.recovery.doubt()
        self.dirty.clear()

    async def act(self) -> None:
        """What is due by `recovery`: give Redis back what it lacks, and read everything."""
        if await self.recovery.act():
            await self.full()

    @property
    def pages(self) -> int:
        """Of names, in the last scan for them."""
        return self._reader.pages

    async def full(self, scans: bool = True) -> None:
        """Read everything, and swap it in where it differs. Without a scan, where Redis is not in doubt, all that
        is known."""
        with self.heap.building():
            served, found = await self._read_and_judged(scans)
            if not self._mirror.ready or await self._differs(served):
                by_hand = await self.recovery.by_hand(differing(self.recovery.table(), served))
                if await self.recovery.undone(by_hand):
                    served, found = await self._read_and_judged()
                    by_hand = await self.recovery.by_hand(differing(self.recovery.table(), served))
                await self._number(by_hand)
                await step_through(self._mirror.replace(served.records, served.attributes))
                self._changed(len(served.records))
            history = found.history
            is_unlogged = found.generation is not None and history.is_known and not history.last
            if self.recovery.is_settled and is_unlogged:  # by a version without a log
                with self.recovery.refused.passed_over():
                    await self._changes.begin()
            await self._changes.shown()
        self._metrics.redis.full_syncs += 1
        self._finish()
        if self.recovery.is_settled:
            with self.recovery.refused.passed_over():
                await self._orphans.sweep()
            if self._disk is not None:
                self._disk.still_true()

    async def _read_and_judged(self, scans: bool = True) -> tuple[Snapshot, Snapshot]:
        """The table to serve, and the table that Redis has."""
        found = await self._read(scans)
        return await self.recovery.judged(found), found

    async def drain(self) -> None:
        """Read what has been dirty longest, and swap it in. All is read where the generation is another or the log
        ends earlier than it did, and, a few times a second at most, while Redis lacks entries."""
        if self.dirty.all or not self.recovery.is_settled:
            if not self.recovery.is_settled:
                await asyncio.sleep(_UNSETTLED_PAUSE)
            self.dirty.clear()
            await self.full()
            return
        batch = self.dirty.take()
        history = await self._changes.read()
        part = await self._reader.some(batch, self._mirror.records)
        if part.generation != self.recovery.generation or history.ends_early:
            await self.full()
            return
        await self._changes.arrived(history)
        changes, attributes = {**part.records, **dict.fromkeys(part.gone)}, part.attributes
        await asyncio.sleep(0)
        if changes or attributes:
            mirror = self._mirror
            by_hand = await self.recovery.by_hand(
                changed_by(changes, attributes, mirror.records, mirror.attributes)
            )
            if by_hand and (await self.recovery.evictions.look() or await self.recovery.undone(by_hand)):
                await self.full()
                return
            await self._number(by_hand)
            await step_through(self._mirror.updating(changes, attributes))
            self._changed(len(changes))
        await self._changes.shown(batch.keys())
        await self._mark(history.of)
        self._finish()

    async def look(self) -> None:
        """Ask whether Redis still has its data: no event reports a FLUSHALL or an eviction. And read its log."""
        history = await self._changes.read()
        is_doubtful = await self.recovery.is_generation_another() or history.ends_early
        if is_doubtful or await self.recovery.evictions.look():
            await self.full()
            return
        await self._changes.arrived(history)
        await self._mark(history.of)

    async def _number(self, by_hand: Collection[str]) -> None:
        """Changes made by hand get their number from the first instance that sees them."""
        with self.recovery.refused.passed_over():
            async for key in rested(await self._changes.number(by_hand)):
                self.dirty.mark(key)

    async def _mark(self, entries: Iterable[str]) -> None:
        """Read what is new in the log and not shown yet, once: for what was registered again there is no event."""
        async for key in rested(map(keys.key_of, entries)):
            if key in self._changes.waiting:
                self.dirty.mark(key)

    async def _read(self, scans: bool) -> Snapshot:
        """Everything, after the log (whole, where it is to be compared): what changes meanwhile is read again."""
        for _ in range(_READ_TRIES):
            whole = await self.recovery.evictions.begin() or self.recovery.is_in_doubt
            try:
                history = await self._changes.read(whole)
                found = await self._reader.everything(self._mirror.records, self._mirror.attributes, scans or whole)
                found.history = history
                if not await self.recovery.evictions.look() or whole:
                    return found
            except GenerationChanged:
                _log.info("generation_changed_while_reading")
        raise TimeoutError("Redis changes its generation, or evicts keys, faster than it can be read")

    async def _differs(self, served: Snapshot) -> bool:
        await asyncio.sleep(0)  # the reader's last slice may be full
        slices = Slices()
        return not (
            await same_objects(self._mirror.records, served.records, slices)
            and await same_objects(self._mirror.attributes, served.attributes, slices)
        )

    def _finish(self) -> None:
        """After each step that brought the mirror up to date."""
        self.recovery.synced()
        self.known_true()

    def _changed(self, routes: int) -> None:
        self.heap.grown(routes)
        if self._disk is not None:
            self._disk.changed()

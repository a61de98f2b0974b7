"""Makes the mirror true: by reading everything, or what is dirty; and gives Redis back what it lost."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog
from redis.exceptions import ResponseError

from slb.control.connection import Connection
from slb.control.dirty import Dirty
from slb.control.disk import DiskTable
from slb.control.generation import RestoreTiming, joined, lost, union
from slb.control.heap import Heap
from slb.control.orphans import Orphans
from slb.control.reader import GenerationChanged, Reader, Snapshot
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.dirty = Dirty()
        self._mirror = mirror
        self._metrics = metrics
        self._disk = disk
        self._timing = timing
        self._clock = clock
        self._reader = Reader(connection, Skipped(metrics))
        self._restorer = Restorer(connection)
        self.heap = Heap()
        self._orphans = Orphans(connection, mirror, timing.orphan_age, clock)
        self._started = clock()
        self._synced = False
        self._true_at = self._started
        self._generation: str | None = None
        self._reconnected = True
        self._loss: _Loss | None = None
        self._make_at: float | None = None
        self._refused = ""
        self.on_instances: Callable[[Mapping[str, Mapping[str, str]]], None] | None = None
        self.kept: Snapshot | None = None

    def adopt_disk(self, kept: Snapshot, age: float) -> None:
        """The table of the last run, `age` seconds old: what is good until Redis says otherwise."""
        self.kept = kept
        self._true_at = self._started - age

    def staleness(self) -> float:
        """Seconds since the mirror was last known to be true."""
        return self._clock() - self._true_at

    def known_true(self) -> None:
        """Redis has just been heard from, with nothing dirty: the mirror is what it says."""
        if self._synced and self._loss is None and not self.dirty:
            self._true_at = self._clock()

    def begin(self) -> None:
        """A new connection: events may have been missed, and Redis may have lost its data."""
        self._reconnected = True
        self.dirty.clear()

    def due_at(self) -> float | None:
        """When `act` is to be called, on this clock; None where nothing is planned."""
        return self._loss.restore_at if self._loss else self._make_at

    async def act(self) -> None:
        """Write back what Redis lost, or make the generation of a Redis that has none."""
        retry_at = self._clock() + self._timing.refused_retry
        if self._loss is not None:
            self._loss.restore_at = retry_at
            if await self._restored(self._loss):
                await self.full()
        elif self._make_at is not None:
            self._make_at = retry_at
            with self._writing():
                self._generation = await self._restorer.make_generation()
                self._make_at = None
            if self._make_at is None:
                await self.full()

    async def full(self) -> None:
        """Read everything, and swap it in where it differs."""
        with self.heap.building():
            found = await self._read()
            if self.on_instances is not None:
                self.on_instances(found.instances)
            served = await self._judged(found)
            self._reconnected = False
            if not self._mirror.ready or await self._differs(served):
                await step_through(self._mirror.replace(served.records, served.attributes))
                self._changed(len(served.records))
        self._metrics.full_syncs += 1
        self._finish()
        if self._loss is None:
            with self._writing():
                await self._orphans.sweep()
            if self._disk is not None:
                self._disk.still_true()

    async def drain(self) -> None:
        """Read what has been dirty longest, and swap it in. Where the generation is another, all is dirty."""
        if self.dirty.all:
            self.dirty.clear()
            await self.full()
            return
        batch = self.dirty.take()
        part = await self._reader.some(batch.paths, batch.members, batch.foreign, self._mirror.records)
        if part.generation != self._generation:
            await self.full()
            return
        changes: dict[str, RouteRecord | None] = {**part.records, **dict.fromkeys(part.gone)}
        attributes = part.attributes
        if self._loss is not None:
            changes, attributes = _with_good(self._loss, part)
        await asyncio.sleep(0)
        if changes or attributes:
            await step_through(self._mirror.updating(changes, attributes))
            self._changed(len(changes))
        self._finish()

    async def _read(self) -> Snapshot:
        for _ in range(_READ_TRIES):
            try:
                return await self._reader.everything(self._mirror.records, self._mirror.attributes)
            except GenerationChanged:
                _log.info("generation_changed_while_reading")
        raise TimeoutError("Redis changes its generation faster than it can be read")

    async def _judged(self, snapshot: Snapshot) -> Snapshot:
        """What to serve, given what Redis has."""
        if snapshot.generation is None:
            await self._look_for_loss(snapshot)
        else:
            self._loss = None
        self._generation = snapshot.generation
        if self._loss is None:
            return snapshot
        self._loss.present = snapshot
        return await union(self._loss.good, snapshot, Slices())

    async def _look_for_loss(self, snapshot: Snapshot) -> None:
        """Without a generation from the start and an unbroken connection, what is gone was removed, not lost."""
        if self._loss is not None or not (self._reconnected or self._generation is not None):
            return
        good = self._last_good()
        if good is not None and await lost(good, snapshot, Slices()):
            now = self._clock()
            delay = self._timing.restore.delay(self.staleness(), not self._synced, now - self._started)
            self._loss = _Loss(good, snapshot, now + delay)
            _log.warning(
                "redis_has_no_generation", missing_routes_kept=len(good.records), restore_in=round(delay, 3)
            )

    def _last_good(self) -> Snapshot | None:
        if self._mirror.ready:
            return Snapshot(dict(self._mirror.records), dict(self._mirror.attributes))
        return self.kept

    async def _restored(self, loss: _Loss) -> bool:
        """Whether Redis has its data again, be it from another."""
        if await self._restorer.has_generation():
            return True
        with self._writing():
            if await self._restorer.write_back(loss.good, loss.present):
                return True
            loss.restore_at = self._clock() + _LOCKED_RETRY
        return False

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A Redis that refuses to write (its disk or its memory is full, it is a replica) is followed all the same.
        Said once for each reason."""
        try:
            yield
        except ResponseError as error:
            if str(error) != self._refused:
                self._refused = str(error)
                _log.warning("redis_refuses_writes", error=self._refused, instead="read on, try again later")

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


def _with_good(loss: _Loss, part: Snapshot) -> tuple[dict[str, RouteRecord | None], dict[str, Mapping[str, str]]]:
    """The changes of a batch while Redis lacks what we know: nothing of that goes."""
    for path in part.gone:
        loss.present.records.pop(path, None)
    loss.present.records.update(part.records)
    loss.present.attributes.update({member: each for member, each in part.attributes.items() if each})
    changes: dict[str, RouteRecord | None] = {}
    for path in (*part.records, *part.gone):
        good, now = loss.good.records.get(path), part.records.get(path)
        changes[path] = joined(good, now) if good else now
    attributes = {member: each or loss.good.attributes.get(member, {}) for member, each in part.attributes.items()}
    return changes, attributes

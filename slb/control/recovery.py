"""What Redis lacks of the table: found after a reconnect or an eviction, served meanwhile, and written back."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from slb.control.behind import Behind, behind, undoes
from slb.control.changes import Changes
from slb.control.connection import Connection
from slb.control.eviction import Evictions
from slb.control.generation import RestoreTiming, kept_with, lost, union
from slb.control.history import Snapshot, with_states
from slb.control.refused_writes import RefusedWrites
from slb.control.restore import Restorer
from slb.control.slices import rested
from slb.model import RouteRecord
from slb.routing.mirror import Mirror

_LOCKED_RETRY = 0.1
"""Seconds until a restore that another instance has begun is looked at again."""

_log = structlog.get_logger()


@dataclass
class _Loss:
    """Redis has no generation and lacks entries: `good` is served together with what it has, and written back."""

    good: Snapshot
    present: Snapshot
    write_at: float


@dataclass(frozen=True, slots=True)
class SyncTiming:
    """Seconds; see `RestoreTiming`. `refused_retry`: until what Redis refused to write is tried again."""

    restore: RestoreTiming = field(default_factory=RestoreTiming)
    orphan_age: float = 30.0
    refused_retry: float = 1.0


class Recovery:
    """`judged` compares each full reading with this instance's table; `act`, called at `due_at`, writes back what
    Redis lacks. `kept`: the table of the last run, until this one `has_synced`. `staleness`: in seconds. `refused`:
    what Redis refuses to write, here or to the caller."""

    def __init__(
        self,
        connection: Connection,
        mirror: Mirror,
        changes: Changes,
        timing: SyncTiming,
        clock: Callable[[], float],
        staleness: Callable[[], float],
    ) -> None:
        self.evictions = Evictions(connection)
        self.generation: str | None = None
        self.kept: Snapshot | None = None
        self.has_synced = False
        self.refused = RefusedWrites()
        self._mirror = mirror
        self._changes = changes
        self._timing = timing
        self._clock = clock
        self._staleness = staleness
        self._restorer = Restorer(connection, changes)
        self._started = clock()
        self._is_doubted = True
        self._lacks: _Loss | Behind | None = None
        self._make_at: float | None = None

    def doubt(self) -> None:
        """Redis may have other data than before."""
        self._is_doubted = True

    @property
    def is_settled(self) -> bool:
        """Whether Redis has all entries that are newer here."""
        return self._lacks is None

    @property
    def is_behind(self) -> bool:
        """Whether Redis has its data, but older than this instance's."""
        return isinstance(self._lacks, Behind)

    @property
    def is_in_doubt(self) -> bool:
        """Whether Redis may have other data than before."""
        return self._is_doubted or self.generation is None or not self.is_settled

    def table(self) -> Snapshot:
        """What the mirror shows, and what this instance wrote itself."""
        return self._changes.with_written(Snapshot(dict(self._mirror.records), dict(self._mirror.attributes)))

    async def is_generation_another(self) -> bool:
        """Whether Redis has lost its generation, or has one by now."""
        return await self._restorer.has_generation() is (self.generation is None)

    # -- judging

    async def judged(self, found: Snapshot) -> Snapshot:
        """The table to serve, given that Redis has what was `found`."""
        was_behind = self.is_behind
        if was_behind:
            self._lacks = None
        if found.generation is None:
            await self._look_for_loss(found)
        else:
            await self._look_for_newer(found, was_behind)
        self.generation = found.generation
        if self.is_settled:
            self.evictions.settled()
        await self._changes.arrived(found.history)
        self._is_doubted = False
        lacks = self._lacks
        if isinstance(lacks, _Loss):
            lacks.present = found
            return await union(lacks.good, found)
        return with_states(found, lacks.lost.values()) if lacks else found

    def changes_of(
        self, part: Snapshot
    ) -> tuple[Mapping[str, RouteRecord | None], Mapping[str, Mapping[str, str]]]:
        """The changes of a partial reading to the table: entries that Redis has lost are not removed."""
        if isinstance(self._lacks, _Loss):
            return kept_with(self._lacks.good, self._lacks.present, part)
        return {**part.records, **dict.fromkeys(part.gone)}, part.attributes

    async def _look_for_newer(self, found: Snapshot, was_behind: bool) -> None:
        """Redis has its data, perhaps of some time ago. Entries that are newer here stay, and are written back."""
        known, lacks = self._changes.history, None
        may_lack = was_behind or found.history.ends_early or self.is_in_doubt or self.evictions.happened
        if known.generation not in (None, found.generation):
            self._changes.forget()  # another table has replaced the one that was read
            found.history = await self._changes.read(whole=True)
        elif found.history.is_known and may_lack:
            lacks = await behind(self._last_good() or Snapshot(), found, self.evictions, self._clock())
            if lacks is not None and not was_behind:
                lacks.log(self._restorer.connection.url_shown)
        self._lacks = lacks
        self._changes.history.generation = found.generation

    async def _look_for_loss(self, found: Snapshot) -> None:
        """Without a generation from the start and an unbroken connection there is none."""
        is_doubtful = self._is_doubted or self.generation is not None or self.evictions.happened
        good = self._last_good() if is_doubtful and self.is_settled else None
        if good is not None and (await lost(good, found) or await self._undoes(good, found)):
            now = self._clock()
            delay = self._timing.restore.delay(self._staleness(), not self.has_synced, now - self._started)
            self._lacks = _Loss(good, found, now + delay)
            _log.warning(
                "redis_has_no_generation", missing_routes_kept=len(good.records), restore_in=round(delay, 3)
            )

    async def _undoes(self, good: Snapshot, found: Snapshot) -> bool:
        """Whether another instance is writing back entries that have changed since, by this instance's log."""
        log = await self._changes.read(whole=True)
        return log.is_known and await undoes(good, found, log)

    def _last_good(self) -> Snapshot | None:
        """The last complete table with its history; None without one. The mirror does not serve while Redis lacks
        entries: then it also shows what others write back, even entries that were removed by this history."""
        if isinstance(self._lacks, _Loss):
            return self._lacks.good
        return self.table() if self._mirror.ready else self.kept

    # -- changes by hand: those without a number, an operator's SADD or what looks like one

    async def by_hand(self, changed: Iterable[str | None]) -> list[str]:
        """The entries of these without a number. None at the start, and while Redis lacks any: those have one."""
        if not (self.has_synced and self.is_settled):
            return []
        return [entry async for entry in rested(changed) if not self._changes.explain(entry)]

    async def undone(self, by_hand: Collection[str]) -> bool:
        """Whether what looks like changes by hand is the loss of others: another instance, with an older table, has
        written that back, and more has been changed since. Redis is in doubt then, as after a reconnect."""
        with self.refused.passed_over():
            if await self._changes.lacks(by_hand):
                self.doubt()
                return True
        return False

    # -- giving back

    def due_at(self) -> float | None:
        """When `act` is to be called, on this clock; None where nothing is planned."""
        return self._lacks.write_at if self._lacks else self._make_at

    def synced(self) -> None:
        """The mirror is up to date. A Redis without a generation gets one, once others had time to restore it."""
        self.has_synced, self.kept = True, None
        if self.generation is not None or not self.is_settled or not self._mirror.records:
            self._make_at = None
        elif self._make_at is None:
            self._make_at = max(self._clock(), self._started + self._timing.restore.settle)

    async def act(self) -> bool:
        """Write back what Redis lost, or make its generation. Returns whether: then all is to be read."""
        retry_at = self._clock() + self._timing.refused_retry
        if isinstance(self._lacks, _Loss):
            self._lacks.write_at = retry_at
            if await self._restorer.has_generation():
                return True
        with self.refused.passed_over():
            if await self._given_back(retry_at):
                return True
        return False

    async def _given_back(self, retry_at: float) -> bool:
        lacks = self._lacks
        if isinstance(lacks, _Loss):
            if not await self._restorer.write_back(lacks.good, lacks.present):
                lacks.write_at = self._clock() + _LOCKED_RETRY
                return False
        elif lacks is not None:
            lacks.write_at = retry_at
            await self._restorer.catch_up(lacks.lost, lacks.floor)
        elif self._make_at is not None:
            self._make_at = retry_at
            self.generation = await self._restorer.make_generation(self._changes.history.generation)
            self._changes.history.generation = self.generation or None  # else a restore would make another
            self._make_at = None
        return True

"""Writes what all sources say to Redis, where one instance writes each source, by a lease."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import structlog

from slb.control.cancelled import raise_if_cancelled
from slb.control.discovered import Discovered, Fenced, Writers
from slb.discovery.followed import Followed, Wrote
from slb.discovery.found import Source
from slb.discovery.pending import WriteTiming
from slb.errors import RedisUnavailable
from slb.lifecycle import set_within
from slb.observe.changes import Note, unnoted
from slb.observe.discovery import DiscoveryCounts, SourceShown
from slb.routing.mirror import Mirror

_AFTER_A_FAULT = 10.0  # seconds

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Seconds. A dead writer is noticed after `lease`, by a beat of another one: within 8 s. `first`: how long a
    Redis that knows no writer waits for the one that wrote before."""

    lease: float = 6.0
    beat: float = 2.0
    first: float = 2.5


class Writer:
    """Follows those of the sources that it has the lease of; `run` until cancelled. Others follow Redis, and do not
    ask the source at all: a Kubernetes API server has one caller, however many instances there are."""

    def __init__(
        self,
        discovered: Discovered,
        writers: Writers,
        mirror: Mirror,
        counts: DiscoveryCounts,
        rng: Random,
        timing: WriteTiming | None = None,
        lease: LeaseTiming | None = None,
        clock: Callable[[], float] = time.monotonic,
        note: Note = unnoted,
    ) -> None:
        self._discovered = discovered
        self._note_change = note
        self._writers = writers
        self._mirror = mirror
        self._counts = counts
        self._rng = rng
        self._timing = timing or WriteTiming()
        self._lease = lease or LeaseTiming()
        self._clock = clock
        self._followed: dict[tuple[str, str], Followed] = {}
        self._asking: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._is_due = asyncio.Event()
        self._is_new = asyncio.Event()
        mirror.on_swap(self._compare)
        counts.sources = self.shown

    def follow(self, sources: Sequence[Source]) -> None:
        """These from now on. What one that is left out has written stays."""
        wanted = {(source.path, source.name): source for source in sources}
        for key in self._followed.keys() - wanted.keys():
            self._leave(self._followed.pop(key))
        for key, source in wanted.items():
            if key not in self._followed:
                self._followed[key] = Followed(source, self._timing)
                self._is_new.set()

    def shown(self) -> list[SourceShown]:
        return [_shown(each) for each in self._followed.values()]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat())
            group.create_task(self._write())
        raise_if_cancelled()

    async def leave(self) -> None:
        """Give the leases back, once `run` has ended: another instance takes over at its next beat."""
        mine = [each for each in self._followed.values() if each.term]
        for each in self._followed.values():
            self._leave(each)
        try:
            await self._writers.ask([(*each.key, True) for each in mine], 0.0)
        except RedisUnavailable as error:
            _log.debug("discovery_leases_not_given_back", error=str(error))

    # -- who writes

    async def _beat(self) -> None:
        while True:
            self._is_new.clear()
            try:
                await self._ask()
            except RedisUnavailable as error:
                _log.debug("discovery_leases_not_asked", error=str(error))
            raise_if_cancelled()
            await set_within(self._is_new, self._pause())

    def _pause(self) -> float:
        """Seconds until the next beat: not longer than needed where a source has no writer yet."""
        is_unwritten = any(not each.writer and not each.term for each in self._followed.values())
        pause = self._lease.first if is_unwritten else self._lease.beat
        return pause * (self._rng.uniform(1.0, 1.1) if is_unwritten else self._rng.uniform(0.9, 1.0))

    async def _ask(self) -> None:
        asked, now = list(self._followed.values()), self._clock()
        named = [(*each.key, each.term > 0) for each in asked]
        for each, (term, writer) in zip(
            asked, await self._writers.ask(named, self._lease.lease, self._lease.first), strict=True
        ):
            if each.key not in self._followed:
                continue
            each.writer = writer
            if not term:
                self._leave(each)
            elif each.begin(term, now + self._lease.lease, self._clock()):
                self._note_change("discovery_taken_over", each.source.path, each.source.name)
                _log.info("discovery_writes", source=each.source.name, path=each.source.path, term=term)
                self._start(each)
        self._is_due.set()

    def _start(self, followed: Followed) -> None:
        if followed.key not in self._asking:
            name = f"discovery {followed.source.name}"
            self._asking[followed.key] = asyncio.create_task(self._hear(followed), name=name)

    def _leave(self, followed: Followed) -> None:
        if task := self._asking.pop(followed.key, None):
            task.cancel()
        if followed.end():
            _log.info("discovery_left", source=followed.source.name, path=followed.source.path, to=followed.writer)

    async def _hear(self, followed: Followed) -> None:
        while True:
            try:
                await self._hear_all(followed)
            except Exception as error:  # noqa: BLE001  a fault in one source is no reason to leave the others
                _log.exception("discovery_source_failed", source=followed.source.name, exc_info=error)
                followed.source.asked.trouble = repr(error)
            await asyncio.sleep(_AFTER_A_FAULT)

    async def _hear_all(self, followed: Followed) -> None:
        async for found in followed.source.follow():
            was_held_back = followed.is_held_back
            followed.hear(found, self._clock())
            if followed.is_held_back and not was_held_back:
                source, grace = followed.source, self._timing.empty_grace
                _log.warning("discovery_held_back", source=source.name, path=source.path, grace=grace)
            self._is_due.set()

    # -- what is written

    async def _write(self) -> None:
        while True:
            for each in list(self._followed.values()):
                if each.term and each.due <= self._clock():
                    await self._act(each)
            raise_if_cancelled()
            due = min((each.due for each in self._followed.values() if each.term), default=math.inf)
            await set_within(self._is_due, None if due == math.inf else due - self._clock())
            self._is_due.clear()

    async def _act(self, each: Followed) -> None:
        try:
            wrote = await each.act(self._discovered, self._clock)
        except Fenced:
            self._counts.fenced += 1
            _log.warning("discovery_fenced", source=each.source.name, path=each.source.path)
            self._leave(each)
        except RedisUnavailable as error:
            each.failed(self._clock())
            _log.debug("discovery_not_written", source=each.source.name, error=str(error))
        else:
            if wrote is not None:
                self._note(each, wrote)
            each.compare(self._mirror.records.get(each.source.path), self._clock())

    def _note(self, each: Followed, wrote: Wrote) -> None:
        self._counts.writes += 1
        self._counts.came += wrote.came
        self._counts.went += wrote.went
        self._counts.drained += wrote.drained
        _log.info(
            "discovery_wrote",
            source=each.source.name,
            path=each.source.path,
            added=wrote.came,
            removed=wrote.went,
            drained=wrote.drained,
            members=len(each.known),
        )

    def _compare(self, _: object) -> None:
        now, records = self._clock(), self._mirror.records
        for each in self._followed.values():
            each.compare(records.get(each.source.path), now)
        self._is_due.set()


def _shown(each: Followed) -> SourceShown:
    asked = each.source.asked
    return SourceShown(
        source=each.source.name,
        path=each.source.path,
        writer=each.writer,
        writes=each.term > 0,
        members=len(each.known),
        draining=sum("drain" in said for said in each.known.values()),
        answered_at=asked.answered_at,
        trouble=asked.trouble,
        held_back=each.is_held_back,
    )

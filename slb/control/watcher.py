"""Follows Redis: connect, subscribe, sync, then one loop of dirty reads; when it breaks, from the start."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import structlog
from redis.exceptions import RedisError

from slb.backoff import Backoff
from slb.control.cancelled import errors_once_one_ends, raise_if_cancelled
from slb.control.changes import Changes, OnWritten
from slb.control.cluster_events import Events, key_events
from slb.control.connection import Connection, refusal_in
from slb.control.disk import DiskTable
from slb.control.eviction import warn_of_eviction
from slb.control.notifications import switch_on
from slb.control.recovery import SyncTiming
from slb.control.retry import FIRST_PAUSE, LONGEST_PAUSE
from slb.control.settings_faults import SettingsFaults
from slb.control.slices import step_through
from slb.control.sync import Sync
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror

_POLL_SHARE = 10
"""A poll may take one part in so many of the time: a large table is polled less often."""

_FEW_PAGES, _SECONDS_A_PAGE = 64, 0.4
"""Of a scan for names. Redis works for about 0.4 ms at a page of 500 keys, whosever they are. Where a scan every
30 s would take more than a thousandth of its time, names are looked for less often."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class WatchTiming:
    """Seconds. `look`: how often Redis is asked whether it has its data. `steady`: a session that lasts longer was
    good."""

    resync: float = 30.0
    ping: float = 5.0
    first_backoff: float = FIRST_PAUSE
    longest_backoff: float = LONGEST_PAUSE
    poll: float = 1.0
    look: float = 2.0
    canary: float = 1.0
    steady: float = 1.0
    sync: SyncTiming = field(default_factory=SyncTiming)


class Watcher:
    """Keeps `mirror` true; its task is the only one that changes it. `disk_table`: where the last table is kept.
    Redis failing never ends `run`: the mirror stays as it was, and the next try comes within `longest_backoff`."""

    def __init__(
        self,
        connection: Connection,
        mirror: Mirror,
        metrics: Metrics,
        disk_table: Path | None,
        timing: WatchTiming | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: Random | None = None,
    ) -> None:
        self._connection = connection
        self._mirror = mirror
        self._metrics = metrics
        self._timing = timing or WatchTiming()
        self._clock = clock
        self._rng = rng or Random()
        changes = Changes(connection, mirror)
        self._disk = DiskTable(disk_table, mirror, history=lambda: changes.history) if disk_table else None
        self.on_written: OnWritten = changes.note
        """To be called with what this process writes itself."""
        self._sync = Sync(connection, mirror, metrics, self._disk, self._timing.sync, clock, changes)
        self._full_took = 0.0
        self._scanned_at = clock()
        self._backoff = Backoff()
        self._followed_at: float | None = None
        self._sessions = 0
        self._fault_shown = False
        self._next_swap = asyncio.Event()
        faults = SettingsFaults()
        mirror.on_swap(lambda _: faults.log(mirror.faults))
        mirror.on_swap(self._swapped)

    def staleness(self) -> float:
        return self._sync.staleness()

    async def shown(self, predicate: Callable[[Mirror], bool], timeout: float | None = 1.0) -> bool:
        """Wait until the mirror shows what `predicate` asks for; False where it does not in time. None: for as long
        as it takes."""
        try:
            async with asyncio.timeout(timeout):
                while not predicate(self._mirror):
                    await self._next_swap.wait()
        except TimeoutError:
            return False
        return True

    def _swapped(self, _: Sequence[str]) -> None:
        swapped, self._next_swap = self._next_swap, asyncio.Event()
        swapped.set()

    async def run(self) -> None:
        await self._load_disk()
        writer = asyncio.create_task(self._disk.run(), name="disk-table") if self._disk else None
        try:
            while True:
                try:
                    await self._session()
                except (RedisError, OSError, TimeoutError, _Fault) as error:
                    raise_if_cancelled()
                    pause = self._failed(error)
                await self._serve_from_disk()
                await asyncio.sleep(self._rng.uniform(pause / 2, pause))
        finally:
            if self._disk and writer:
                writer.cancel()
                await asyncio.wait([writer])
                await self._disk.flush()

    async def _session(self) -> NoReturn:
        """One connection's life; raises what ended it."""
        async with key_events(self._connection, self._timing.ping) as subscription:
            raise_if_cancelled()
            self._metrics.redis.reconnects += self._sessions > 0
            self._sync.begin()
            await _until_one_ends(
                subscription.follow(self._sync.notified, self._sync.known_true), self._follow(subscription)
            )

    async def _follow(self, subscription: Events) -> None:
        """The sequential loop: one step after another, whatever is due first."""
        server = await self._connection.servers.identity()
        notified = await switch_on(self._connection)
        await self._full()
        if not self._sessions:
            await warn_of_eviction(self._connection)
        self._sessions += 1
        self._followed_at = self._clock()
        self._connection.mark_up()
        self._fault_shown = False
        await self._check_notifications(subscription, notified)
        checked_at = self._clock()
        look_at = checked_at + self._timing.look
        while True:
            raise_if_cancelled()
            resync_at = checked_at + self._interval()
            until = min(resync_at, look_at, self._sync.recovery.due_at() or resync_at)
            await self._sync.dirty.wait(until - self._clock())
            now = self._clock()
            if now >= resync_at:
                checked_at = now
                await self._check_notifications(subscription, await switch_on(self._connection))
                await self._full(scans=now >= self._scanned_at + self._scan_interval())
            elif (due := self._sync.recovery.due_at()) is not None and now >= due:
                await self._sync.act()
            elif self._sync.dirty:
                await self._sync.drain()
            elif now >= look_at:
                await self._look(server)
                look_at = self._clock() + self._timing.look

    async def _look(self, server: str) -> None:
        """Whether it is the same server with the same data. A subscription to one that has been replaced may be
        answered, and hear nothing."""
        await self._connection.look()
        if await self._connection.servers.identity() != server:
            raise ConnectionError("another server answers")
        await self._sync.look()

    async def _full(self, scans: bool = True) -> None:
        started = self._clock()
        await self._sync.full(scans)
        self._full_took = self._clock() - started
        if scans:
            self._scanned_at = started

    def _scan_interval(self) -> float:
        pages = self._sync.pages
        return _SECONDS_A_PAGE * pages if pages > _FEW_PAGES else 0.0

    def _interval(self) -> float:
        return self._poll_interval() if self._metrics.redis.polling else self._timing.resync

    def _poll_interval(self) -> float:
        return max(self._timing.poll, _POLL_SHARE * self._full_took)

    async def _check_notifications(self, subscription: Events, are_on: bool) -> None:
        """They may have been switched off or on in Redis."""
        polling = not are_on and not await subscription.arrive(self._timing.canary)
        if polling and not self._metrics.redis.polling:
            _log.warning(
                "no_keyspace_notifications",
                redis=self._connection.url_shown,
                instead=f"reading all routes every {self._poll_interval():g} s",
                help="allow CONFIG, or set notify-keyspace-events to Kgshxe on the Redis side",
            )
        redis = self._metrics.redis
        if polling is not redis.polling:
            redis.polling, redis.polling_since = polling, time.time() if polling else None

    def _failed(self, error: Exception) -> float:
        """Seconds to wait before the next session."""
        if isinstance(error, _Fault) and not self._fault_shown:
            _log.error("watcher_failed", exc_info=error.__cause__)
            self._fault_shown = True
        refused = refusal_in(error)
        self._connection.mark_down(f"refused: {refused}" if refused else error)
        followed_at, self._followed_at = self._followed_at, None
        now, timing = self._clock(), self._timing
        was_good = followed_at is not None and now - followed_at >= timing.steady
        return self._backoff.pause(now, timing.first_backoff, timing.longest_backoff, was_good)

    async def _load_disk(self) -> None:
        if self._disk is None:
            return
        kept = await asyncio.to_thread(self._disk.load)
        if kept is not None:
            self._sync.adopt_disk(*kept)
        if not self._connection.up:
            await self._serve_from_disk()

    async def _serve_from_disk(self) -> None:
        """Redis is away and nothing is loaded: the last run's table is better than none."""
        kept = self._sync.recovery.kept
        if kept is None or self._mirror.ready:
            return
        _log.warning("serving_from_disk", routes=len(kept.records), age=round(self.staleness(), 1))
        with self._sync.heap.building():
            await step_through(self._mirror.replace(kept.records, kept.attributes))
        self._sync.heap.grown(len(kept.records))


class _Fault(Exception):
    """A fault of ours, not of Redis: traffic goes on all the same, and so does the next try."""


async def _until_one_ends(*parts: Coroutine[Any, Any, None]) -> NoReturn:
    """Run all until one ends or fails; raise its error, or ConnectionError."""
    errors = await errors_once_one_ends(*parts)
    for error in errors:
        if not isinstance(error, RedisError | OSError | TimeoutError):
            raise _Fault(repr(error)) from error
    raise errors[0] if errors else ConnectionError("the session ended")

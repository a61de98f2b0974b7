"""The fleet as one view: who looks, who is asked, and what is shown.

While nobody looks, this process listens to the asks of others, and does nothing else. While somebody looks here, it
asks every 2 s, takes the frames of all, and makes the state once a second for all who look. While somebody looks
elsewhere, it shows itself (showing.py).
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Set
from contextlib import suppress
from typing import Any, Protocol

from slb.control.cancelled import raise_if_cancelled
from slb.control.change_log import MOST_READ, ChangeLog
from slb.control.fleet_channel import FleetChannel
from slb.control.instances import Instances
from slb.control.scores import Scores, ScoresOfPools
from slb.control.slices import Slices
from slb.errors import OVERLOADED, RedisUnavailable, Refused
from slb.fleet.answers import Answers, Gathering
from slb.fleet.asks import LONGEST_ID, Ask
from slb.fleet.collected import SILENT, Collected
from slb.fleet.frame import Frame, read, written
from slb.fleet.history import history_answer
from slb.fleet.hours import together, written_hour
from slb.fleet.kept_up import kept_up
from slb.fleet.load import in_flight
from slb.fleet.own import Sources
from slb.fleet.pace import PERIOD, Pace
from slb.fleet.showing import Showing
from slb.fleet.shown import Describe, Shown
from slb.lifecycle import set_within

_AT_FULL_SPEED = 16
"""Processes that show themselves as often as `Pace` has it. With more it is less often in proportion, so that a
viewer reads as many frames a second in any fleet."""
_ASKS = 2.0
"""Seconds between two asks, however seldom states are made: one holds for 5 s."""
_SOON = 0.3
"""Seconds from the first state to the second, which has the first answers."""
_SILENT = 2.5
"""Times that a process may show itself in, before it counts as silent."""
_LASTS = 5.0
"""Seconds for which this process goes on looking when nobody does any more."""
_FULL = 10.0
"""Seconds between two asks for all rows because some were missed."""
_MOST_READ = 4 << 20
"""Characters of frames that are read in one period."""
MOST_STREAMS = 100
_PATIENCE = 0.3
"""Seconds that a state waits for what processes have counted of failures; they are asked again soon."""
_FIRST = 1.2
"""Seconds that the first who looks waits for the others to show themselves."""
_SERVE = frozenset({"proxy", "jobs", "extproc"})
"""Roles of those that send requests to upstreams."""


class Counted(Protocol):
    """Slots of an upstream that the ledger counts in a pool, now. Raises RedisUnavailable."""

    async def __call__(self, pool: str, member: str) -> int: ...


class FleetView:
    """`about`: this process; `showing`: how it shows itself; `counted`: what the ledger has of an upstream;
    `scores`: of whole pools. `run` keeps the view and what is shown going."""

    def __init__(
        self,
        channel: FleetChannel,
        about: Sources,
        instances: Instances,
        answers: Answers,
        log: ChangeLog,
        counted: Counted,
        scores: ScoresOfPools,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._channel = channel
        self._about = about
        self._me = about.info().id
        self._mirror = about.mirror
        self._instances = instances
        self._answers = answers
        self._log = log
        self._counted = counted
        self._scores = scores
        self._gatherings: set[Gathering] = set()
        self._clock = clock
        self._pace = Pace()
        self.showing = Showing(channel, self._me, answers, self._pace, lambda: self._is_looked_at, clock)
        self.describe: Describe = lambda path: {"settings": {}, "sources": {}, "faults": []}
        self._forget()
        self._looked = asyncio.Event()
        self._viewers = 0
        self._looks_until = 0.0
        self._full_at = 0.0
        self._read = 0
        self._listening: asyncio.Task[None] | None = None
        self._hears = asyncio.Event()
        self._updated = asyncio.Event()
        self.alone_because = ""

    def _forget(self) -> None:
        """Know nothing of the fleet."""
        self._collected = Collected()
        self.shown = Shown(
            self._mirror, self._collected, self._instances, lambda path: self.describe(path), self._clock
        )
        self.version = 0
        self.change = b"{}"
        self._logged = ""

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for work in (self.showing.follow, self.showing.run, self._look):
                group.create_task(kept_up(work))

    # -- somebody looks here

    @property
    def _is_looked_at(self) -> bool:
        return self._viewers > 0 or self._clock() < self._looks_until

    def enter(self) -> None:
        """One more looks, until `leave`. Raises Refused where too many do."""
        if self._viewers >= MOST_STREAMS:
            raise Refused(OVERLOADED, f"{MOST_STREAMS} look at this instance, and no more may")
        self._viewers += 1
        self._looked.set()

    def leave(self) -> None:
        self._viewers -= 1
        self._looks_until = self._clock() + _LASTS

    def state(self) -> bytes:
        return self.shown.state.whole()

    def self_shown(self) -> dict[str, Any]:
        """What the view has of this process."""
        info, redis = self._about.info(), self._about.metrics.redis
        up, staleness = redis.answers, self._about.staleness()
        return {
            "id": info.id,
            "name": info.name,
            "version": info.version,
            "now": round(time.time(), 3),
            "redis": {
                "up": up,
                "mode": "fail_open" if not up else "polling" if redis.polling else "sync",
                "staleness_seconds": round(staleness, 3),
            },
            "alone": bool(self.alone_because),
            "alone_because": self.alone_because,
            "left_out": self.shown.left_out,
        }

    async def first(self) -> None:
        """Wait until all that beat have shown themselves, but not for long."""
        self._looks_until = max(self._looks_until, self._clock() + _LASTS)
        self._looked.set()
        end = self._clock() + _FIRST
        while (left := end - self._clock()) > 0 and not self._is_complete:
            await self.updated(self.version, left)

    @property
    def _is_complete(self) -> bool:
        missing = {each.id for each in self._instances.known} - self._collected.processes.keys()
        return self.version > 0 and not missing

    async def updated(self, version: int, seconds: float) -> bool:
        """Whether there is another version within so many seconds."""
        if self.version == version:
            await set_within(self._updated, seconds)
        return self.version != version

    async def _look(self) -> None:
        while True:
            await self._looked.wait()
            try:
                await self._look_on()
            finally:
                await self._end_listening()
            self._looked.clear()
            if self._is_looked_at:
                self._looked.set()

    async def _look_on(self) -> None:
        self._listening = asyncio.create_task(
            self._channel.follow_frames(self._on_frame, self._on_answer, self._begins, self._breaks), name="frames"
        )
        await set_within(self._hears, PERIOD)
        ask_at = update_at = 0.0
        while self._is_looked_at:
            now = self._clock()
            if now >= ask_at:
                ask_at = now + _ASKS
                await self._ask()
                await self._read_changes()
            if now >= update_at:
                is_first = not self.version
                await self._update()
                raise_if_cancelled()
                update_at = self._clock() + (_SOON if is_first else self._period)
            await asyncio.sleep(max(0.0, min(ask_at, update_at) - self._clock()))

    @property
    def _period(self) -> float:
        """Seconds between two states."""
        return self._pace.period * max(1.0, len(self._collected.processes) / _AT_FULL_SPEED)

    async def _ask(self) -> None:
        now = self._clock()
        is_full = not self.version or (self._collected.has_missed and now >= self._full_at)
        if is_full:
            self._full_at, self._collected.has_missed = now + _FULL, False
            if self.showing.frames is not None:  # it does not hear its own asks
                self.showing.frames.begin_anew()
        why = await self._channel.ask(Ask(self._me, self._period, is_full).written())
        self.alone_because = why or ("" if self._hears.is_set() else self.alone_because)

    async def _read_changes(self) -> None:
        """What has happened since the last look; while Redis is away nothing is added."""
        try:
            found = await self._log.read(self._logged)
        except RedisUnavailable:
            return
        for entry in found:
            self._logged = entry.id
            shown = entry._asdict()
            del shown["id"]
            self.shown.state.put("changes", entry.id, shown)
        for id_ in list(self.shown.state.objects["changes"])[:-MOST_READ]:
            self.shown.state.drop("changes", id_)

    async def _update(self) -> None:
        """Make the next state. The frame of this process is made once, for itself and for who asks elsewhere."""
        self._read = 0
        self._collected.silent_after = max(SILENT, _SILENT * self._period)
        making = self._pace.slices()
        if self.showing.frames is not None:
            frame = await self.showing.frames.make(making)
            self._take(frame)
            if self.showing.is_asked:
                await self._channel.show(written(frame))
        await self._read_failures()
        self._pace.round(making, await self._next_state(await self._read_scores()))
        self.version += 1
        updated, self._updated = self._updated, asyncio.Event()
        updated.set()

    async def _read_scores(self) -> Mapping[str, Scores]:
        """Of the pools with slots in use; none while Redis is away."""
        pools = self.shown.pools_in_use()
        if not pools or self.alone_because:
            return {}
        try:
            return await self._scores.read(pools)
        except RedisUnavailable:
            return {}

    async def _read_failures(self) -> None:
        """What processes have counted of those in trouble, before anybody looked too."""
        wall = time.time()
        if not (names := self.shown.wants_failures(wall)):
            return
        heard = {id_ for id_, _ in self._collected.living(self._clock())} - {self._me}
        ask = Ask(self._me, self._period, failures_of=names)
        gathering = Gathering(ask, heard)
        if heard and self._hears.is_set():
            await self._ask_all(ask, gathering, _PATIENCE)
        told = {**gathering.failures, self._me: self._answers.failures(names)}
        slices = self._pace.slices()
        for _ in self.shown.take_failures(names, told, wall):
            await slices.rest()

    async def _next_state(self, scores: Mapping[str, Scores]) -> Slices:
        slices = self._pace.slices()
        for _ in self.shown.update(self.alone_because, scores):
            await slices.rest()
        self.change = self.shown.state.changes()
        return slices

    def _on_frame(self, text: str) -> None:
        self._read += len(text)
        if self._read > _MOST_READ:
            return
        with self._pace.counted():
            frame = read(text)
            if frame is not None and frame.id != self._me:
                self._take(frame)

    def _take(self, frame: Frame) -> None:
        alive = {each.id for each in self._instances.known}
        table = self._mirror.table
        self._collected.take(frame, self._clock(), self._mirror.upstreams, table.routes, alive, time.time())

    def _on_answer(self, text: str) -> None:
        for each in self._gatherings:
            each.take(text)

    # -- questions to all

    async def history(self) -> dict[str, Any]:
        """The last hour of each process that answers within a second."""
        asked = await self._gather(Ask(self._me, wants_history=True), self._others())
        series = dict(asked.history)
        if (own := self._answers.last_hour()) is not None:
            series[self._me] = own
        return history_answer(series)

    async def hour(self, name: str) -> dict[str, Any]:
        """The last hour of a route or an upstream at all processes that answer within a second, added up."""
        asked = await self._gather(Ask(self._me, hour_of=name), self._others())
        hours = dict(asked.hours)
        if (own := self._answers.hour(name)) is not None:
            hours[self._me] = own
        names = {self._me: self._about.info().name, **{each.id: each.name for each in self._instances.known}}
        return {
            **written_hour(together(name, hours.values(), time.time())),
            "instances": sorted(names.get(id_, id_) for id_ in hours),
            "missing": sorted(names.get(id_, id_) for id_ in asked.missing),
        }

    async def explain(self, request_id: str) -> list[dict[str, Any]]:
        """What became of the requests of this id, at each process that knows; the oldest first."""
        found = self._answers.explain(request_id)
        if len(request_id) <= LONGEST_ID:
            asked = await self._gather(Ask(self._me, explain=request_id), self._others())
            found += [each for some in asked.found.values() for each in some]
        return sorted(found, key=lambda each: each["time"])

    async def in_flight(self, member: str) -> dict[str, Any]:
        """What all processes have in flight at an upstream, which each is asked now: frames tell of an upstream
        late, and not whether a process has seen that it drains."""
        with suppress(RedisUnavailable):  # then those that were known are asked in vain, and named
            await self._instances.list()  # one that has begun since the last beat may serve already
        names = {each.id: each.name for each in self._instances.known if not _SERVE.isdisjoint(each.role_names)}
        asked = await self._gather(Ask(self._me, upstream=member), names.keys() - {self._me})
        loads = dict(asked.loads)
        if (own := self._answers.load(member)) is not None:
            loads[self._me] = own
            names[self._me] = self._about.info().name
        return in_flight(loads, names, self._instances.silent, await self._slots_of(member))

    async def _slots_of(self, member: str) -> int | None:
        """Slots that the ledger counts for it, whoever has them; None where Redis does not say."""
        routes = self._mirror.routes_of([member])
        pools = {route.settings.pool or route.path for route in routes if route.is_counted}
        try:
            return sum(await asyncio.gather(*(self._counted(pool, member) for pool in sorted(pools))))
        except RedisUnavailable:
            return None

    def _others(self) -> Set[str]:
        return {each.id for each in self._instances.known} - {self._me}

    async def _gather(self, ask: Ask, others: Collection[str]) -> Gathering:
        """Ask all, and wait for the answers of `others`."""
        gathering = Gathering(ask, others)
        if not others:
            return gathering
        if len(self._gatherings) >= MOST_STREAMS:
            raise Refused(OVERLOADED, f"{MOST_STREAMS} questions are open at this instance, and no more may be")
        self._looks_until = max(self._looks_until, self._clock() + _LASTS)
        self._looked.set()
        await set_within(self._hears, PERIOD)
        await self._ask_all(ask, gathering, PERIOD)
        return gathering

    async def _ask_all(self, ask: Ask, gathering: Gathering, patience: float) -> None:
        """`patience`: seconds that answers are waited for."""
        self._gatherings.add(gathering)
        try:
            if not await self._channel.ask(ask.written()):
                await gathering.wait(patience)
        finally:
            self._gatherings.discard(gathering)

    def _begins(self) -> None:
        self.alone_because = ""
        self._hears.set()

    def _breaks(self, error: Exception) -> None:
        self.alone_because = str(error) or "Redis does not answer"
        self._hears.clear()

    async def _end_listening(self) -> None:
        task, self._listening = self._listening, None
        self._hears.clear()
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        if self.showing.frames is not None and not self.showing.is_asked:
            self.showing.frames.forget()
        self._forget()

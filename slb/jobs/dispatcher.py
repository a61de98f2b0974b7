"""The jobs of one model, as this instance runs them: a slot first, then the job that is next, then its end."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from random import Random
from typing import Any

import orjson
import structlog

from slb.admission.entry import Entry
from slb.admission.gates import Gates, turn_of
from slb.balance.upstream import Handle, LiveUpstream
from slb.control.jobs import JobLane, Pulse
from slb.errors import Reason, RedisUnavailable, ScriptFailed
from slb.job import Claimed, ModelConfig, route_of
from slb.jobs.attempt import Caller, run_attempt
from slb.jobs.verdict import Move, Verdict, move_of
from slb.observe.jobs import JobCounts
from slb.routing.mirror import Mirror
from slb.routing.table import Route

CLASS = "jobs"
"""The class in which jobs wait for slots, where their route has such a class."""

_MOST_WAITING = 32
"""Slots that one instance waits for at once, of one model: so many jobs it can begin in one turn of its loop. What
it runs is bounded by the slots alone."""
_BUSY = 1.0
"""Seconds an upstream is left alone that had no room for a job."""
_PAUSE = 0.5
"""Seconds before slots are asked for again, where none are to be had."""
_UNWRITTEN = 0.25
"""Seconds before an outcome is written again that Redis did not take."""

_log = structlog.get_logger("slb.jobs")


class _Place:
    """One slot that is waited for."""

    def __init__(self, on_slot: Callable[["_Place", Handle], None], on_refusal: Callable[["_Place"], None]) -> None:
        self.entry: Entry | None = None
        self._on_slot = on_slot
        self._on_refusal = on_refusal

    def admitted(self, handle: Handle) -> None:
        self._on_slot(self, handle)

    def rejected(self, reason: Reason, detail: str) -> None:
        self._on_refusal(self)


class Dispatcher:
    """`config` is what is set on the model now. `running`: the attempts that this instance has claimed and whose
    end Redis has not confirmed."""

    def __init__(
        self,
        lane: JobLane,
        gates: Gates,
        mirror: Mirror,
        call: Caller,
        counts: JobCounts,
        rng: Random,
        on_end: Callable[[], None],
    ) -> None:
        self.lane = lane
        self.running: dict[tuple[str, str], asyncio.Task[None] | None] = {}
        self._gates = gates
        self._mirror = mirror
        self._call = call
        self._counts = counts
        self._rng = rng
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._places: set[_Place] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: dict[str, float] = {}
        self._queued = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_leaving = False

    @property
    def config(self) -> ModelConfig:
        return self.lane.config

    def attempts(self) -> Iterable[tuple[str, str]]:
        """Id and token of what runs here."""
        return list(self.running)

    def pulse(self, pulse: Pulse) -> None:
        """What Redis said with a reply: how many wait, and what of ours was cancelled."""
        self._queued = pulse.queued
        for attempt in pulse.dropped:
            if (task := self.running.get(attempt)) is not None:
                task.cancel()
        self.seek()

    def seek(self) -> None:
        """Wait for as many slots as there are jobs to begin, but for no more than that."""
        wanted = 0 if self._is_leaving or self.config.paused else min(self._queued, _MOST_WAITING)
        while len(self._places) > wanted:
            place = self._places.pop()
            if place.entry is not None:
                place.entry.leave()
        route = self._mirror.table.routes.get(route_of(self.lane.model))
        while route is not None and self._timer is None and len(self._places) < wanted:
            place = _Place(self._slot, self._refused)
            self._places.add(place)
            self._enter(place, route, self._left_alone(route))

    async def leave(self, seconds: float) -> None:
        """Begin nothing more; what runs has so long to end, and is given back then."""
        self._is_leaving = True
        self.seek()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- slots

    def _enter(self, place: _Place, route: Route, avoided: tuple[LiveUpstream, ...]) -> None:
        entry = self._gates.of(route).enter(route, avoided, (), turn_of(route.settings, CLASS), place)
        if place in self._places:
            place.entry = entry

    def _left_alone(self, route: Route) -> tuple[LiveUpstream, ...]:
        """The upstreams that were busy a moment ago."""
        if not self._busy:
            return ()
        now = self._loop.time()
        self._busy = {member: until for member, until in self._busy.items() if until > now}
        return tuple(each for each in route.serving if each.member in self._busy)

    def _refused(self, place: _Place) -> None:
        """No slot: not for this while, since all are busy or gone, or the wait was over."""
        self._places.discard(place)
        if self._timer is None:
            self._timer = self._loop.call_later(_PAUSE, self._seek_again)

    def _seek_again(self) -> None:
        self._timer = None
        self.seek()

    def _slot(self, place: _Place, handle: Handle) -> None:
        self._places.discard(place)
        self._start(self._begin(handle))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("job_broke", model=self.lane.model, exc_info=error)

    # -- one attempt

    async def _begin(self, handle: Handle) -> None:
        """Take the next job for a slot that is held."""
        try:
            job = await self.lane.claim(handle.upstream.member)
        except (RedisUnavailable, ScriptFailed):
            job = None
        except BaseException:
            handle.release(completed=False)
            raise
        if job is None:
            handle.release(completed=False)
            self._queued = 0
            return
        self.running[job.id, job.token] = asyncio.current_task()
        try:
            move = await self._run(job, handle)
        except asyncio.CancelledError:  # cancelled by its caller, or this instance leaves
            move = Move("back", b"")
        except Exception as error:  # noqa: BLE001 -- a job ends, whatever slb fails at
            _log.exception("job_broke", model=job.model, job=job.id)
            move = move_of(Verdict("failed", error=f"slb failed: {error!r}"), self.config, job.failures, 0.0)
        finally:
            handle.release(completed=True)
        try:
            await self._write(job, move)
        finally:
            del self.running[job.id, job.token]

    async def _run(self, job: Claimed, handle: Handle) -> Move:
        upstream, given = handle.upstream, orjson.loads(job.written)
        retries = given.get("max_retries")
        config = self.config if retries is None else self.config.model_copy(update={"max_retries": retries})
        began = self._loop.time()
        payload = orjson.dumps(given["payload"])
        verdict = await run_attempt(job, payload, upstream, config, self._call, self.lane.note_remote)
        move = move_of(verdict, config, job.failures, self._rng.uniform(-1, 1))
        if verdict.kind == "busy":
            self._busy[upstream.member] = self._loop.time() + _BUSY
        self._counts.ended(job.model, move.name, self._loop.time() - began)
        fields = {"model": job.model, "job": job.id, "attempt": job.token, "upstream": upstream.member}
        _log.info("job_attempt", **fields, outcome=move.name, error=verdict.error or None)
        return move

    async def _write(self, job: Claimed, move: Move) -> None:
        """Until Redis has taken it: an outcome is not lost because Redis is away."""
        while True:
            try:
                if not await self.lane.finish(job, move.name, move.text, move.seconds):
                    self._counts.stale[job.model] += 1
                    _log.warning("job_stale", model=job.model, job=job.id, attempt=job.token, outcome=move.name)
                self._on_end()
                return
            except (RedisUnavailable, ScriptFailed):
                await asyncio.sleep(_UNWRITTEN)

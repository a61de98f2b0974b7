"""The jobs of one model, as this instance runs them: a slot first, then the job that is next, then its end."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from random import Random
from typing import Any, Protocol

import orjson
import structlog

from slb.admission.gates import Gates
from slb.balance.upstream import Handle
from slb.control.jobs import JobLane, Left, Pulse
from slb.errors import RedisUnavailable, ScriptFailed
from slb.job import ROUTE, Claimed, ModelConfig, route_of
from slb.jobs.attempt import Caller, run_attempt
from slb.jobs.cancelling import cancel_there
from slb.jobs.lock_sync import LockSync
from slb.jobs.outcomes import Kept, Outcomes
from slb.jobs.slots import Slots
from slb.jobs.stages import next_after, stages_of
from slb.jobs.verdict import Move, Verdict, move_of
from slb.observe import frequent
from slb.observe.jobs import JobCounts
from slb.routing.mirror import Mirror

_UNWRITTEN = 0.25
"""Seconds before an outcome is written again that Redis did not take."""

_log = structlog.get_logger("slb.jobs")


class _Attempt:
    """`remote`: the GPU's id of what it runs, `member`: where; `began`: when it was called. `is_dropped`: Redis has
    ended the attempt already; `is_written`: it has ended here, and its outcome is on its way; `runs_on`: its GPU
    may run it all the same."""

    def __init__(self, job: Claimed, task: "asyncio.Task[None] | None") -> None:
        self.job = job
        self.task = task
        self.remote = job.remote
        self.member = job.at
        self.began = 0.0
        self.is_dropped = self.is_written = self.runs_on = False


class Others(Protocol):
    """The models of this instance."""

    def config_of(self, model: str) -> ModelConfig:
        """What holds for a model, known or not."""

    def sync_of(self, model: str) -> LockSync | None:
        """What holds its slots back; None where it has none here."""


class Dispatcher:
    """`look` asks GPUs what is no evidence about them. `on_end` is called whenever an attempt has ended here;
    `others` knows the other models, at whose GPUs jobs go on."""

    def __init__(
        self,
        lane: JobLane,
        gates: Gates,
        mirror: Mirror,
        call: Caller,
        look: Caller,
        counts: JobCounts,
        rng: Random,
        outcomes: Outcomes,
        on_end: Callable[[], None],
        others: Others,
    ) -> None:
        self._outcomes = outcomes
        self.lane = lane
        self._gates = gates
        self._others = others
        self._mirror = mirror
        self._call = call
        self._counts = counts
        self._rng = rng
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._slots: dict[str, Slots] = {}
        self._sources: dict[str, tuple[str, ...]] = {}
        self._sync = LockSync(lane, mirror, look, self._slots_of(""), counts, rng)
        self._running: dict[tuple[str, str], _Attempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._dropped: set[tuple[str, str]] = set()
        self._owed: set[asyncio.Task[None]] = set()
        self._queued: Mapping[str, int] = {}
        self._is_leaving = False
        self._writes = True

    async def run(self) -> None:
        """Run the lane, and follow what GPUs say that they run, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.lane.run())
            tasks.create_task(self._sync.run())

    @property
    def sync(self) -> LockSync:
        """What holds slots back."""
        return self._sync

    @property
    def config(self) -> ModelConfig:
        """What is set on the model now."""
        return self.lane.config

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs here."""
        return not self._tasks and not self._sync.holds_any

    def attempts(self) -> Iterable[tuple[str, str]]:
        """Id and token of what was claimed here, until Redis has confirmed its end."""
        return list(self._running)

    def pulse(self, pulse: Pulse) -> None:
        """What stands in each reply of Redis: how many wait, and what of ours was ended there."""
        self._queued = pulse.queued
        self._dropped = set(pulse.dropped)
        for key in pulse.dropped:
            attempt = self._running.get(key)
            if attempt is not None and attempt.task is not None and not attempt.is_written:
                attempt.is_dropped = True
                attempt.task.cancel()
        for left in pulse.left:
            task = self._loop.create_task(self._cancel_there(left))
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        self.seek()

    async def _cancel_there(self, left: Left) -> None:
        config = self._others.config_of(left.on) if left.on else self.config
        await cancel_there(left, config, self._mirror, self._call)

    def seek(self) -> None:
        """Wait for slots while there are jobs to begin. What runs is bounded by the slots alone."""
        may_begin = not self._is_leaving and not self.config.paused and not self._owed
        stages = stages_of(self.config.fallback_models, self._queued, self._has_gpu) if may_begin else ()
        self._sources = dict(stages)
        for on in {*self._slots, *self._sources}:
            wanted = sum(self._queued.get(each, 0) for each in self._sources.get(on, ()))
            is_paused = on and self._others.config_of(on).paused
            self._slots_of(on).want(0 if is_paused else wanted)

    def resume(self, outcomes: Iterable[Kept]) -> None:
        """Tell Redis how attempts ended here before this process began. Until it knows, no job begins: it might be
        one of them."""
        for each in outcomes:
            task = self._loop.create_task(self._write(each.job, each.move))
            self._owed.add(task)
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _slots_of(self, on: str) -> Slots:
        if on not in self._slots:
            path, on_slot = route_of(on or self.lane.model), partial(self._slot, on)
            self._slots[on] = Slots(path, self._gates, self._mirror, on_slot, self.seek)
        return self._slots[on]

    def _has_gpu(self, on: str) -> bool:
        record = self._mirror.records.get(ROUTE + (on or self.lane.model))
        return record is not None and bool(record.members)

    async def leave(self, seconds: float) -> None:
        """Begin nothing more; what runs has so long to end, and is given back then."""
        self._is_leaving = True
        self.seek()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        self._writes = False
        self._sync.leave()
        written = {attempt.task for attempt in self._running.values() if attempt.is_written}
        for task in self._tasks - written:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- one attempt

    def _slot(self, on: str, handle: Handle) -> None:
        task = self._loop.create_task(self._begin(handle, on))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task in self._owed:
            self._owed.discard(task)
            self.seek()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("job_broke", model=self.lane.model, exc_info=error)

    async def _begin(self, handle: Handle, on: str) -> None:
        """Take the next job for a slot that is held."""
        sources = self._sources.get(on, (on,))
        try:
            job = await self.lane.claim(handle.upstream.member, on, sources)
        except (RedisUnavailable, ScriptFailed):
            job = None
        except BaseException:
            handle.release(completed=False)
            raise
        if job is None:
            handle.release(completed=False)
            self._queued = {each: number for each, number in self._queued.items() if each not in sources}
            return
        if (job.id, job.token) in self._dropped:  # it was cancelled in the same step in which it was claimed
            handle.release(completed=False)
            return
        self._counts.began(job)
        attempt = self._running[job.id, job.token] = _Attempt(job, asyncio.current_task())
        try:
            move = await self._ended_as(attempt, handle)
            if not attempt.runs_on:
                self._slots_of(on).given_back()
            attempt.is_written = True
            if attempt.is_dropped:
                await self._cancel_there(Left(job.id, attempt.member, job.on, attempt.remote))
            else:
                await self._write(job, move)
        finally:
            del self._running[job.id, job.token]
        self._on_end()

    async def _ended_as(self, attempt: _Attempt, handle: Handle) -> Move:
        """The slot is free when this returns, or held back until its GPU does not use it."""
        try:
            if attempt.remote and attempt.job.at != handle.upstream.member:
                handle.release(completed=False)
                try:
                    async with asyncio.timeout(self.config.max_processing_time):
                        followed = await self._slots_of(attempt.job.on).at(attempt.job.at)
                except TimeoutError:  # it is registered, and serves nothing
                    return Move("retry", b"its upstream did not serve within max_processing_time")
                if followed is None:  # its GPU is gone, and what it ran with it
                    return Move("retry", b"its upstream left while it ran there")
                handle = followed
            return await self._run(attempt, handle)
        except asyncio.CancelledError:  # ended in Redis, or this instance leaves
            if attempt.is_dropped and attempt.began:
                self._note_end(attempt, "dropped")
            return Move("back", b"")
        except Exception as error:  # noqa: BLE001 -- a job ends, whatever slb fails at
            job = attempt.job
            _log.exception("job_broke", model=job.model, job=job.id)
            return self._move(job, Verdict("failed", error=f"slb failed: {error!r}"))
        finally:
            if attempt.runs_on:
                self._give_up(attempt, handle)
            else:
                handle.release(completed=True)

    def _give_up(self, attempt: _Attempt, handle: Handle) -> None:
        on = attempt.job.on
        sync = self._others.sync_of(on) if on else self._sync
        if sync is None:
            handle.release(completed=False)
        else:
            sync.give_up(handle, attempt.job.id, attempt.began)

    async def _run(self, attempt: _Attempt, handle: Handle) -> Move:
        job, upstream, given = attempt.job, handle.upstream, orjson.loads(attempt.job.written)
        config = self._config_of(job, given)
        attempt.member, attempt.runs_on = upstream.member, True
        attempt.began = self._loop.time()

        async def note(job: Claimed, remote: str) -> bool:
            attempt.remote = remote
            return await self._noted(job, remote)

        verdict = await run_attempt(job, orjson.dumps(given["payload"]), upstream, config, self._call, note)
        attempt.runs_on = verdict.runs_on
        move = self._move(job, verdict)
        if verdict.kind == "busy":
            self._slots_of(job.on).was_busy(upstream.member)
        self._note_end(attempt, move.name, verdict.error)
        return move

    def _note_end(self, attempt: _Attempt, outcome: str, error: str = "") -> None:
        job = attempt.job
        self._counts.ended(job.model, outcome, self._loop.time() - attempt.began)
        fields = {"model": job.model, "job": job.id, "attempt": job.token, "upstream": attempt.member}
        frequent.info("job_attempt", **fields, ran_on=job.on or None, outcome=outcome, error=error or None)

    def _move(self, job: Claimed, verdict: Verdict) -> Move:
        config, jitter = self._config_of(job, orjson.loads(job.written)), self._rng.uniform(-1, 1)
        fallback = next_after(job.on, self.config.fallback_models, self._has_gpu)
        return move_of(verdict, config, job.failures, jitter, fallback)

    def _config_of(self, job: Claimed, given: Mapping[str, Any]) -> ModelConfig:
        """What holds for a job that was submitted so, where it is."""
        config, retries = self._others.config_of(job.on) if job.on else self.config, given.get("max_retries")
        return config if retries is None else config.model_copy(update={"max_retries": retries})

    async def _noted(self, job: Claimed, remote: str) -> bool:
        """Until Redis has it: the GPU goes on meanwhile. Whether the attempt is still this instance's."""
        while True:
            try:
                return await self.lane.note_remote(job, remote)
            except (RedisUnavailable, ScriptFailed):
                await asyncio.sleep(_UNWRITTEN * self._rng.uniform(1, 2))

    async def _write(self, job: Claimed, move: Move) -> None:
        """Until Redis has taken it: an outcome is not lost because Redis is away. An instance that leaves meanwhile
        leaves it to the next one, on the disk."""
        while True:
            try:
                is_taken = await self.lane.finish(job, *move)
            except (RedisUnavailable, ScriptFailed):
                self._outcomes.keep(job, move)
                if not self._writes:
                    return
                await asyncio.sleep(_UNWRITTEN * self._rng.uniform(1, 2))
            else:
                break
        self._outcomes.written(job)
        if not is_taken:
            self._counts.stale[job.model] += 1
            _log.warning("job_stale", model=job.model, job=job.id, attempt=job.token, outcome=move.name)

"""The jobs of one model, as this instance runs them: a slot first, then the job that is next, then its end."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any
from urllib.parse import quote

import orjson
import structlog

from slb.admission.gates import Gates
from slb.balance.upstream import Handle
from slb.control.jobs import JobLane, Pulse
from slb.errors import RedisUnavailable, Refused, ScriptFailed
from slb.job import Claimed, ModelConfig, route_of
from slb.jobs.attempt import AnswerTooLarge, Caller, run_attempt
from slb.jobs.slots import Slots
from slb.jobs.verdict import Move, Verdict, move_of
from slb.observe import frequent
from slb.observe.jobs import JobCounts
from slb.routing.mirror import Mirror

_UNWRITTEN = 0.25
"""Seconds before an outcome is written again that Redis did not take."""
_CANCEL_WITHIN = 5.0
"""Seconds a GPU may take to answer that a job was cancelled."""

_log = structlog.get_logger("slb.jobs")


class _Attempt:
    """`remote`: the GPU's id of what it runs, `member`: where. `is_dropped`: Redis has ended the attempt
    already; `is_written`: it has ended here, and its outcome is on its way."""

    def __init__(self, job: Claimed, task: "asyncio.Task[None] | None") -> None:
        self.job = job
        self.task = task
        self.remote = job.remote
        self.member = job.at
        self.is_dropped = self.is_written = False


class Dispatcher:
    """`on_end` is called whenever an attempt has ended here."""

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
        self._mirror = mirror
        self._call = call
        self._counts = counts
        self._rng = rng
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._slots = Slots(route_of(lane.model), gates, mirror, self._slot, self.seek)
        self._running: dict[tuple[str, str], _Attempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._dropped: set[tuple[str, str]] = set()
        self._queued = 0
        self._is_leaving = False
        self._writes = True

    @property
    def config(self) -> ModelConfig:
        """What is set on the model now."""
        return self.lane.config

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
        self.seek()

    def seek(self) -> None:
        """Wait for slots while there are jobs to begin. What runs is bounded by the slots alone."""
        self._slots.want(0 if self._is_leaving or self.config.paused else self._queued)

    async def leave(self, seconds: float) -> None:
        """Begin nothing more; what runs has so long to end, and is given back then."""
        self._is_leaving = True
        self.seek()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        self._writes = False
        written = {attempt.task for attempt in self._running.values() if attempt.is_written}
        for task in self._tasks - written:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- one attempt

    def _slot(self, handle: Handle) -> None:
        task = self._loop.create_task(self._begin(handle))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("job_broke", model=self.lane.model, exc_info=error)

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
        if (job.id, job.token) in self._dropped:  # it was cancelled in the same step in which it was claimed
            handle.release(completed=False)
            return
        attempt = self._running[job.id, job.token] = _Attempt(job, asyncio.current_task())
        try:
            move = await self._ended_as(attempt, handle)
            self._slots.given_back()
            attempt.is_written = True
            if attempt.is_dropped:
                await self._cancel_there(attempt)
            else:
                await self._write(job, move)
        finally:
            del self._running[job.id, job.token]
        self._on_end()

    async def _ended_as(self, attempt: _Attempt, handle: Handle) -> Move:
        """The slot is free when this returns."""
        try:
            if attempt.remote and attempt.job.at != handle.upstream.member:
                handle.release(completed=False)
                followed = await self._slots.at(attempt.job.at)
                if followed is None:  # its GPU is gone, and what it ran with it
                    return Move("retry", b"its upstream left while it ran there")
                handle = followed
            return await self._run(attempt, handle)
        except asyncio.CancelledError:  # ended in Redis, or this instance leaves
            return Move("back", b"")
        except Exception as error:  # noqa: BLE001 -- a job ends, whatever slb fails at
            job = attempt.job
            _log.exception("job_broke", model=job.model, job=job.id)
            config = self._config_of(orjson.loads(job.written))
            return move_of(Verdict("failed", error=f"slb failed: {error!r}"), config, job.failures, 0.0)
        finally:
            handle.release(completed=True)

    async def _run(self, attempt: _Attempt, handle: Handle) -> Move:
        job, upstream, given = attempt.job, handle.upstream, orjson.loads(attempt.job.written)
        config = self._config_of(given)
        attempt.member = upstream.member
        began = self._loop.time()

        async def note(job: Claimed, remote: str) -> bool:
            attempt.remote = remote
            return await self._noted(job, remote)

        verdict = await run_attempt(job, orjson.dumps(given["payload"]), upstream, config, self._call, note)
        move = move_of(verdict, config, job.failures, self._rng.uniform(-1, 1))
        if verdict.kind == "busy":
            self._slots.was_busy(upstream.member)
        self._counts.ended(job.model, move.name, self._loop.time() - began)
        fields = {"model": job.model, "job": job.id, "attempt": job.token, "upstream": upstream.member}
        frequent.info("job_attempt", **fields, outcome=move.name, error=verdict.error or None)
        return move

    def _config_of(self, given: Mapping[str, Any]) -> ModelConfig:
        """What holds for a job that was submitted so."""
        retries = given.get("max_retries")
        return self.config if retries is None else self.config.model_copy(update={"max_retries": retries})

    async def _noted(self, job: Claimed, remote: str) -> bool:
        """Until Redis has it: the GPU goes on meanwhile. Whether the attempt is still this instance's."""
        while True:
            try:
                return await self.lane.note_remote(job, remote)
            except (RedisUnavailable, ScriptFailed):
                await asyncio.sleep(_UNWRITTEN * self._rng.uniform(1, 2))

    async def _write(self, job: Claimed, move: Move) -> None:
        """Until Redis has taken it: an outcome is not lost because Redis is away. An instance that leaves meanwhile
        leaves its jobs to the end of its lease."""
        while True:
            try:
                if not await self.lane.finish(job, move.name, move.text, move.seconds):
                    self._counts.stale[job.model] += 1
                    _log.warning("job_stale", model=job.model, job=job.id, attempt=job.token, outcome=move.name)
                return
            except (RedisUnavailable, ScriptFailed):
                if not self._writes:
                    return
                await asyncio.sleep(_UNWRITTEN * self._rng.uniform(1, 2))

    async def _cancel_there(self, attempt: _Attempt) -> None:
        """The call is dropped already; a GPU that runs jobs on its own is asked to end this one."""
        template, upstream = self.config.cancel_endpoint_template, self._mirror.upstream(attempt.member)
        if not template or not attempt.remote or upstream is None:
            return
        target = template.replace("{id}", quote(attempt.remote, safe=""))
        try:
            await self._call(upstream, "POST", target, {"X-Source": "dispatcher"}, b"", _CANCEL_WITHIN, 1 << 16)
        except (Refused, AnswerTooLarge) as error:
            _log.info("job_not_cancelled_there", job=attempt.job.id, upstream=upstream.member, error=str(error))

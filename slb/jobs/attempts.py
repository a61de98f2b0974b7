"""One attempt at a job, from the slot that it has until that slot is free, or held back."""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

import orjson
import structlog

from slb.balance.upstream import Handle
from slb.control.jobs import JobLane, Left
from slb.job import Claimed, ModelConfig
from slb.jobs.attempt import run_attempt
from slb.jobs.cancelling import cancel_there
from slb.jobs.gpu_call import Caller
from slb.jobs.lock_sync import LockSync
from slb.jobs.seeking import Others, Seeking
from slb.jobs.stages import next_after
from slb.jobs.telling import Telling
from slb.jobs.verdict import Move, Verdict, move_of
from slb.observe import frequent
from slb.observe.jobs import JobCounts
from slb.routing.mirror import Mirror

_log = structlog.get_logger("slb.jobs")


class Attempt:
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

    def drop(self) -> None:
        """Redis has ended it."""
        if self.task is not None and not self.is_written:
            self.is_dropped = True
            self.task.cancel()

    @property
    def left(self) -> Left:
        """What its GPU may run on its own."""
        return Left(self.job.id, self.member, self.job.on, self.remote)


class Attempts:
    """Runs those of one model."""

    def __init__(
        self,
        lane: JobLane,
        mirror: Mirror,
        call: Caller,
        counts: JobCounts,
        rng: Random,
        others: Others,
        seeking: Seeking,
        telling: Telling,
        sync: LockSync,
    ) -> None:
        self._lane = lane
        self._mirror = mirror
        self._call = call
        self._counts = counts
        self._rng = rng
        self._others = others
        self._seeking = seeking
        self._telling = telling
        self._sync = sync
        self._loop = asyncio.get_running_loop()

    async def cancel_there(self, left: Left) -> None:
        """Tell a GPU that what it runs on its own was cancelled."""
        config = self._others.config_of(left.on) if left.on else self._lane.config
        await cancel_there(left, config, self._mirror, self._call)

    async def run(self, attempt: Attempt, handle: Handle) -> Move:
        """How it ended. The slot is free when this returns, or held back until its GPU does not use it."""
        try:
            if attempt.remote and attempt.job.at != handle.upstream.member:
                handle.release(completed=False)
                try:
                    async with asyncio.timeout(self._lane.config.max_processing_time):
                        followed = await self._seeking.slots_of(attempt.job.on).at(attempt.job.at)
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

    def _give_up(self, attempt: Attempt, handle: Handle) -> None:
        on = attempt.job.on
        sync = self._others.sync_of(on) if on else self._sync
        if sync is None:
            handle.release(completed=False)
        else:
            sync.give_up(handle, attempt.job.id, attempt.began)

    async def _run(self, attempt: Attempt, handle: Handle) -> Move:
        job, upstream, given = attempt.job, handle.upstream, orjson.loads(attempt.job.written)
        config = self._config_of(job, given)
        attempt.member, attempt.runs_on = upstream.member, True
        attempt.began = self._loop.time()

        async def note(job: Claimed, remote: str) -> bool:
            attempt.remote = remote
            return await self._telling.remote(job, remote)

        verdict = await run_attempt(
            job, orjson.dumps(given["payload"]), upstream, config, self._call, note, self._telling.reported
        )
        attempt.runs_on = verdict.runs_on
        move = self._move(job, verdict)
        if verdict.kind == "busy":
            self._seeking.slots_of(job.on).was_busy(upstream.member)
        self._note_end(attempt, move.name, verdict.error)
        return move

    def _note_end(self, attempt: Attempt, outcome: str, error: str = "") -> None:
        job = attempt.job
        self._counts.ended(job.model, outcome, self._loop.time() - attempt.began)
        fields = {"model": job.model, "job": job.id, "attempt": job.token, "upstream": attempt.member}
        frequent.info("job_attempt", **fields, ran_on=job.on or None, outcome=outcome, error=error or None)

    def _move(self, job: Claimed, verdict: Verdict) -> Move:
        config, jitter = self._config_of(job, orjson.loads(job.written)), self._rng.uniform(-1, 1)
        fallback = next_after(job.on, self._lane.config.fallback_models, self._seeking.has_gpu)
        return move_of(verdict, config, job.failures, jitter, fallback)

    def _config_of(self, job: Claimed, given: Mapping[str, Any]) -> ModelConfig:
        """What holds for a job that was submitted so, where it is."""
        config = self._others.config_of(job.on) if job.on else self._lane.config
        retries = given.get("max_retries")
        return config if retries is None else config.model_copy(update={"max_retries": retries})

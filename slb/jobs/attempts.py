"""One attempt at a job, from the slot that it has until that slot is free, or held back."""

import asyncio
import math
from collections.abc import Awaitable
from random import Random
from typing import Any

import orjson
import structlog

from slb.balance.upstream import Handle, LiveUpstream
from slb.control.job_replies import Left
from slb.control.jobs import JobLane
from slb.job import Claimed, ModelConfig, read_submitted
from slb.jobs.attempt import Notes, follow_attempt, poll_of, run_attempt
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


class _Damaged(Exception):
    """What was submitted is no submission any more: another program has written into it."""


class Attempt:
    """`remote`: the GPU's id of what it runs, `member`: where; `began`: when it was called. `is_dropped`: Redis has
    ended the attempt already; `is_written`: it has ended here, and its outcome is on its way; `runs_on`: its GPU
    may run it all the same; `retries`: how many its caller allows, None where that is the model's to say; `slot`:
    what waits for its slot, of one that runs at its GPU without."""

    def __init__(self, job: Claimed, task: "asyncio.Task[None] | None") -> None:
        self.job = job
        self.task = task
        self.remote = job.remote
        self.member = job.at
        self.began = 0.0
        self.retries: int | None = None
        self.is_dropped = self.is_written = self.runs_on = False
        self.slot: asyncio.Task[Handle | None] | None = None

    @property
    def is_slotless(self) -> bool:
        """Whether it runs at its GPU and nothing counts it there."""
        return self.slot is not None and not self.slot.done()

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
        self._notes = Notes(telling.remote, telling.reported, telling.heard)
        self._loop = asyncio.get_running_loop()

    async def cancel_there(self, left: Left) -> None:
        """Tell a GPU that what it runs on its own was cancelled."""
        config = self._others.config_of(left.on) if left.on else self._lane.config
        await cancel_there(left, config, self._mirror, self._call)

    async def run(self, attempt: Attempt, handle: Handle, since: float) -> Move:
        """How it ended, with a slot that is held since then. When this returns the slot is free, or held back until
        its GPU does not use it; behind a job that was completed the next one may have it."""
        kept_since = -math.inf
        try:
            move = await self._judged(attempt, self._run(attempt, handle.upstream))
            if move.name == "complete":
                kept_since = since
            return move
        finally:
            self._let_go(attempt, handle, kept_since)

    async def follow(self, attempt: Attempt) -> Move:
        """How it ended, of one that a GPU runs on its own since an instance before began it.

        No slot is waited for. The GPU runs the job with a slot or without, and whoever has taken the slot meanwhile
        does not change that; to ask how it goes takes nothing from anybody. The slot is waited for beside, so that
        what is in flight is true again as soon as it can be. Until then the ledger counts one job less than the GPU
        runs, as it has since it took the slot from the dead instance, and the GPU answers what is too much for it
        with 503. That there is one follower is the claim's to see to, as with each attempt, and not the slot's."""
        job = attempt.job
        slot = attempt.slot = self._loop.create_task(self._seeking.slots_of(job.on).at(job.at))
        try:
            return await self._judged(attempt, self._follow(attempt))
        finally:
            slot.cancel()
            await asyncio.wait((slot,))
            if not slot.cancelled() and (error := slot.exception()) is not None:
                _log.error("job_broke", model=job.model, job=job.id, exc_info=error)
            elif not slot.cancelled() and (handle := slot.result()) is not None:
                self._let_go(attempt, handle, -math.inf)

    async def _judged(self, attempt: Attempt, work: Awaitable[Move]) -> Move:
        try:
            return await work
        except asyncio.CancelledError:  # ended in Redis, or this instance leaves
            if attempt.is_dropped and attempt.began:
                self._note_end(attempt, "dropped")
            return Move("back", b"")
        except _Damaged:
            return self._move(attempt, Verdict("hopeless", error="what was submitted is damaged in Redis"))
        except Exception as error:  # noqa: BLE001 -- a job ends, whatever slb fails at
            job = attempt.job
            _log.exception("job_broke", model=job.model, job=job.id)
            return self._move(attempt, Verdict("failed", error=f"slb failed: {error!r}"))

    def _let_go(self, attempt: Attempt, handle: Handle, since: float) -> None:
        on = attempt.job.on
        if not attempt.runs_on:
            self._seeking.slots_of(on).ended(handle, since)
            return
        sync = self._others.sync_of(on) if on else self._sync
        if sync is None:
            handle.release(completed=False)
        else:
            poll = poll_of(attempt.job, attempt.remote, handle.upstream, self._config_of(attempt))
            sync.give_up(handle, attempt.job.id, attempt.began, poll)

    async def _run(self, attempt: Attempt, upstream: LiveUpstream) -> Move:
        job, payload = attempt.job, self._begin(attempt, upstream.member)

        async def note(job: Claimed, remote: str) -> bool:
            attempt.remote = remote
            return await self._telling.remote(job, remote)

        config = self._config_of(attempt)
        verdict = await run_attempt(
            job, orjson.dumps(payload), upstream, config, self._call, self._notes._replace(remote=note)
        )
        return self._ended(attempt, verdict, self._left_alone(job, verdict, upstream.member))

    def _left_alone(self, job: Claimed, verdict: Verdict, member: str) -> float:
        """For how many seconds. A job for which GPUs are busy again and again says nothing of them."""
        slots = self._seeking.slots_of(job.on)
        if verdict.asks is not None and job.busy:
            return 0.0
        if verdict.kind == "busy" or verdict.is_its_own:
            return slots.was_busy(member, verdict.asks or 0.0)
        slots.had_time(member)
        return 0.0

    async def _follow(self, attempt: Attempt) -> Move:
        job, upstream = attempt.job, self._mirror.upstream(attempt.job.at)
        self._begin(attempt, job.at)
        if upstream is None or not self._seeking.slots_of(job.on).is_registered(job.at):
            attempt.runs_on = False
            return Move("retry", b"its upstream left while it ran there")
        config, verdict = self._config_of(attempt), Verdict("unknown")
        if config.model_type == "async":  # else it was, when this was begun
            verdict = await follow_attempt(job, upstream, config, self._call, self._notes)
        if verdict.kind != "unknown":
            return self._ended(attempt, verdict)
        await self._telling.remote(job, "")  # it begins anew, with a slot
        return self._ended(attempt, Verdict("busy", error="its upstream does not know it any more"))

    def _begin(self, attempt: Attempt, member: str) -> Any:
        """The payload. What was submitted is read once: it may be 1 MiB. Raises _Damaged."""
        given = read_submitted(attempt.job.written)
        if "payload" not in given:
            raise _Damaged
        retries = given.get("max_retries")
        attempt.retries = retries if isinstance(retries, int) else None
        attempt.member, attempt.runs_on, attempt.began = member, True, self._loop.time()
        return given["payload"]

    def _ended(self, attempt: Attempt, verdict: Verdict, left_alone: float = 0.0) -> Move:
        attempt.runs_on = verdict.runs_on
        move = self._move(attempt, verdict, left_alone)
        self._note_end(attempt, move.name, verdict.error)
        return move

    def _note_end(self, attempt: Attempt, outcome: str, error: str = "") -> None:
        job = attempt.job
        self._counts.ended(job.model, outcome, self._loop.time() - attempt.began)
        fields = {"model": job.model, "job": job.id, "attempt": job.token, "upstream": attempt.member}
        frequent.info("job_attempt", **fields, ran_on=job.on or None, outcome=outcome, error=error or None)

    def _move(self, attempt: Attempt, verdict: Verdict, left_alone: float = 0.0) -> Move:
        job, jitter = attempt.job, self._rng.uniform(-1, 1)
        fallback = next_after(job.on, self._lane.config.fallback_models, self._seeking.has_gpu)
        return move_of(verdict, self._config_of(attempt), job, jitter, fallback, left_alone)

    def _config_of(self, attempt: Attempt) -> ModelConfig:
        """What holds for the job, where it is, now."""
        on, retries = attempt.job.on, attempt.retries
        config = self._others.config_of(on) if on else self._lane.config
        return config if retries is None else config.model_copy(update={"max_retries": retries})

"""The jobs of one model, as this instance runs them: a slot first, then the job that is next, then its end."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from random import Random
from typing import Any, NamedTuple

import structlog

from slb.admission.gates import Gates
from slb.balance.upstream import Handle
from slb.control.job_replies import Pulse
from slb.control.jobs import JobLane
from slb.errors import RedisUnavailable, ScriptFailed
from slb.job import Claimed
from slb.jobs.attempts import Attempt, Attempts
from slb.jobs.gpu_call import Caller
from slb.jobs.lock_sync import LockSync
from slb.jobs.outcomes import Kept, Outcomes
from slb.jobs.seeking import Others, Seeking
from slb.jobs.telling import Telling
from slb.jobs.verdict import Move
from slb.observe.jobs import JobCounts
from slb.routing.mirror import Mirror

_ADOPTED_AT_ONCE = 64
"""Jobs that are asked for at once, to be followed: of very many, each instance takes some."""

_log = structlog.get_logger("slb.jobs")


class Means(NamedTuple):
    """What the dispatchers of all models run jobs with, at one instance. `look` asks GPUs what is no evidence about
    them; `outcomes` are kept on this machine's disk."""

    gates: Gates
    mirror: Mirror
    call: Caller
    look: Caller
    counts: JobCounts
    rng: Random
    outcomes: Outcomes


class Dispatcher:
    """`on_end` is called with each job whose attempt has ended here; `others` knows the other models, at whose GPUs
    jobs go on."""

    def __init__(self, lane: JobLane, means: Means, on_end: Callable[[Claimed], None], others: Others) -> None:
        gates, mirror, call, look, counts, rng, outcomes = means
        self.lane = lane
        self._mirror = mirror
        self._counts = counts
        self._on_end = on_end
        self._seeking = Seeking(lane, gates, mirror, others, self._may_begin, self._slot)
        self._telling = Telling(lane, outcomes, counts, rng)
        self._sync = LockSync(lane, mirror, look, self._seeking.slots_of(""), counts, rng)
        parts = others, self._seeking, self._telling, self._sync
        self._attempts = Attempts(lane, mirror, call, counts, rng, *parts)
        self._loop = asyncio.get_running_loop()
        self._running: dict[tuple[str, str], Attempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._dropped: set[tuple[str, str]] = set()
        self._owed: set[asyncio.Task[None]] = set()
        self._adopting: Counter[str] = Counter()
        self._is_leaving = False

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
    def is_idle(self) -> bool:
        """Whether nothing runs here."""
        return not self._tasks and not self._sync.holds_any

    def attempts(self) -> Iterable[tuple[str, str]]:
        """Id and token of what was claimed here, until Redis has confirmed its end."""
        return list(self._running)

    def slotless(self, member: str) -> int:
        """Attempts that run at `member` without a slot there."""
        return sum(each.is_slotless and each.member == member for each in self._running.values())

    def pulse(self, pulse: Pulse) -> None:
        """What stands in each reply of Redis: how many wait, and what of ours was ended there."""
        self._dropped = set(pulse.dropped)
        for key in pulse.dropped:
            if key in self._running:
                self._running[key].drop()
        for left in pulse.left:
            self._start(self._attempts.cancel_there(left))
        self._follow(pulse.adrift)
        self._seeking.queued(pulse.queued)

    def seek(self) -> None:
        """What holds for the model may have changed."""
        self._seeking.seek()

    def resume(self, outcomes: Iterable[Kept]) -> None:
        """Tell Redis how attempts ended here before this process began. Until it knows, no job begins: it might be
        one of them."""
        for each in outcomes:
            self._owed.add(self._start(self._telling.outcome(each.job, each.move, each.ended)))

    def _may_begin(self) -> bool:
        return not self._is_leaving and not self._owed

    async def leave(self, seconds: float) -> None:
        """Begin nothing more; what runs has so long to end, and is given back then."""
        self._is_leaving = True
        self.seek()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        self._telling.is_leaving = True
        self._sync.leave()
        written = {attempt.task for attempt in self._running.values() if attempt.is_written}
        for task in self._tasks - written:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- one attempt

    def _slot(self, on: str, handle: Handle, since: float) -> None:
        self._start(self._begin(handle, on, since))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task in self._owed:
            self._owed.discard(task)
            self.seek()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("job_broke", model=self.lane.model, exc_info=error)

    async def _begin(self, handle: Handle, on: str, since: float) -> None:
        """Take the next job for a slot that is held since then."""
        sources = self._seeking.sources_of(on)
        try:
            job = await self.lane.claim(handle.upstream.member, on, sources)
        except (RedisUnavailable, ScriptFailed):
            job = None
        except BaseException:
            handle.release(completed=False)
            raise
        if job is None:
            handle.release(completed=False)
            self._seeking.none_waits(sources)
            return
        if (job.id, job.token) in self._dropped:  # it was cancelled in the same step in which it was claimed
            handle.release(completed=False)
            return
        await self._until_ended(job, lambda attempt: self._attempts.run(attempt, handle, since))

    def _follow(self, adrift: Mapping[str, int]) -> None:
        """Adopt what GPUs run on their own and nobody follows, in a paused model too: it has begun already. Other
        instances take their share meanwhile; the next reply says how many are left. Where they run is known once
        there is a table."""
        if self._may_begin() and self._mirror.ready:
            for on, number in adrift.items():
                for _ in range(min(number, _ADOPTED_AT_ONCE) - self._adopting[on]):
                    self._adopting[on] += 1
                    self._start(self._adopt(on))

    async def _adopt(self, on: str) -> None:
        try:
            job = await self.lane.adopt(on)
        except (RedisUnavailable, ScriptFailed):
            job = None
        finally:
            self._adopting[on] -= 1
        if (
            job is not None and (job.id, job.token) in self._dropped
        ):  # cancelled in the step in which it was claimed
            await self._attempts.cancel_there(Attempt(job, None).left)
        elif job is not None:
            await self._until_ended(job, self._attempts.follow)

    async def _until_ended(self, job: Claimed, run: Callable[[Attempt], Awaitable[Move]]) -> None:
        self._counts.began(job)
        attempt = self._running[job.id, job.token] = Attempt(job, asyncio.current_task())
        try:
            move = await run(attempt)
            attempt.is_written = True
            if attempt.is_dropped:
                await self._attempts.cancel_there(attempt.left)
            else:
                await self._telling.outcome(job, move)
        finally:
            del self._running[job.id, job.token]
        self._on_end(job)

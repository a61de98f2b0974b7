"""Redis is told of the attempts of one model, for as long as it takes."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random

import structlog

from slb.control.jobs import JobLane
from slb.errors import RedisUnavailable, ScriptFailed
from slb.job import Claimed
from slb.jobs.outcomes import Outcomes
from slb.jobs.verdict import Move, Verdict
from slb.observe.jobs import JobCounts

_UNWRITTEN = 0.25
"""Seconds before an outcome is written again that Redis did not take."""

_log = structlog.get_logger("slb.jobs")


def note_word(counts: JobCounts, model: str, verdict: Verdict) -> None:
    """A GPU's status that is not known is logged once a model: the job goes on, maybe until its time is over."""
    if verdict.new_word is not None and counts.is_new_word(model, verdict.new_word):
        _log.warning("job_status_unknown", model=model, status=verdict.new_word)


class Telling:
    """`is_leaving`: an outcome that Redis does not take now is left to the next instance, on the disk. `clock`
    gives seconds since the epoch, since that instance may be of another process."""

    def __init__(
        self,
        lane: JobLane,
        outcomes: Outcomes,
        counts: JobCounts,
        rng: Random,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._lane = lane
        self._outcomes = outcomes
        self._counts = counts
        self._rng = rng
        self._clock = clock
        self.is_leaving = False

    async def remote(self, job: Claimed, remote: str) -> bool:
        """The GPU's id of what it runs, which goes on meanwhile. Whether the attempt is still this instance's."""
        while True:
            try:
                return await self._lane.note_remote(job, remote)
            except (RedisUnavailable, ScriptFailed):
                await self._pause()

    async def reported(self, job: Claimed) -> str | None:
        """What its GPU has told by itself; None too while Redis is away."""
        try:
            return await self._lane.reported(job.id)
        except (RedisUnavailable, ScriptFailed):
            return None

    async def heard(self, job: Claimed, verdict: Verdict) -> None:
        """What its GPU answers of an attempt that goes on. While Redis is away how far it is gets lost."""
        note_word(self._counts, job.on or job.model, verdict)
        if verdict.progress:
            with suppress(RedisUnavailable, ScriptFailed):
                await self._lane.note_progress(job, verdict.progress)

    async def outcome(self, job: Claimed, move: Move, ended: float | None = None) -> None:
        """How an attempt ended, at `ended` by the clock, or now: it is not lost because Redis is away."""
        ended = self._clock() if ended is None else ended
        while True:
            try:
                is_taken = await self._lane.finish(job, *move, ago=self._clock() - ended)
            except (RedisUnavailable, ScriptFailed):
                self._outcomes.keep(job, move, ended)
                if self.is_leaving:
                    return
                await self._pause()
            else:
                break
        self._outcomes.written(job)
        if not is_taken:
            self._counts.stale[job.model] += 1
            _log.warning("job_stale", model=job.model, job=job.id, attempt=job.token, outcome=move.name)

    async def _pause(self) -> None:
        await asyncio.sleep(_UNWRITTEN * self._rng.uniform(1, 2))

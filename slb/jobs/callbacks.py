"""The callbacks of one instance: those that are due are taken from Redis, delivered, and noted there."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from random import Random
from typing import Any, Protocol

import orjson
import structlog

from slb.control.job_replies import Pulse
from slb.control.jobs import JobLane
from slb.errors import RedisUnavailable, ScriptFailed
from slb.job import JobShown
from slb.jobs.posting import MOST_AT_ONCE, WITHIN
from slb.jobs.receivers import Receivers, receiver_of
from slb.jobs.webhook import Reply, headers_of, id_of, step_of
from slb.observe import frequent
from slb.observe.jobs import JobCounts

HOLD = 2 * WITHIN
"""Seconds for which a callback is left to the instance that took it; then it is due again."""
_MOST_TAKEN = 4
"""In one reply: each may have a payload and a result of 1 MiB."""
_UNWRITTEN = 0.25
"""Seconds before an outcome is written again that Redis did not take."""

_log = structlog.get_logger("slb.jobs")


class Poster(Protocol):
    """Sends one callback."""

    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply: ...

    async def aclose(self) -> None: ...


class Callbacks:
    """Delivers at least once: an instance that dies between a delivery and its note in Redis leaves the callback to
    another, which delivers it once more. `shown` makes the body of a job; `keys` sign it; `clock` gives seconds
    since the epoch."""

    def __init__(
        self,
        post: Poster,
        shown: Callable[[JobShown], Any],
        keys: Collection[bytes],
        counts: JobCounts,
        rng: Random,
        clock: Callable[[], float] = time.time,
        hold: float = HOLD,
    ) -> None:
        self.keys = keys
        self._post = post
        self._shown = shown
        self._counts = counts
        self._rng = rng
        self._clock = clock
        self._hold = hold
        self._receivers = Receivers()
        self._due: dict[JobLane, None] = {}
        self._has_due = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_leaving = False
        self._loop = asyncio.get_running_loop()

    def pulse(self, lane: JobLane, pulse: Pulse) -> None:
        """What stands in a reply of Redis: whether something of a model is due, which may be a callback. What tells
        Redis of a job's end has such a reply, and each lane has one every second at least."""
        if pulse.due == 0:
            self._due.setdefault(lane)
            self._has_due.set()

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            await self._has_due.wait()
            self._has_due.clear()
            await self._take()

    async def leave(self, seconds: float) -> None:
        """Take nothing more; what is under way has so long to end. The rest is due again when its hold is over."""
        self._is_leaving = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._post.aclose()

    async def _take(self) -> None:
        """As many as there is room for, of the models by turns. Where there is none, the next delivery that ends
        makes some; where more are due than were taken, the reply has said so."""
        for lane in list(self._due):
            room = min(_MOST_TAKEN, MOST_AT_ONCE - len(self._tasks))
            if room <= 0 or self._is_leaving:
                return
            try:
                taken = await lane.due_callbacks(self._hold, room)
            except (RedisUnavailable, ScriptFailed):  # the lane says so, and its next reply says what is due
                taken = []
            self._due.pop(lane, None)
            if len(taken) >= room:
                self._due[lane] = None  # behind the others
            for job in () if self._is_leaving else taken:  # others take them when the hold is over
                self._start(lane, job)

    def _start(self, lane: JobLane, job: JobShown) -> None:
        task = asyncio.create_task(self._deliver(lane, job), name=f"callback of {job.id}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._due:
            self._has_due.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("job_callback_broke", exc_info=error)

    async def _deliver(self, lane: JobLane, job: JobShown) -> None:
        reply = await self._sent(job)
        if isinstance(reply, float):
            await self._write(partial(lane.put_off_callback, job.id, reply))
            return
        now = self._clock()
        step = step_of(reply, job.callback_attempts, now - job.ended, now, self._rng.uniform(-1, 1))
        self._counts.called_back(job.model, step.outcome, now - job.ended)
        fields = {"model": job.model, "job": job.id, "attempt": job.callback_attempts + 1, "outcome": step.outcome}
        frequent.info("job_callback", **fields, status=reply.status or None, error=step.error or None)
        await self._write(partial(lane.callback_sent, job, step.error, step.again))

    async def _sent(self, job: JobShown) -> Reply | float:
        """The answer; or where its receiver has no place for it, for how many seconds it is put off."""
        try:
            url, group = orjson.loads(job.written)["callback_url"], (job.model, job.owner)
            receiver, begun = receiver_of(url), self._loop.time()
            if seconds := self._receivers.put_off(receiver, group, begun):
                return seconds
            body = orjson.dumps(self._shown(job._replace(callback_attempts=0, callback_error="")))
            headers, reply = headers_of(id_of(job), int(self._clock()), body, self.keys), None
            sent = self._receivers.begins(receiver, group)
            try:
                reply = await self._post(url, headers, body)
            finally:
                has_answered = reply is not None and reply.status != 0
                now = self._loop.time()
                self._receivers.ended(sent, now, now - begun if has_answered else None)
            return reply
        except Exception as error:  # noqa: BLE001 -- it is tried again by the schedule, and not for ever
            _log.exception("job_callback_broke", model=job.model, job=job.id)
            return Reply(0, f"slb failed: {error!r}")

    async def _write(self, write: Callable[[], Awaitable[object]]) -> None:
        """Until Redis has taken it, or others may have taken the callback."""
        until = self._loop.time() + self._hold
        while self._loop.time() < until:
            try:
                await write()
                return
            except (RedisUnavailable, ScriptFailed):
                await asyncio.sleep(_UNWRITTEN)

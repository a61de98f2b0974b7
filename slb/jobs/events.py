"""What becomes of jobs, told to those who follow one of them or all of a model: one subscription of this instance
for all of them, and what a message did not bring is read."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog

from slb.control.connection import Connection
from slb.control.job_news import follow_jobs
from slb.control.jobs import JobLane
from slb.errors import DRAINING, OVERLOADED, UNKNOWN_JOB, RedisUnavailable, Refused, ScriptFailed
from slb.job import ENDED, MISSED, JobEvent, JobShown
from slb.jobs.finding import lane_of
from slb.jobs.models import Models
from slb.lifecycle import set_within

_MOST_STREAMS = 1_000
_MOST_BYTES = 1 << 18
"""That wait for one who follows: one who reads no faster is dropped."""
_MOST_KNOWN = 1_000
"""Jobs that one who follows a model has heard of, and that have not ended: they are read again after a cut."""
_MOST_READ = 8192
"""Bytes of a result, and of what was submitted, that an event has."""
_PERIOD = 5.0
"""Seconds between two looks at what is followed."""
_WATCHED = 4 * _PERIOD
"""Seconds for which Redis is asked to publish."""
_LOOKS = 3
"""Of these, one in so many reads each job that is followed; where Redis lets nobody subscribe, each does."""
_SUBSCRIBED = 1.0
"""Seconds that a first stream waits for the subscription."""

_log = structlog.get_logger("slb.jobs")


class Stream:
    """Of one job, or, with `id` empty, of all of a model."""

    def __init__(self, model: str, id_: str) -> None:
        self.model = model
        self.id = id_
        self.on_drop: Callable[[], None] = lambda: None
        self.has_ended = False
        self._known: dict[str, int] = {}
        self._waiting: deque[JobEvent] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()

    @property
    def open_jobs(self) -> list[str]:
        """Those it has told of, and that have not ended."""
        return list(self._known)

    def tell(self, job: JobShown, was_read: bool = False) -> None:
        """The job is in that state now. What is not newer than what was told is not told again. `was_read`: it was
        asked for a moment ago, and its end may have been told since."""
        if self.has_ended or job.moves <= self._known.get(job.id, -1):
            return
        if was_read and not self.id and job.id not in self._known:
            return
        size = len(job.written) + len(job.result) + len(job.progress) + len(job.error) + 500
        self._put(JobEvent(job.state, str(job.moves), job.model, job, size))
        if job.state not in ENDED:
            self._known[job.id] = job.moves
            if len(self._known) > _MOST_KNOWN:
                del self._known[next(iter(self._known))]
        elif self.id:
            self.end()
        else:
            self._known.pop(job.id, None)

    def tell_missed(self) -> None:
        """Moves may have been missed, of jobs that nothing is known of."""
        if not self.id and not self.has_ended:
            self._put(JobEvent(MISSED, "", self.model, None, 100))

    def end(self) -> None:
        """After what waits there is nothing more."""
        self.has_ended = True
        self._wake.set()

    async def next(self, seconds: float) -> JobEvent | None:
        """The next one; None where none has come for so long, and at the end."""
        if not self._waiting and not self.has_ended:
            self._wake.clear()
            await set_within(self._wake, seconds)
        if not self._waiting:
            return None
        event = self._waiting.popleft()
        self._bytes -= event.size
        return event

    def _put(self, event: JobEvent) -> None:
        self._waiting.append(event)
        self._bytes += event.size
        if self._bytes > _MOST_BYTES:
            _log.info("job_events_dropped", model=self.model, job=self.id or None, events=len(self._waiting))
            self._waiting.clear()
            self.end()
            self.on_drop()
        self._wake.set()


class _Followed:
    """A model that somebody follows: the streams of each of its jobs, and under "" those of all."""

    def __init__(self, lane: JobLane) -> None:
        self.lane = lane
        self.streams: dict[str, set[Stream]] = {}
        self.has_begun = self.has_missed = False
        """`has_begun`: its moves are published since."""

    def tell(self, job: JobShown, was_read: bool = False) -> None:
        for id_ in (job.id, ""):
            for each in list(self.streams.get(id_, ())):
                each.tell(job, was_read)

    async def read(self) -> None:
        """Tell of each job that is not known to have ended, as it is now."""
        whole = self.streams.get("", ())
        ids = {*self.streams, *(id_ for each in whole for id_ in each.open_jobs)} - {""}
        for id_ in ids:
            job = await self.lane.show(id_, _MOST_READ)
            if job is not None:
                self.tell(job, was_read=True)
            else:  # its time is over, or it was removed
                for each in self.streams.get(id_, ()):
                    each.end()


class JobEvents:
    """Of the jobs of this instance's `models`."""

    def __init__(self, connection: Connection, models: Models) -> None:
        self._connection = connection
        self._models = models
        self._followed: dict[str, _Followed] = {}
        self._count = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._subscribed = asyncio.Event()
        self._look = asyncio.Event()
        self._is_closed = False

    @asynccontextmanager
    async def follow(self, model: str, id_: str) -> AsyncIterator[Stream]:
        """The state of a job and each one it comes to, until it has ended; or, without an id, each that any job of
        the model comes to. Raises Refused, RedisUnavailable, ScriptFailed."""
        if self._is_closed:
            raise Refused(DRAINING, "this instance is about to stop")
        if self._count >= _MOST_STREAMS:
            raise Refused(OVERLOADED, f"{_MOST_STREAMS} streams of events are open here, and no more may be")
        stream = None
        self._count += 1
        try:
            lane = await self._lane_of(model, id_)
            stream = self._entered(lane, id_)
            await self._watch(lane)
            if id_ and (job := await lane.show(id_, _MOST_READ)) is not None:
                stream.tell(job)
            yield stream
        finally:
            self._count -= 1
            if stream is not None:
                self._leave(stream)

    def close(self) -> None:
        """End all streams, and take no more."""
        self._is_closed = True
        for followed in self._followed.values():
            for streams in followed.streams.values():
                for each in streams:
                    each.end()

    async def _lane_of(self, model: str, id_: str) -> JobLane:
        lane = await lane_of(self._models, id_, model)
        if lane is None or (id_ and await lane.show(id_, 0) is None):
            raise Refused(UNKNOWN_JOB, f"{id_!r} is no job, or ended longer ago than its model's result_ttl")
        return lane

    def _entered(self, lane: JobLane, id_: str) -> Stream:
        stream = Stream(lane.model, id_)
        followed = self._followed.setdefault(lane.model, _Followed(lane))
        followed.streams.setdefault(id_, set()).add(stream)
        return stream

    async def _watch(self, lane: JobLane) -> None:
        if not self._tasks:
            work = (follow_jobs(self._connection, self._moved, self._began), self._keep_looking())
            self._tasks = [asyncio.create_task(each, name="job events") for each in work]
        await set_within(self._subscribed, _SUBSCRIBED)
        await lane.watch(_WATCHED)
        self._followed[lane.model].has_begun = True

    def _leave(self, stream: Stream) -> None:
        stream.end()
        followed = self._followed[stream.model]
        followed.streams[stream.id].discard(stream)
        if not followed.streams[stream.id]:
            del followed.streams[stream.id]
        if not followed.streams:
            del self._followed[stream.model]
        if not self._followed:
            for task in self._tasks:
                task.cancel()
            self._tasks.clear()
            self._subscribed.clear()

    def _moved(self, job: JobShown) -> None:
        if (followed := self._followed.get(job.model)) is not None:
            followed.tell(job)

    def _began(self) -> None:
        """Messages come from now on, and those before it have been missed."""
        for followed in self._followed.values():
            followed.has_missed = followed.has_begun
        self._subscribed.set()
        self._look.set()

    async def _keep_looking(self) -> None:
        looks = 0
        while True:
            await set_within(self._look, _PERIOD)
            self._look.clear()
            looks += 1
            reads = looks % _LOOKS == 0 or not self._subscribed.is_set()
            for followed in list(self._followed.values()):
                try:
                    await self._look_at(followed, reads)
                except (RedisUnavailable, ScriptFailed) as error:
                    _log.debug("job_events_not_read", model=followed.lane.model, error=str(error))

    async def _look_at(self, followed: _Followed, reads: bool) -> None:
        was_watched = await followed.lane.watch(_WATCHED)
        has_missed = followed.has_missed or (followed.has_begun and not was_watched)
        followed.has_begun, followed.has_missed = True, False
        if has_missed:
            for each in followed.streams.get("", ()):
                each.tell_missed()
        if has_missed or reads:
            await followed.read()

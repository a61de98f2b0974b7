"""Instances' lanes to the jobs of one model, and what they receive."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from slb.control.ask_lane import AskTiming
from slb.control.connection import Connection
from slb.control.job_replies import Left, Pulse
from slb.control.jobs import JobLane
from slb.job import Claimed, Submission
from slb.observe.metrics import Metrics
from tests.support.valkey import Valkey

MODEL = "flux"
AT = "10.0.0.1:80"
QUICK = AskTiming(beat=0.05, deadline=5.0, backoff=0.02)


class Here:
    """One instance's lane, and what it received."""

    def __init__(
        self,
        connection: Connection,
        holder: str,
        lease: float,
        timing: AskTiming,
        needs_replica: bool = False,
        dispatches: bool = True,
    ) -> None:
        self.running: list[tuple[str, str]] = []
        self.pulses: list[Pulse] = []
        self.dropped: list[tuple[str, str]] = []
        self.left: list[Left] = []
        self.task: asyncio.Task[None]
        self.lane = JobLane(
            connection,
            MODEL,
            holder,
            lambda: self.running,
            self._pulse,
            timing,
            lease,
            needs_replica,
            dispatches,
        )

    def _pulse(self, pulse: Pulse) -> None:
        self.pulses.append(pulse)
        self.dropped += pulse.dropped
        self.left += pulse.left

    async def submit(self, id_: str, priority: str = "normal", digest: str = "", **more: int) -> str:
        """What became of it."""
        job = Submission(
            MODEL,
            id_,
            priority,
            (digest or "same").ljust(32),
            b'{"payload":1}'.ljust(more.get("length", 0)),
            more.get("deadline", 0),
            bool(more.get("calls_back", 0)),
            bool(more.get("is_buffered", 0)),
        )
        done = await self.lane.submit(job)
        return "mismatch" if done is None else "new" if done.is_new else done.state

    async def claim(self, on: str = "", *sources: str) -> Claimed:
        """The next job; there has to be one."""
        job = await self.lane.claim(AT, on, sources or (on,))
        assert job is not None
        self.running.append((job.id, job.token))
        return job

    async def state(self, id_: str) -> str:
        shown = await self.lane.show(id_)
        return shown.state if shown is not None else "none"


Begin = Callable[..., Here]


@asynccontextmanager
async def beginning(valkey: Valkey, url: str = "") -> AsyncIterator[Begin]:
    """Makes instances: `begin("a")`; their lanes run until the end, or until `here.task` is cancelled."""
    async with AsyncExitStack() as stack:

        def make(
            holder: str = "a",
            lease: float = 10.0,
            timing: AskTiming = QUICK,
            url: str = url,
            needs_replica: bool = False,
            dispatches: bool = True,
        ) -> Here:
            connection = Connection(url or valkey.url, Metrics())
            stack.push_async_callback(connection.aclose)
            here = Here(connection, holder, lease, timing, needs_replica, dispatches)
            task = asyncio.create_task(here.lane.run())
            here.task = task

            async def end() -> None:
                task.cancel()
                await asyncio.wait([task])

            stack.push_async_callback(end)
            return here

        yield make

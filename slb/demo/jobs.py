"""The act with jobs: they are submitted once, a dispatcher dies, and all have their results."""

import asyncio
from collections import Counter
from typing import Any

from aiohttp import ClientError

from slb.demo.fleet import Fleet, Instance
from slb.demo.processes import DemoFailed

JOBS = 200
GPUS = ("g1", "g2")
MODEL = "demo"
_KILLED_AFTER = JOBS // 3
"""Jobs that have ended when the dispatcher is killed."""
_WITHIN = 30.0
_POLL = 0.02


class Jobs:
    """`results` counts them by the GPU that gave them, `repeated` the jobs that were begun more than once."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._front, self.killed = fleet.instances
        self.results: Counter[str] = Counter()
        self.repeated = 0

    async def submit(self) -> None:
        """GPUs start, and the first instance takes the jobs."""
        for name in GPUS:
            await self._fleet.gpu(name, MODEL)
        await self._fleet.until(
            "knows the GPUs", lambda found: len(found["members"]) == len(GPUS), f"/routes/jobs/{MODEL}"
        )
        bodies = [{"model": MODEL, "payload": {"number": number}, "job_id": _id(number)} for number in range(JOBS)]
        answer = await self._fleet.call(self._front, "POST", "/queue/submit-many", bodies)
        if refused := [each for each in answer["jobs"] if "error" in each]:
            raise DemoFailed(f"{len(refused)} jobs were not taken, the first: {refused[0]}")

    async def kill_one(self) -> int:
        """The second instance is killed while it runs jobs; how many, a moment before."""
        await self._until_ended(_KILLED_AFTER)
        while not (running := await self._running_at(self.killed)) and await self._ended() < JOBS:
            await asyncio.sleep(_POLL)
        await self._fleet.kill(self.killed)
        return running

    async def collect(self) -> None:
        """Once all have ended, each result is asked for."""
        await self._until_ended(JOBS)
        for number in range(JOBS):
            job = await self._fleet.call(self._front, "GET", f"/queue/jobs/{_id(number)}?model={MODEL}")
            if job["status"] == "completed":
                self.results[job["result"]["upstream"]] += 1
            self.repeated += job["attempts"] > 1

    async def _until_ended(self, count: int) -> None:
        try:
            async with asyncio.timeout(_WITHIN):
                while await self._ended() < count:
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            raise DemoFailed(f"after {_WITHIN:g} s fewer than {count} of {JOBS} jobs had ended") from None

    async def _ended(self) -> int:
        stats = (await self._fleet.call(self._front, "GET", "/queue/stats"))["models"].get(MODEL, {})
        return int(stats.get("ended", 0) + stats.get("dead_lettered", 0))

    async def _running_at(self, instance: Instance) -> int:
        try:
            status: Any = await self._fleet.call(instance, "GET", "/status")
        except (ClientError, OSError, TimeoutError):
            return 0
        return int(status["traffic"]["inflight"])


def _id(number: int) -> str:
    return f"job-{number:03}"

"""When a buffer looks again for jobs whose tasks are due, and whose queue it puts. The lane and Cloud Tasks are
stand-ins."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

from slb.config import Settings
from slb.errors import TasksFailed
from slb.job import Buffered, ModelConfig
from slb.jobs.buffer import TaskBuffer
from slb.jobs.cloud_tasks import TaskTiming
from slb.observe.jobs import JobCounts
from slb.routing.mirror import Mirror
from tests.support.waiting import soon

_MANY = 256


class Rig:
    """`due`: how many jobs are due at each look; `queues`: those that were put, with their slots; `asked`: whenever
    jobs were taken."""

    def __init__(self, *due: int, fails: bool = False) -> None:
        self.due, self.fails = list(due), fails
        self.made = 0
        self.queues: list[tuple[str, int]] = []
        self.asked: asyncio.Queue[int] = asyncio.Queue()
        self.mirror = Mirror(Settings().route_settings, Random(1))
        lane: Any = SimpleNamespace(
            model="flux", config=ModelConfig(buffer="cloud-tasks"), buffered=self._buffered, note_task=self._noted
        )
        tasks: Any = SimpleNamespace(create=self._create, put_queue=self._put, aclose=self._closed)
        model: Any = SimpleNamespace(lane=lane)
        timing = TaskTiming(look=1000.0)
        self.buffer = TaskBuffer(
            tasks,
            lambda: {"flux": model},
            self.mirror,
            JobCounts(),
            timing,
        )

    async def _buffered(self, hold: float, most: int) -> list[Buffered]:
        await asyncio.sleep(0)  # as a lane does: one that looks on and on holds nothing up
        due = self.due.pop(0) if self.due else 0
        self.asked.put_nowait(due)
        return [Buffered(f"job-{number}", "1", 0) for number in range(due)]

    async def _create(self, model: str, config: ModelConfig, job: Buffered, number: int) -> bool:
        if self.fails:
            raise TasksFailed(500, "away")
        self.made += 1
        return True

    async def _put(self, model: str, slots: int) -> None:
        self.queues.append((model, slots))

    async def _noted(self, *_: object) -> None: ...

    async def _closed(self) -> None: ...

    async def looks(self) -> list[int]:
        """What was due at each look that followed the first at once."""
        work = asyncio.create_task(self.buffer.run())
        self.buffer.wake()
        found = [await soon(self.asked.get())]
        for _ in range(50):  # each step of a look is one turn of the loop
            await asyncio.sleep(0)
        while not self.asked.empty():
            found.append(self.asked.get_nowait())
        work.cancel()
        await asyncio.wait((work,))
        return found


async def test_where_as_many_jobs_were_due_as_are_taken_at_once_others_are_looked_for() -> None:
    rig = Rig(_MANY, _MANY, 3, 5)
    assert await rig.looks() == [_MANY, _MANY, 3]
    assert rig.made == 2 * _MANY + 3


async def test_where_tasks_cannot_be_made_the_next_look_is_not_at_once() -> None:
    assert await Rig(_MANY, _MANY, fails=True).looks() == [_MANY]


async def test_a_queue_is_put_once_the_slots_of_its_model_are_known() -> None:
    rig = Rig(0)
    await rig.looks()
    assert rig.queues == []  # before the first table a model has no slots, as it seems
    rig.mirror.ready = True
    await rig.looks()
    assert rig.queues == [("flux", 0)]

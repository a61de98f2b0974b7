"""The backlog as it is drained without a router: 20 workers, each with batches of 10, and a restart after half an
hour.

The batch endpoint calls the models in turn, a batch is answered when its slowest call is, and what was in a batch
at the timeout is lost, to be begun again when the DAG restarts with all that is unsolved.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from random import Random

from bench.quota.book import Book, Entry
from bench.quota.work import Model, Setting, Work

FIRST_PAUSE, LAST_PAUSE = 1.0, 60.0
"""Seconds before a call that got a 429 is tried again."""


@dataclass(frozen=True)
class Dag:
    """How it is set up; `timeout` is seconds."""

    workers: int = 20
    batch: int = 10
    timeout: float = 1800.0


class AsIs:
    """Drains a backlog in that way. `metered`: models answer 429 to what is above their limit, whose bucket holds a
    whole minute, which suits the batches; else all calls go through."""

    def __init__(self, setting: Setting, book: Book, metered: bool, dag: Dag | None = None) -> None:
        self._backlog = setting.backlog
        self._book = book
        self._dag = dag or Dag()
        self._metered = metered
        self._models = cycle(setting.models)
        self._levels = {model.name: (float(model.limit), 0.0) for model in setting.models}
        self._rng = Random(setting.seed)
        self._solved: set[int] = set()

    async def drain(self) -> None:
        """One run of the DAG after another."""
        begun = asyncio.get_running_loop().time()
        while unsolved := [work for work in self._backlog if work.number not in self._solved]:
            async with asyncio.TaskGroup() as group:
                for first in range(self._dag.workers):
                    group.create_task(self._worker(unsolved[first :: self._dag.workers]))
        self._book.answered = len(self._solved)
        self._book.drained = self._book.exhausted = asyncio.get_running_loop().time() - begun

    async def _worker(self, share: Sequence[Work]) -> None:
        try:
            async with asyncio.timeout(self._dag.timeout):
                for first in range(0, len(share), self._dag.batch):
                    await self._solve(share[first : first + self._dag.batch])
        except TimeoutError:
            return  # the DAG restarts when all workers have ended

    async def _solve(self, batch: Sequence[Work]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for work in batch:
                    group.create_task(self._call(next(self._models), work))
        except asyncio.CancelledError:
            self._book.repeated += len(batch)
            raise
        self._solved.update(work.number for work in batch)

    async def _call(self, model: Model, work: Work) -> None:
        clock = asyncio.get_running_loop().time
        pause = FIRST_PAUSE
        while self._metered and not self._takes(model, work.tokens, clock()):
            await asyncio.sleep(self._rng.uniform(0.5, 1.0) * pause)
            pause = min(2 * pause, LAST_PAUSE)
        entry = self._book.enter(Entry(model.name, work.tokens, clock(), clock()))
        try:
            await asyncio.sleep(model.seconds(work))
        finally:
            entry.ended = clock()

    def _takes(self, model: Model, tokens: int, now: float) -> bool:
        level, since = self._levels[model.name]
        level = min(float(model.limit), level + (now - since) * model.rate)
        taken = level >= tokens
        self._levels[model.name] = (level - tokens if taken else level, now)
        return taken

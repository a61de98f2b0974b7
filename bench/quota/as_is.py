"""The backlog as it is drained today: 20 workers, each with batches of 10, and a restart after half an hour.

The Models Backend calls the models in turn, a batch is answered when its slowest call is, and what was in a batch
at the timeout is lost, to be begun again when the DAG restarts with all that is unsolved.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from random import Random
from typing import Protocol

from bench.quota.backlog import Work
from bench.quota.book import Book, Entry
from bench.quota.models import Model


@dataclass(frozen=True)
class Dag:
    """How it is set up; `timeout` is seconds."""

    workers: int = 20
    batch: int = 10
    timeout: float = 1800.0


class Gate(Protocol):
    """What the models do about their limits."""

    def takes(self, model: Model, tokens: int, now: float) -> bool: ...


class Open:
    """Nothing: all calls go through, however far above the limit."""

    def takes(self, model: Model, tokens: int, now: float) -> bool:
        return True


class Metered:
    """They answer 429 to what is above it. A bucket holds a whole minute, which suits the batches."""

    def __init__(self) -> None:
        self._levels: dict[str, tuple[float, float]] = {}

    def takes(self, model: Model, tokens: int, now: float) -> bool:
        level, since = self._levels.get(model.name, (float(model.limit), now))
        level = min(float(model.limit), level + (now - since) * model.rate)
        taken = level >= tokens
        self._levels[model.name] = (level - tokens if taken else level, now)
        return taken


class Backend:
    """The batch endpoint. A call that gets a 429 is tried again with growing pauses, as clients of models do."""

    FIRST_PAUSE, LAST_PAUSE = 1.0, 60.0

    def __init__(self, models: Sequence[Model], gate: Gate, book: Book, rng: Random) -> None:
        self._next = self._spread(models)
        self._gate = gate
        self._book = book
        self._rng = rng

    async def batch(self, works: Sequence[Work]) -> None:
        """Answers when all are answered."""
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(self._call(next(self._next), work))

    def _spread(self, models: Sequence[Model]) -> Iterator[Model]:
        return cycle(models)

    async def _call(self, model: Model, work: Work) -> None:
        clock = asyncio.get_running_loop().time
        pause = self.FIRST_PAUSE
        while not self._gate.takes(model, work.tokens, clock()):
            await asyncio.sleep(self._rng.uniform(0.5, 1.0) * pause / model.hurry)
            pause = min(2 * pause, self.LAST_PAUSE)
        entry = self._book.enter(Entry(model.name, work.tokens, clock(), clock()))
        try:
            await asyncio.sleep(model.seconds(work))
        finally:
            entry.ended = clock()


class AsIs:
    """Drains a backlog in that way."""

    def __init__(self, backend: Backend, dag: Dag, book: Book) -> None:
        self._backend = backend
        self._dag = dag
        self._book = book
        self._solved: set[int] = set()

    async def drain(self, backlog: Sequence[Work]) -> None:
        """One run of the DAG after another."""
        self._begun = asyncio.get_running_loop().time()
        while unsolved := [work for work in backlog if work.number not in self._solved]:
            async with asyncio.TaskGroup() as group:
                for first in range(self._dag.workers):
                    group.create_task(self._worker(unsolved[first :: self._dag.workers]))
        self._book.drained = self._book.exhausted = self._since()

    async def _worker(self, share: Sequence[Work]) -> None:
        try:
            async with asyncio.timeout(self._dag.timeout):
                for first in range(0, len(share), self._dag.batch):
                    await self._solve(share[first : first + self._dag.batch])
        except TimeoutError:
            return  # the DAG restarts when all workers have ended

    async def _solve(self, works: Sequence[Work]) -> None:
        try:
            await self._backend.batch(works)
        except asyncio.CancelledError:
            self._book.repeated += len(works)
            raise
        self._solved.update(work.number for work in works)
        self._book.answered += [self._since()] * len(works)

    def _since(self) -> float:
        return asyncio.get_running_loop().time() - self._begun

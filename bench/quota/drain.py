"""A DAG that drains a backlog: through the router, by single calls and with as many workers as it advises; and as
it is done without one, in batches. Both are cut off after half an hour and begun anew with what is unsolved."""

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import cycle
from random import Random

from bench.quota.book import Book, Entry
from bench.quota.work import Model, Setting, Work
from slb.quota.client import Router

RESTART_SECONDS = 1800.0
LOOK_SECONDS = 10.0  # between two looks at /advice
WORKERS, BATCH = 20, 10  # without a router
FIRST_PAUSE, LAST_PAUSE = 1.0, 60.0  # seconds before a call that got a 429 is tried again


class Drain:
    """Drains a backlog once, through the router. `timeout`: seconds after which the workers are stopped and begun
    anew, where their number is not set."""

    def __init__(self, router: Router, setting: Setting, book: Book, timeout: float = RESTART_SECONDS) -> None:
        self._router, self._book = router, book
        self._models = {model.name: model for model in setting.models}
        self._fixed = setting.callers
        self._timeout = timeout if setting.callers is None else None
        self._waiting, self._left = deque(setting.backlog), len(setting.backlog)
        self._workers: set[asyncio.Task[None]] = set()
        self._wanted = 0

    async def drain(self) -> None:
        """Until all is answered."""
        self._begun = asyncio.get_running_loop().time()
        while self._book.answered < self._left:
            try:
                async with asyncio.timeout(self._timeout):
                    await self._run()
            except TimeoutError:
                continue  # the DAG restarts
        self._book.drained = self._since()

    async def _run(self) -> None:
        """One run of the DAG, ended by its end or from outside."""
        try:
            while self._book.answered < self._left:
                await self._resize()
                if self._workers:
                    await asyncio.wait(self._workers, timeout=LOOK_SECONDS)
        finally:
            for worker in self._workers:
                worker.cancel()
            await asyncio.gather(*self._workers, return_exceptions=True)
            self._workers.clear()

    async def _resize(self) -> None:
        for worker in [each for each in self._workers if each.done()]:
            self._workers.discard(worker)
            worker.result()
        self._wanted = self._fixed or (await self._router.advice()).suggested_parallelism
        for _ in range(min(self._wanted - len(self._workers), len(self._waiting))):
            self._workers.add(asyncio.create_task(self._work()))

    async def _work(self) -> None:
        while self._waiting and len(self._workers) <= self._wanted:
            self._book.exhausted = self._since()
            work = self._waiting.popleft()
            try:
                async with self._router.admitted(work.estimate) as task:
                    await asyncio.sleep(self._models[task.model_backend_id].seconds(work))
                    task.actual_tokens = work.tokens
            except asyncio.CancelledError:
                self._waiting.append(work)
                self._book.repeated += 1
                raise
            self._book.answered += 1

    def _since(self) -> float:
        return asyncio.get_running_loop().time() - self._begun


class AsIs:
    """Drains a backlog without a router. The batch endpoint calls the models in turn, a batch is answered when its
    slowest call is, and what was in a batch at the timeout is lost. `metered`: models answer 429 to what is above
    their limit, whose bucket holds a whole minute, which suits the batches; else all calls go through."""

    def __init__(
        self,
        setting: Setting,
        book: Book,
        metered: bool,
        workers: int = WORKERS,
        batch: int = BATCH,
        timeout: float = RESTART_SECONDS,
    ) -> None:
        self._backlog, self._book, self._metered = setting.backlog, book, metered
        self._workers, self._batch, self._timeout = workers, batch, timeout
        self._models = cycle(setting.models)
        self._levels = {model.name: (float(model.limit), 0.0) for model in setting.models}
        self._rng = Random(setting.seed)
        self._solved: set[int] = set()

    async def drain(self) -> None:
        """One run of the DAG after another."""
        while unsolved := [work for work in self._backlog if work.number not in self._solved]:
            async with asyncio.TaskGroup() as group:
                for first in range(self._workers):
                    group.create_task(self._work(unsolved[first :: self._workers]))
        self._book.answered = len(self._solved)
        self._book.drained = self._book.exhausted = asyncio.get_running_loop().time()

    async def _work(self, share: Sequence[Work]) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                for first in range(0, len(share), self._batch):
                    await self._solve(share[first : first + self._batch])
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
        entry = self._book.enter(Entry(model.name, work.tokens, clock()))
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

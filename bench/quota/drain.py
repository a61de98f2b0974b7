"""A DAG that drains a backlog through the router: single calls, and as many workers as the router advises."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from bench.quota.book import Book
from bench.quota.work import Model, Work
from slb.quota.client import Router


@dataclass(frozen=True)
class Manner:
    """`timeout`: seconds after which the DAG's workers are stopped and begun anew, perhaps never. `look`: seconds
    between two looks at /advice. `workers`: so many whatever the advice, where it is not None."""

    timeout: float = 1800.0
    look: float = 10.0
    workers: int | None = None


class Drain:
    """Drains `backlog` once."""

    def __init__(self, router: Router, models: Sequence[Model], manner: Manner, book: Book) -> None:
        self._router = router
        self._models = {model.name: model for model in models}
        self._manner = manner
        self._book = book
        self._waiting: deque[Work] = deque()
        self._left = 0
        self._workers: set[asyncio.Task[None]] = set()
        self._wanted = 0

    async def drain(self, backlog: Sequence[Work]) -> None:
        """Until all is answered."""
        self._waiting.extend(backlog)
        self._left = len(backlog)
        self._begun = asyncio.get_running_loop().time()
        while self._book.answered < self._left:
            try:
                async with asyncio.timeout(self._manner.timeout if isfinite(self._manner.timeout) else None):
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
                    await asyncio.wait(self._workers, timeout=self._manner.look)
        finally:
            for worker in self._workers:
                worker.cancel()
            await asyncio.gather(*self._workers, return_exceptions=True)
            self._workers.clear()

    async def _resize(self) -> None:
        for worker in [each for each in self._workers if each.done()]:
            self._workers.discard(worker)
            worker.result()
        self._wanted = self._manner.workers or (await self._router.advice()).suggested_parallelism
        for _ in range(min(self._wanted - len(self._workers), len(self._waiting))):
            self._workers.add(asyncio.create_task(self._work()))

    async def _work(self) -> None:
        while self._waiting and len(self._workers) <= self._wanted:
            work = self._take()
            try:
                await self._solve(work)
            except asyncio.CancelledError:
                self._waiting.append(work)
                self._book.repeated += 1
                raise
            self._book.answered += 1

    def _take(self) -> Work:
        self._book.exhausted = self._since()
        return self._waiting.popleft()

    async def _solve(self, work: Work) -> None:
        async with self._router.admitted(work.estimate) as task:
            await asyncio.sleep(self._models[task.model_backend_id].seconds(work))
            task.actual_tokens = work.tokens

    def _since(self) -> float:
        return asyncio.get_running_loop().time() - self._begun

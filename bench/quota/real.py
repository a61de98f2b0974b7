"""The same in real time: router processes on one Redis, the caller's library over real sockets, and time compressed
(limits so many times as high, calls so many times as short)."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import uvloop

from bench.machine import Shares, Surroundings
from bench.progress import Steps
from bench.quota.asking import Recorded, Spread
from bench.quota.book import Book
from bench.quota.crowds import Crowd, Setting
from bench.quota.drain import Drain, Manner
from bench.quota.routers import INSTANCES, routers
from bench.quota.standing import Standing
from slb.quota.asking import Asking, Instances, Persistence
from slb.quota.client import Router

SHOW_SECONDS = 0.5
STEPS_A_SECOND = 100
"""Of the bar: about as many prompts are drained meanwhile."""
Work = Callable[[Asking, Book], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Run:
    """`shares`: of the machine's time meanwhile."""

    standing: Standing
    shares: Shares


def drained(home: Path, setting: Setting, factor: float, steps: Steps) -> Standing:
    """What `setting` comes to; a step a prompt."""
    label = f"slb, {INSTANCES} real routers"
    hurried = replace(setting, models=[model.hurried(factor) for model in setting.models])

    async def work(asking: Asking, book: Book) -> None:
        async with Router(asking) as router:
            drain = Drain(router, hurried.models, Manner().hurried(factor), book)
            async with _shown(lambda: drain.solved, steps):
                await drain.drain(hurried.backlog)

    return _run(home, hurried, factor, label, work, steps).standing


def demanded(home: Path, crowd: Crowd, factor: float, seconds: float, what: str, steps: Steps) -> Run:
    """What a crowd that is hurried by `factor` comes to in so many seconds; what still runs then is cut off."""
    label = f"slb, {INSTANCES} real routers, {what}"
    crowd = crowd.hurried(factor).for_seconds(seconds)
    clock = time.monotonic

    async def work(asking: Asking, book: Book) -> None:
        began = clock()
        async with (
            _shown(lambda: round(min(seconds, clock() - began) * STEPS_A_SECOND), steps),
            Router(asking) as router,
        ):
            await crowd.ask(router, seconds, book)

    return _run(home, crowd.setting, factor, label, work, steps)


def _run(home: Path, setting: Setting, factor: float, label: str, work: Work, steps: Steps) -> Run:
    steps.to(f"starting {INSTANCES} routers")
    book = Book()
    with routers(home, setting.models, factor) as serving:
        steps.to(label)
        asking = Recorded(_each(serving.urls, Random(setting.seed)), book)
        surroundings = Surroundings()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work(asking, book))
        shares = surroundings.shares()
    return Run(Standing(label, book, setting.models, factor), shares)


def _each(urls: Sequence[str], rng: Random) -> Asking:
    """Callers of a fleet ask whichever instance they were given."""
    return Spread([Instances([url], None, Persistence(), rng) for url in urls])


@asynccontextmanager
async def _shown(progress: Callable[[], int], steps: Steps) -> AsyncIterator[None]:
    """The bar follows `progress`, from 0, during the block."""
    showing = asyncio.create_task(_show(progress, steps))
    try:
        yield
    finally:
        showing.cancel()


async def _show(progress: Callable[[], int], steps: Steps) -> None:
    shown = 0
    try:
        while True:
            await asyncio.sleep(SHOW_SECONDS)
            due = progress()
            steps.done(due - shown)
            shown = due
    finally:
        steps.done(progress() - shown)

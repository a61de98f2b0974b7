"""The same drain in real time: three router processes on one Redis, the caller's library over real sockets, and
time compressed: limits so many times as high, calls so many times as short."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import uvloop

from bench.errors import BenchError
from bench.figures.fleet import Fleet, Instance
from bench.http import send_json
from bench.processes import Processes
from bench.progress import Steps
from bench.quota.asking import Recorded, Spread
from bench.quota.book import Book
from bench.quota.cases import Setting
from bench.quota.drain import Drain, Manner
from bench.quota.models import Model
from bench.quota.standing import Standing
from slb.quota.asking import Instances, Persistence
from slb.quota.client import Router

INSTANCES = 3
SHOW_SECONDS = 0.5


def drained(processes: Processes, home: Path, setting: Setting, factor: float, steps: Steps) -> Standing:
    """What `setting` comes to; a step a prompt."""
    steps.to(f"starting {INSTANCES} routers")
    fleet = Fleet(processes, home)
    for _ in range(INSTANCES):
        fleet.start_instance("--roles", "quota")
    for instance in fleet.instances:
        instance.wait_until_ready()
    hurried = [model.hurried(factor) for model in setting.models]
    put_models(fleet.instances[0], hurried)
    steps.to(f"real time, {factor:g} times as fast")
    urls = [f"http://127.0.0.1:{instance.api_port}" for instance in fleet.instances]
    book = Book()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_drain(urls, replace(setting, models=hurried), factor, book, steps))
    return Standing(f"slb, {INSTANCES} real routers", book, hurried, factor)


def put_models(instance: Instance, models: Sequence[Model]) -> None:
    """Over its API. Raises BenchError where it says no."""
    for model in models:
        limits = {
            "max_tokens_per_minute": model.limit,
            "max_concurrent_requests": model.slots,
            "weight": model.weight,
            "burst": model.burst,
        }
        status, text = send_json("PUT", instance.api_port, f"/models/{model.name}", limits)
        if status not in (200, 201):
            raise BenchError(f"PUT /models/{model.name} answered {status}: {text}")


async def _drain(urls: Sequence[str], setting: Setting, factor: float, book: Book, steps: Steps) -> None:
    """Callers of a fleet ask whichever instance they were given."""
    rng = Random(setting.seed)
    spread = Spread([Instances([url], None, Persistence(), rng) for url in urls])
    async with Router(Recorded(spread, book)) as router:
        drain = Drain(router, setting.models, Manner().hurried(factor), book)
        showing = asyncio.create_task(_show(drain, steps))
        try:
            await drain.drain(setting.backlog)
        finally:
            showing.cancel()


async def _show(drain: Drain, steps: Steps) -> None:
    shown = 0
    while True:
        await asyncio.sleep(SHOW_SECONDS)
        steps.done(drain.solved - shown)
        shown = drain.solved

"""Some of a crowd's callers as a process that may be killed: `python -m bench.quota.caller ORDERS JOURNAL NUMBER`.

ORDERS is a file of JSON (see `Orders`). On SIGTERM what is in hand is given back, and the process ends.
"""

import asyncio
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from random import Random
from typing import Self

import orjson
import uvloop

from bench.quota.asking import Spread
from bench.quota.backlog import Work
from bench.quota.book import Book
from bench.quota.drain import Drain, Manner
from bench.quota.journal import Journal
from bench.quota.models import Model
from slb.quota.asking import Instances, Persistence
from slb.quota.client import Router

SESSIONS = 3
"""Each begins with an instance at random, and goes to the next where that is gone."""


@dataclass(frozen=True)
class Orders:
    """What all processes are told: each has `callers`, and every so-many-th prompt of the backlog."""

    urls: Sequence[str]
    models: Sequence[Model]
    backlog: Sequence[Work]
    callers: int
    processes: int
    seed: int

    def write(self, file: Path) -> None:
        file.write_bytes(orjson.dumps(asdict(self)))

    @classmethod
    def read(cls, file: Path) -> Self:
        told = orjson.loads(file.read_bytes())
        told["models"] = [Model(**model) for model in told["models"]]
        told["backlog"] = [Work(**work) for work in told["backlog"]]
        return cls(**told)


async def main(orders: Orders, journal: Path, number: int) -> None:
    """Ask until told to stop, or until there is nothing more to ask for."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    rng = Random(orders.seed + number)
    persistence = Persistence(timeout=2.0, last_pause=0.5)
    spread = Spread([Instances(orders.urls, None, persistence, rng) for _ in range(SESSIONS)])
    async with Router(Journal(spread, journal)) as router:
        drain = Drain(router, orders.models, Manner(timeout=inf, workers=orders.callers), Book())
        draining = asyncio.create_task(drain.drain(orders.backlog[number :: orders.processes]))
        stopped = asyncio.create_task(stopping.wait())
        await asyncio.wait([draining, stopped], return_when=asyncio.FIRST_COMPLETED)
        for each in (draining, stopped):
            each.cancel()
        await asyncio.wait([draining, stopped])
        if not draining.cancelled():
            draining.result()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(Orders.read(Path(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3])))

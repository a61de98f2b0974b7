"""Requests at times that were decided beforehand, from a process of its own: `python -m bench.figures.open_loop
REDIS_URL FOLDER PLAN RESULT` (the first two are not used; the others are JSON files)."""

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import orjson
import uvloop

from bench.figures.caches import HIT, UPSTREAM
from bench.figures.traffic import KeptAlive, get


@dataclass(frozen=True)
class Plan:
    """`paths[n]` is asked for `arrivals[n]` seconds after `begin` (`time.monotonic`), whatever became of those
    before it; who has no answer after `patience` seconds gives up."""

    port: int
    begin: float
    arrivals: Sequence[float]
    paths: Sequence[str]
    patience: float


@dataclass(frozen=True, slots=True)
class Fetched:
    """One request: when it was due and ended (`time.monotonic`), the status (0 or below: none), and of the reply
    whether it came from a cache, and whose port it was."""

    due: float
    ended: float
    status: int
    hit: bool
    upstream: int

    @classmethod
    def of(cls, due: float, status: int, head: bytes) -> Self:
        port = head.partition(UPSTREAM)[2].partition(b"\r\n")[0]
        return cls(due, time.monotonic(), status, HIT in head, int(port or 0))


async def send(plan: Plan) -> list[Fetched]:
    """Carry it out; the requests in the order in which they ended."""
    client = KeptAlive(plan.port, "/", plan.patience)
    found: list[Fetched] = []

    async def one(due: float, request: bytes) -> None:
        found.append(Fetched.of(due, *await client.fetch(request)))

    async with asyncio.TaskGroup() as group:
        for arrival, path in zip(plan.arrivals, plan.paths, strict=True):
            due = plan.begin + arrival
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            group.create_task(one(due, get(path)))
    client.close()
    return found


def main(plan: Path, result: Path) -> None:
    found = uvloop.run(send(Plan(**orjson.loads(plan.read_bytes()))))
    result.write_bytes(orjson.dumps([asdict(each) for each in found]))


if __name__ == "__main__":
    main(Path(sys.argv[3]), Path(sys.argv[4]))

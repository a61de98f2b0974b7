"""A caller process that is killed some day: `python -m tests.chaos.quota_caller FILE SEED URL...`.

It has several tasks in hand at once and writes each step to FILE. When its standard input ends, it finishes what it
has in hand, and ends.
"""

import asyncio
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import orjson

from slb.quota.asking import Asking, Instances, Persistence
from slb.quota.client import Router

LANES = 8
MODELS = ["held", "purse"]
LEAST, MOST = 50, 400
"""Tokens of an estimate."""
LONGEST_CALL = 0.4
BEAT = 0.5


class Written:
    """Asks `asking`, and writes each step into `file`: a line is there before anything else happens."""

    def __init__(self, asking: Asking, file: Path) -> None:
        self._asking = asking
        self._file = file.open("ab", buffering=0)

    def open(self) -> None:
        self._asking.open()

    async def close(self) -> None:
        await self._asking.close()
        self._file.close()

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        sent = dict(body or {})
        if path == "/complete":
            self._write(event="done", task=sent["task_id"], at=time.monotonic())
        asked = time.monotonic()
        answer = await self._asking.ask(method, path, body)
        if path == "/complete":
            self._write(event="confirmed", task=sent["task_id"], at=time.monotonic(), state=answer["state"])
        elif path == "/schedule":
            self._scheduled(sent, answer, asked)
        return answer

    def _write(self, **line: Any) -> None:
        self._file.write(orjson.dumps(line) + b"\n")

    def _scheduled(self, body: Mapping[str, Any], answer: Mapping[str, Any], asked: float) -> None:
        if "task_id" not in answer:
            self._write(event="wait", reason=answer.get("reason") or "")
            return
        self._write(
            event="admitted",
            task=answer["task_id"],
            model=answer["model_backend_id"],
            estimate=body["estimated_tokens"],
            asked=asked,
            admitted=time.monotonic(),
        )


async def lane(router: Router, rng: Random, stopping: asyncio.Event) -> None:
    """One task after another; every fifth would rather have one model."""
    while not stopping.is_set():
        models = [rng.choice(MODELS)] if rng.random() < 0.2 else None
        async with router.admitted(rng.randrange(LEAST, MOST), models):
            await asyncio.sleep(rng.uniform(0, LONGEST_CALL))


async def main(file: Path, seed: int, urls: list[str]) -> None:
    rng, stopping = Random(seed), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, stopping.set)  # readable once it has ended: nothing is written there
    asking = Written(Instances(urls, None, Persistence(timeout=2.0, last_pause=0.5), rng), file)
    async with Router(asking, BEAT) as router, asyncio.TaskGroup() as group:
        for _ in range(LANES):
            group.create_task(lane(router, Random(rng.random()), stopping))
    loop.remove_reader(sys.stdin)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))

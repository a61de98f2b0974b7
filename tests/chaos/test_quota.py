"""A run with callers and instances that are killed and a Redis that restarts: the quota holds to the letter."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.chaos.quota_history import History, Promise, faults, spent
from tests.process.commands import Commands
from tests.support.quota_routers import Routers
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, soon

LEASE = 3.0
SLACK = 0.05
HELD = Promise(rate=1000.0, burst=2000.0, slots=6)
PURSE = Promise(rate=1.0, burst=1_000_000.0, slots=5)
"""It hardly refills: what is in its bucket at the end shows what was spent, and what was given back."""

PROMISES = {"held": HELD, "purse": PURSE}
CALLERS = 3
REPOSITORY = Path(__file__).parents[2]


class Callers:
    """Processes that call; each writes into a file of its own."""

    def __init__(self, directory: Path, urls: list[str]) -> None:
        self._directory = directory
        self._urls = urls
        self.alive: list[asyncio.subprocess.Process] = []
        self.files: list[Path] = []
        self._written: dict[int, Path] = {}

    async def start(self) -> None:
        """One more."""
        self.files.append(self._directory / f"caller-{len(self.files)}.jsonl")
        words = [str(self.files[-1]), str(len(self.files)), *self._urls]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.chaos.quota_caller",
            *words,
            cwd=REPOSITORY,
            stdin=asyncio.subprocess.PIPE,
        )
        self.alive.append(process)
        self._written[process.pid] = self.files[-1]

    async def busy(self) -> None:
        """Wait until each has written something."""
        await eventually(lambda: all(file.exists() and file.stat().st_size for file in self.files), 60)

    async def kill(self) -> None:
        """kill -9 of the oldest, while it has tasks in hand."""
        process = self.alive.pop(0)
        await eventually(lambda: holds(self._written[process.pid]))
        process.kill()
        await process.wait()

    async def finish(self) -> list[int | None]:
        """All end what they have in hand; their exit codes."""
        for process in self.alive:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.alive:
            await soon(process.wait(), 30)
        return [process.returncode for process in self.alive]

    async def close(self) -> None:
        for process in self.alive:
            if process.returncode is None:
                process.kill()
                await process.wait()


def holds(file: Path) -> bool:
    """Whether a caller has tasks in hand, by what it has written."""
    lines = [orjson.loads(line) for line in file.read_bytes().splitlines()]
    done = {line["task"] for line in lines if line["event"] == "done"}
    return any(line["event"] == "admitted" and line["task"] not in done for line in lines)


@pytest.fixture
async def routers(tmp_path: Path, valkey: Valkey) -> AsyncIterator[Routers]:
    """Three, and the two models."""
    slb = Commands(tmp_path)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(slb.close)
        routers = Routers(slb, valkey, LEASE)
        await routers.start(3)
        for model, promise in PROMISES.items():
            await routers.put(model, limits(promise))
        yield routers


def limits(promise: Promise) -> dict[str, int]:
    return {
        "max_tokens_per_minute": round(promise.rate * 60),
        "max_concurrent_requests": promise.slots,
        "burst": round(promise.burst),
    }


@asynccontextmanager
async def calling(directory: Path, urls: list[str]) -> AsyncIterator[Callers]:
    callers = Callers(directory, urls)
    try:
        for _ in range(CALLERS):
            await callers.start()
        yield callers
    finally:
        await callers.close()


async def test_the_quota_holds_whatever_is_killed_and_nothing_leaks(
    routers: Routers, valkey: Valkey, tmp_path: Path
) -> None:
    async with calling(tmp_path, routers.urls) as callers:
        await callers.busy()
        await asyncio.sleep(2)
        await callers.kill()
        await callers.start()
        await callers.busy()
        await asyncio.sleep(2)
        await routers.kill(0)
        await asyncio.sleep(2)
        valkey.kill()
        await asyncio.sleep(1)
        valkey.start()
        await asyncio.sleep(2)
        await callers.kill()
        await routers.kill(1)
        await asyncio.sleep(4)
        assert await callers.finish() == [0] * len(callers.alive)
    models = await idle(routers)
    history, abandoned = History.read(callers.files), await routers.abandoned()
    note_returns(history, abandoned)
    print(summary(history, models))
    assert not faults(history, PROMISES, LEASE, SLACK)
    least, most = spent(history.of("purse"))
    assert PURSE.burst - most <= models["purse"]["tokens"] <= PURSE.burst - least + 60
    names = [task["task_id"] for task in abandoned]
    assert len(names) == len(set(names)) > 0
    assert not [name for name in names if name in history.tasks and history.tasks[name].state == "completed"]
    assert len(history.tasks) > 100


def note_returns(history: History, abandoned: list[dict[str, Any]]) -> None:
    """When Redis took tokens back, by the clock of the callers."""
    offset = time.time() - time.monotonic()
    for task in abandoned:
        returned = task["reclaimed_at"] - offset, task["estimated_tokens"]
        history.returned.setdefault(task["model_backend_id"], []).append(returned)


async def idle(routers: Routers) -> dict[str, dict[str, Any]]:
    """The models once nothing is in flight; fails where that never comes."""
    models = await routers.models()
    async with asyncio.timeout(8 * LEASE):
        while any(model["in_flight"] or model["waiting"] for model in models.values()):
            await asyncio.sleep(0.2)
            models = await routers.models()
    return models


def summary(history: History, models: dict[str, dict[str, Any]]) -> str:
    tasks = {name: len(history.of(name)) for name in PROMISES}
    return f"tasks {tasks}, waits {history.waits}, at the end {models}"

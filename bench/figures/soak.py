"""Whether memory stops growing: one instance under steady mixed load, for as long as one likes to wait."""

import asyncio
import random
import time
from dataclasses import dataclass

from bench.figures.figure import Figure, Outcome, Section
from bench.figures.fleet import Fleet
from bench.figures.local import MIB, Loop, Upstream
from bench.figures.memory import fresh
from bench.figures.traffic import KeptAlive
from bench.procstat import memory_mib
from bench.progress import Steps

GOAL_MIB_A_MINUTE = 0.1
PARTS = 6
MOST_AT_ONCE = 500
ABORTED_AFTER_SECONDS = 0.002


@dataclass(frozen=True)
class Plan:
    """What the user asked for. `rate`: requests a second."""

    minutes: int = 30
    rate: int = 250


class Mix:
    """In equal parts: the same request again and again, a new trace, a new query, a path of no route, a connection
    of its own, and a client that leaves before the answer."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._kept = KeptAlive(port, "/small")
        self._rng = random.Random(1)
        self._kinds = (self._plain, self._trace, self._query, self._nowhere, self._new, self._abort)

    async def one(self) -> None:
        await self._rng.choice(self._kinds)()

    def close(self) -> None:
        self._kept.close()

    async def _plain(self) -> None:
        await self._kept.fetch(_request("/small"))

    async def _trace(self) -> None:
        await self._kept.fetch(_request("/small", f"traceparent: 00-{self._hex(128)}-{self._hex(64)}-01\r\n"))

    async def _query(self) -> None:
        await self._kept.fetch(_request(f"/small?q={self._hex(64)}"))

    async def _nowhere(self) -> None:
        await self._kept.fetch(_request(f"/nowhere/{self._hex(64)}"))

    async def _new(self) -> None:
        own = KeptAlive(self._port, "/small")
        await own.ask()
        own.close()

    async def _abort(self) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(_request("/small"))
        await asyncio.sleep(ABORTED_AFTER_SECONDS)
        writer.transport.abort()

    def _hex(self, bits: int) -> str:
        return f"{self._rng.getrandbits(bits):0{bits // 4}x}"


def _request(path: str, more: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: bench\r\n{more}\r\n".encode()


async def load(port: int, rate: int, seconds: float) -> None:
    """As many a second, or fewer where the instance does not keep up."""
    mix = Mix(port)
    begun, running = time.monotonic(), set[asyncio.Task[None]]()
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, begun + number / rate - time.monotonic()))
        while len(running) >= MOST_AT_ONCE:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(mix.one())
        running.add(task)
        task.add_done_callback(running.discard)
    if running:
        await asyncio.wait(running)
    mix.close()


def measure(fleet: Fleet, steps: Steps, plan: Plan) -> Outcome:
    """What it has resident after each part of the time, and how fast that grew. Only the last part has a goal:
    caches fill first, each to its bound."""
    part = plan.minutes / PARTS
    figures: list[Figure] = []
    with Loop() as loop:
        member = loop.run(Upstream(MIB, MIB).start())
        instance, before = fresh(fleet, loop, member)
        for number in range(1, PARTS + 1):
            steps.to(f"{part * number:.3g} of {plan.minutes} minutes")
            loop.run(load(instance.port, plan.rate, part * 60))
            now = memory_mib(instance.running.pid)[0]
            goal = GOAL_MIB_A_MINUTE if number == PARTS else None
            figures.append(Figure(f"resident after {part * number:.3g} min", now, "MiB"))
            figures.append(Figure("growth since the line before", (now - before) / part, "MiB/min", below=goal))
            before = now
            steps.done()
    return Outcome([Section(f"Resident memory of one instance, {plan.rate} mixed requests a second", figures)])

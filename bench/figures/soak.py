"""Whether memory stops growing: one instance under steady mixed load, for as long as is asked for."""

import asyncio
import time
from collections.abc import Sequence
from random import Random
from typing import Annotated

from typer import Option

from bench.command import Bench
from bench.figures.memory import fresh
from bench.local import MIB, Loop, Upstream
from bench.procstat import memory_mib
from bench.table import Figure, Outcome, Section
from bench.traffic import KeptAlive, Traffic, get

GOAL_MIB_A_MINUTE = 0.1
PARTS = 6
ABORTED_AFTER_SECONDS = 0.002
KINDS = 6


class Mix(Traffic):
    """In equal parts: the same request again and again, a new trace, a new query, a path of no route, a connection
    of its own, and a client that leaves before the reply."""

    def __init__(self, port: int, rate: int) -> None:
        super().__init__([port], "/small", rate)
        self._port = port
        self._rng = Random(1)

    async def one(self, doors: Sequence[KeptAlive], due: float) -> None:
        (kept,) = doors
        match self._rng.randrange(KINDS):
            case 0:
                await kept.ask()
            case 1:
                await kept.fetch(get("/small", f"traceparent: 00-{self._hex(128)}-{self._hex(64)}-01\r\n"))
            case 2:
                await kept.fetch(get(f"/small?q={self._hex(64)}"))
            case 3:
                await kept.fetch(get(f"/nowhere/{self._hex(64)}"))
            case 4:
                own = KeptAlive(self._port, "/small")
                await own.ask()
                own.close()
            case _:
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
                writer.write(get("/small"))
                await asyncio.sleep(ABORTED_AFTER_SECONDS)
                writer.transport.abort()

    def _hex(self, bits: int) -> str:
        return f"{self._rng.getrandbits(bits):0{bits // 4}x}"


def soak(
    bench: Bench,
    minutes: Annotated[float, Option(min=0.01, help="Of load; growth is shown for each sixth.")] = 30,
    rate: Annotated[int, Option(min=1, help="Requests a second, of six kinds.")] = 250,
) -> Outcome:
    """Whether memory stops growing under steady mixed load."""
    fleet = bench.fleet()
    part = minutes / PARTS
    figures: list[Figure] = []
    with Loop() as loop:
        instance, before = fresh(fleet, loop, loop.run(Upstream(MIB, MIB).start()))
        with Mix(instance.port, rate):
            for number in range(1, PARTS + 1):
                bench.to(f"{part * number:.3g} of {minutes:g} minutes")
                time.sleep(part * 60)
                now = memory_mib(instance.running.pid)[0]
                goal = GOAL_MIB_A_MINUTE if number == PARTS else None  # caches fill first, each to its bound
                figures.append(Figure(f"resident after {part * number:.3g} min", now, "MiB"))
                figures.append(Figure("growth since the line before", (now - before) / part, "MiB/min", below=goal))
                before = now
    return Outcome([Section(f"Resident memory of one instance, {rate} mixed requests a second", figures)])

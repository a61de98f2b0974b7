"""What connections cost in memory: idle ones, and ones with a slow side."""

import asyncio
from collections.abc import Awaitable
from typing import Annotated

from typer import Option

from bench.command import Bench
from bench.fleet import Fleet, Instance
from bench.local import MIB, PIECE, Loop, Upstream, allow_descriptors, read_slowly
from bench.procstat import memory_mib
from bench.table import Figure, Outcome, Section

GOAL_KIB_EACH = 8.0
GOAL_GROWTH_MIB = 16.0
SLOW_BYTES_PER_SECOND = 100 * MIB
SPARE_DESCRIPTORS = 500
LOOK_EVERY_SECONDS = 0.05
AT_ONCE = 200
WARM_UP = 10
REQUEST = b"GET /small HTTP/1.1\r\nHost: bench\r\n\r\n"


async def idle_connections(port: int, count: int) -> list[asyncio.StreamWriter]:
    """Each has had one reply, as kept-alive connections have."""
    made: list[asyncio.StreamWriter] = []
    while len(made) < count:
        made += await asyncio.gather(*(_one_idle(port) for _ in range(min(AT_ONCE, count - len(made)))))
    return made


async def _one_idle(port: int) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
    writer.write(REQUEST)
    await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(2)
    return writer


async def close(made: list[asyncio.StreamWriter]) -> None:
    for writer in made:
        writer.transport.abort()


async def download_slowly(port: int, size: int) -> None:
    """The upstream is as fast as it can be, the client is not."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MIB)
    writer.write(b"GET /large HTTP/1.1\r\nHost: bench\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    await read_slowly(reader, size, MIB / SLOW_BYTES_PER_SECOND)
    writer.close()


async def upload_to_slow(port: int, size: int) -> None:
    """The client is as fast as it can be, the upstream is not."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MIB)
    writer.write(b"POST /slow HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n" % size)
    for _ in range(size // MIB):
        writer.write(PIECE)
        await writer.drain()
    await reader.readuntil(b"\r\n\r\n")
    writer.close()


async def most_resident(pid: int, work: Awaitable[None]) -> float:
    """The most memory the process was seen to have, in MiB, while `work` went on."""
    seen = [memory_mib(pid)[0]]
    running = asyncio.ensure_future(work)
    while not (await asyncio.wait([running], timeout=LOOK_EVERY_SECONDS))[0]:
        seen.append(memory_mib(pid)[0])
    running.result()
    return max(seen)


def fresh(fleet: Fleet, loop: Loop, member: str) -> tuple[Instance, float]:
    """A new instance that has served a few requests, and what it has resident, in MiB."""
    instance = fleet.start_ready(member)
    loop.run(close(loop.run(idle_connections(instance.port, WARM_UP))))
    return instance, memory_mib(instance.running.pid)[0]


def memory(
    bench: Bench,
    connections: Annotated[int, Option(min=1, help="Kept alive and idle.")] = 10_000,
    mebibytes: Annotated[int, Option(min=1, help="Of a body with a slow side, each way.")] = 1024,
) -> Outcome:
    """What idle connections cost, and bodies whose receiver is slow."""
    size = mebibytes * MIB
    fleet = bench.fleet()
    allow_descriptors(connections + SPARE_DESCRIPTORS)
    with Loop() as loop:
        member = loop.run(Upstream(SLOW_BYTES_PER_SECOND, size).start())
        bench.to(f"{connections} idle connections")
        instance, before = fresh(fleet, loop, member)  # one for each: freed memory would hide what comes next
        made = loop.run(idle_connections(instance.port, connections))
        each = (memory_mib(instance.running.pid)[0] - before) * 1024 / connections
        loop.run(close(made))
        figures = [Figure(f"each of {connections:,} idle connections", each, "KiB", at_most=GOAL_KIB_EACH)]
        for what, work in (("slow reader", download_slowly), ("slow upstream", upload_to_slow)):
            bench.to(f"{mebibytes} MiB, {what}")
            instance, before = fresh(fleet, loop, member)
            most = loop.run(most_resident(instance.running.pid, work(instance.port, size)))
            figures.append(Figure(f"growth, {mebibytes} MiB, {what}", most - before, "MiB", below=GOAL_GROWTH_MIB))
    return Outcome([Section("Resident memory of one instance", figures)])

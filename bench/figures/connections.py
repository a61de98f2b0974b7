"""Connections that are idle, slow on one side, or streaming: the first token of a stream, what they cost in memory,
and whether memory stops growing under steady mixed load."""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from random import Random
from typing import Annotated

from typer import Option

from bench.command import Bench
from bench.fleet import Fleet, Instance
from bench.local import EVENT, Upstream, allow_descriptors, read_slowly, write_all
from bench.procstat import MIB, memory_mib
from bench.table import Figure, Outcome, Section, percentile
from bench.traffic import KeptAlive, Loop, Traffic, get

GOAL_FIRST_TOKEN_MS = 2.0
GOAL_KIB_EACH, GOAL_GROWTH_MIB, GOAL_MIB_A_MINUTE = 8.0, 16.0, 0.1
SLOW_BYTES_PER_SECOND = 100 * MIB
SPARE_DESCRIPTORS = 500
LOOK_EVERY_SECONDS = 0.05
AT_ONCE = 200  # idle connections that are made at the same time
WARM_UP_STREAMS, WARM_UP = 50, 10
PARTS = 6  # of a soak
ABORTED_AFTER_SECONDS = 0.002


async def _first_tokens(port: int, upstream: Upstream, count: int) -> list[float]:
    """Milliseconds from the upstream's write to the client's read, each stream after the one before."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MIB)
    delays = []
    for _ in range(WARM_UP_STREAMS + count):
        writer.write(get("/events"))
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(len(EVENT))
        delays.append((time.perf_counter() - upstream.event_sent) * 1e3)
        await reader.readexactly(len(b"0\r\n\r\n"))
    writer.close()
    return delays[WARM_UP_STREAMS:]


def stream(bench: Bench, count: Annotated[int, Option("--streams", min=1, help="Each way.")] = 500) -> Outcome:
    """The first token of a stream, through slb and directly."""
    fleet, upstream = bench.fleet(), Upstream(MIB, MIB)
    figures: list[Figure] = []
    with Loop() as loop:
        member = loop.run(upstream.start())
        ports = {"directly": int(member.rpartition(":")[2]), "through slb": fleet.start_ready(member).port}
        for way, port in ports.items():
            bench.to(way)
            delays = loop.run(_first_tokens(port, upstream, count))
            goal = GOAL_FIRST_TOKEN_MS if "slb" in way else None
            shares = {"p50": 0.5, "p99": 0.99}
            figures += [Figure(f"{way}, {of}", percentile(delays, at), "ms", goal) for of, at in shares.items()]
    title = f"From the upstream's write of the first token to the client's read, {count} streams"
    return Outcome([Section(title, figures)])


async def _idle_connections(port: int, count: int) -> list[asyncio.StreamWriter]:
    """Each has had one reply, as kept-alive connections have."""
    made: list[asyncio.StreamWriter] = []
    while len(made) < count:
        made += await asyncio.gather(*(_one_idle(port) for _ in range(min(AT_ONCE, count - len(made)))))
    return made


async def _one_idle(port: int) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
    writer.write(get("/small"))
    await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(2)
    return writer


async def _close(made: Sequence[asyncio.StreamWriter]) -> None:
    for writer in made:
        writer.transport.abort()


async def _download_slowly(port: int, size: int) -> None:
    """The upstream is as fast as it can be, the client is not."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MIB)
    writer.write(get("/large"))
    await reader.readuntil(b"\r\n\r\n")
    await read_slowly(reader, size, MIB / SLOW_BYTES_PER_SECOND)
    writer.close()


async def _upload_to_slow(port: int, size: int) -> None:
    """The client is as fast as it can be, the upstream is not."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MIB)
    writer.write(b"POST /slow HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n" % size)
    await write_all(writer, size)
    await reader.readuntil(b"\r\n\r\n")
    writer.close()


async def _most_resident(pid: int, work: Awaitable[None]) -> float:
    """The most memory the process was seen to have, in MiB, while `work` went on."""
    seen = [memory_mib(pid)[0]]
    running = asyncio.ensure_future(work)
    while not (await asyncio.wait([running], timeout=LOOK_EVERY_SECONDS))[0]:
        seen.append(memory_mib(pid)[0])
    running.result()
    return max(seen)


def _fresh(fleet: Fleet, loop: Loop, member: str) -> tuple[Instance, float]:
    """A new instance that has served a few requests, and what it has resident, in MiB."""
    instance = fleet.start_ready(member)
    loop.run(_close(loop.run(_idle_connections(instance.port, WARM_UP))))
    return instance, memory_mib(instance.running.pid)[0]


def memory(
    bench: Bench,
    connections: Annotated[int, Option(min=1, help="Kept alive and idle.")] = 10_000,
    mebibytes: Annotated[int, Option(min=1, help="Of a body with a slow side, each way.")] = 1024,
) -> Outcome:
    """What idle connections cost, and bodies whose receiver is slow."""
    size, fleet = mebibytes * MIB, bench.fleet()
    allow_descriptors(connections + SPARE_DESCRIPTORS)
    with Loop() as loop:
        member = loop.run(Upstream(SLOW_BYTES_PER_SECOND, size).start())
        bench.to(f"{connections} idle connections")
        instance, before = _fresh(fleet, loop, member)  # one for each: freed memory would hide what comes next
        made = loop.run(_idle_connections(instance.port, connections))
        each = (memory_mib(instance.running.pid)[0] - before) * 1024 / connections
        loop.run(_close(made))
        figures = [Figure(f"each of {connections:,} idle connections", each, "KiB", at_most=GOAL_KIB_EACH)]
        for what, work in (("slow reader", _download_slowly), ("slow upstream", _upload_to_slow)):
            bench.to(f"{mebibytes} MiB, {what}")
            instance, before = _fresh(fleet, loop, member)
            most = loop.run(_most_resident(instance.running.pid, work(instance.port, size)))
            figures.append(Figure(f"growth, {mebibytes} MiB, {what}", most - before, "MiB", below=GOAL_GROWTH_MIB))
    return Outcome([Section("Resident memory of one instance", figures)])


class Mix(Traffic):
    """In equal parts: the same request again and again, a new trace, a new query, a path of no route, a connection
    of its own, and a client that leaves before the reply."""

    def __init__(self, port: int, rate: int) -> None:
        super().__init__([port], "/small", rate)
        self._port, self._rng = port, Random(1)

    async def one(self, doors: Sequence[KeptAlive], due: float) -> None:
        (kept,) = doors
        match self._rng.randrange(6):
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
    fleet, part, figures = bench.fleet(), minutes / PARTS, list[Figure]()
    with Loop() as loop:
        instance, before = _fresh(fleet, loop, loop.run(Upstream(MIB, MIB).start()))
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

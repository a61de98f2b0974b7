"""The first token of a stream: when the client has it, through slb and directly."""

import asyncio
import time
from typing import Annotated

from typer import Option

from bench.command import Bench
from bench.local import EVENT, MIB, Loop, Upstream
from bench.table import Figure, Outcome, Section, percentile

GOAL_MS = 2.0
WARM_UP = 50
REQUEST = b"GET /events HTTP/1.1\r\nHost: bench\r\n\r\n"


async def first_tokens(port: int, upstream: Upstream, count: int) -> list[float]:
    """Milliseconds from the upstream's write to the client's read, each stream after the one before."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MIB)
    delays = []
    for _ in range(WARM_UP + count):
        writer.write(REQUEST)
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(len(EVENT))
        delays.append((time.perf_counter() - upstream.event_sent) * 1e3)
        await reader.readexactly(len(b"0\r\n\r\n"))
    writer.close()
    return delays[WARM_UP:]


def stream(bench: Bench, count: Annotated[int, Option("--streams", min=1, help="Each way.")] = 500) -> Outcome:
    """The first token of a stream, through slb and directly."""
    fleet = bench.fleet()
    with Loop() as loop:
        upstream = Upstream(MIB, MIB)
        member = loop.run(upstream.start())
        instance = fleet.start_ready(member)
        found: dict[str, list[float]] = {}
        for way, port in (("directly", int(member.rpartition(":")[2])), ("through slb", instance.port)):
            bench.to(way)
            found[way] = loop.run(first_tokens(port, upstream, count))
    figures = [
        Figure(f"{way}, p{share * 100:.0f}", percentile(delays, share), "ms", GOAL_MS if "slb" in way else None)
        for way, delays in found.items()
        for share in (0.5, 0.99)
    ]
    title = f"From the upstream's write of the first token to the client's read, {count} streams"
    return Outcome([Section(title, figures)])

"""The first token of a stream: when the client has it, through slb and directly."""

import asyncio
import time

from bench.figures.figure import Figure, Outcome, Section, percentile
from bench.figures.fleet import Fleet
from bench.figures.local import EVENT, EVENTS_HEAD, MIB, Loop, Upstream
from bench.progress import Steps

GOAL_MS = 2.0
STEPS = 2
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


def measure(fleet: Fleet, steps: Steps, count: int) -> Outcome:
    """`count` streams each way."""
    assert EVENTS_HEAD.endswith(b"\r\n\r\n")
    with Loop() as loop:
        upstream = Upstream(MIB, MIB)
        member = loop.run(upstream.start())
        instance = fleet.start_instance()
        instance.wait_until_ready()
        instance.register("/", member)
        steps.to("directly")
        direct = loop.run(first_tokens(int(member.rpartition(":")[2]), upstream, count))
        steps.done()
        steps.to("through slb")
        through = loop.run(first_tokens(instance.port, upstream, count))
        steps.done()
    figures = [
        Figure("directly, p50", percentile(direct, 0.5), "ms"),
        Figure("directly, p99", percentile(direct, 0.99), "ms"),
        Figure("through slb, p50", percentile(through, 0.5), "ms", at_most=GOAL_MS),
        Figure("through slb, p99", percentile(through, 0.99), "ms", at_most=GOAL_MS),
    ]
    title = f"From the upstream's write of the first token to the client's read, {count} streams"
    return Outcome([Section(title, figures)], {"direct_ms": direct, "through_ms": through})

"""Slow clients beside healthy ones: what the healthy ones notice."""

import asyncio
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass

from bench.figures.figure import Figure, Outcome, Section
from bench.figures.fleet import Fleet, Instance
from bench.figures.local import MIB, Loop, Upstream, allow_descriptors
from bench.figures.traffic import Tally, Traffic
from bench.progress import Steps

GOAL_RATIO = 2.0
STEPS = 2
DESCRIPTORS = 4096
SETTLE_SECONDS = 1.0
BACK_SECONDS = 10.0
DRIP_SECONDS = 0.5
LARGE = 64 * MIB
SLOWLORIS = b"GET /small HTTP/1.1\r\nHost: bench\r\nX-Padding: "
SLOW_BODY = b"POST /slow HTTP/1.1\r\nHost: bench\r\nContent-Length: 1000000\r\n\r\n"
SLOW_READ = b"GET /large HTTP/1.1\r\nHost: bench\r\n\r\n"


@dataclass(frozen=True)
class Plan:
    """What the user asked for."""

    slow: int = 200
    rate: int = 500
    seconds: float = 10.0


async def drip(port: int, start: bytes) -> None:
    """Begin, then a byte now and then, for as long as it is borne; then begin again."""
    while True:
        with suppress(ConnectionError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(start)
                while not writer.is_closing():
                    await asyncio.sleep(DRIP_SECONDS)
                    writer.write(b"a")
            finally:
                writer.transport.abort()


async def sip(port: int) -> None:
    """Ask for much, and read a little now and then."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    try:
        writer.write(SLOW_READ)
        while await reader.read(1024):
            await asyncio.sleep(DRIP_SECONDS)
    finally:
        writer.transport.abort()


async def slow_clients(port: int, count: int) -> list[asyncio.Task[None]]:
    """A third of each kind."""
    kinds = (lambda: drip(port, SLOWLORIS), lambda: drip(port, SLOW_BODY), lambda: sip(port))
    return [asyncio.ensure_future(kinds[number % len(kinds)]()) for number in range(count)]


async def end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def healthy(instance: Instance, plan: Plan) -> Tally:
    """What requests at a steady rate see."""
    with Traffic([instance.port], "/small", plan.rate) as traffic:
        time.sleep(plan.seconds)
    return Tally.of(traffic.answers)


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def least_descriptors(pid: int, enough: int) -> int:
    """How many are left once there are `enough` or fewer, or time is up."""
    deadline = time.monotonic() + BACK_SECONDS
    while (now := descriptors(pid)) > enough and time.monotonic() < deadline:
        time.sleep(SETTLE_SECONDS / 10)
    return now


def measure(fleet: Fleet, steps: Steps, plan: Plan) -> Outcome:
    """Healthy requests alone, then beside slow clients."""
    allow_descriptors(DESCRIPTORS)
    with Loop() as loop:
        member = loop.run(Upstream(MIB, LARGE).start())
        instance = fleet.start_instance()
        instance.wait_until_ready()
        instance.register("/", member)
        steps.to("without slow clients")
        alone = healthy(instance, plan)
        time.sleep(SETTLE_SECONDS)
        before = descriptors(instance.running.pid)
        steps.done()
        steps.to(f"beside {plan.slow} slow clients")
        clients = loop.run(slow_clients(instance.port, plan.slow))
        time.sleep(SETTLE_SECONDS)
        during = descriptors(instance.running.pid)
        beside = healthy(instance, plan)
        loop.run(end(clients))
        after = least_descriptors(instance.running.pid, before)
        steps.done()
    figures = [
        Figure("healthy requests, p99, alone", alone.p99_ms, "ms"),
        Figure(f"healthy requests, p99, beside {plan.slow} slow clients", beside.p99_ms, "ms"),
        Figure("how many times as much", beside.p99_ms / alone.p99_ms, below=GOAL_RATIO),
        Figure("healthy requests failed", alone.failed(200) + beside.failed(200), at_most=0),
        Figure("descriptors before", before),
        Figure("descriptors meanwhile", during),
        Figure("descriptors afterwards, more than before", max(0, after - before), at_most=0),
    ]
    raw: dict[str, object] = {"alone": asdict(alone), "beside": asdict(beside)}
    return Outcome([Section(f"{plan.rate} healthy requests a second", figures)], raw)

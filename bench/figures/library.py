"""The client library's own CPU a call, beside the aiohttp call that it wraps."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from statistics import median

import uvloop
from aiohttp import ClientResponse, ClientSession, DummyCookieJar, TCPConnector

from bench.figures.figure import Figure, Outcome, Section, percentile
from bench.processes import LOG, Processes, wait_until
from bench.progress import Steps
from slb.client import Session

GOAL_SHARE = 0.15
READY_SECONDS = 15.0
AT_ONCE = 8
KEYS = 1000
SESSIONS = 3
"""A session keeps its place in memory, and so what it costs: a few hundredths more or less than the next one."""
ZONES = ("a", "b", "c")
POLICIES: dict[str, dict[str, object]] = {
    "round_robin": {"policy": "round_robin"},
    "consistent_hash": {"policy": "consistent_hash"},
    "consistent_hash, zones": {"policy": "consistent_hash", "zone_affinity": True, "zone_delay": "0"},
}

Get = Callable[[int], AbstractAsyncContextManager[ClientResponse]]


@dataclass(frozen=True)
class Plan:
    """In each round both have a turn of `calls` calls, and each begins every other time; the rounds are shared by
    SESSIONS new sessions."""

    upstreams: int
    rounds: int
    calls: int


def measure(processes: Processes, home: Path, steps: Steps, plan: Plan) -> Outcome:
    """Each policy in turn."""
    cores = sorted(os.sched_getaffinity(0))
    members = _start_upstreams(processes, home, cores[0], plan.upstreams)
    os.sched_setaffinity(0, {cores[-1]})
    sections: list[Section] = []
    raw: dict[str, object] = {}
    for name, settings in POLICIES.items():
        steps.to(name)
        pairs: list[tuple[float, float]] = []
        for number in range(SESSIONS):
            rounds = len(range(number, plan.rounds, SESSIONS))
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                pairs += runner.run(_pairs(members, settings, rounds, plan.calls, steps))
        sections.append(_section(name, pairs, plan))
        raw[name] = pairs
    return Outcome(sections, raw)


def _start_upstreams(processes: Processes, home: Path, core: int, count: int) -> list[str]:
    addresses = [f"127.0.1.{number}" for number in range(1, count + 1)]
    module = "bench.figures.library_upstreams"
    running = processes.start_module(home / "upstreams", module, *addresses, core=core)
    log = running.home / LOG
    wait_until(lambda: log.read_text().endswith("\n"), running, READY_SECONDS, "starting the upstreams")
    port = log.read_text().strip()
    return [f"{address}:{port}" for address in addresses]


async def _pairs(
    members: Sequence[str], settings: dict[str, object], rounds: int, calls: int, steps: Steps
) -> list[tuple[float, float]]:
    """CPU a call in µs, of aiohttp alone and of the library, one pair a round."""
    async with _both(members, settings) as turns:
        for get in turns:
            await _turn(get, KEYS * 2)
        pairs = []
        for number in range(rounds):
            order = (0, 1) if number % 2 else (1, 0)
            took = {which: await _turn(turns[which], calls) for which in order}
            pairs.append((took[0], took[1]))
            steps.done()
    return pairs


@asynccontextmanager
async def _both(members: Sequence[str], settings: dict[str, object]) -> AsyncIterator[tuple[Get, Get]]:
    """A ClientSession as the library makes its own, called in turn at each upstream; and the library."""
    known = {member: {"zone": zone} for member, zone in zip(members, cycle(ZONES), strict=False)}
    urls = [f"http://{member}/products/{key}" for key, member in zip(range(KEYS), cycle(members), strict=False)]
    paths = [f"/products/{key}" for key in range(KEYS)]
    keys = [str(key) for key in range(KEYS)]
    async with (
        ClientSession(connector=TCPConnector(limit=0), cookie_jar=DummyCookieJar()) as plain,
        Session(upstreams=known, settings=settings, zone=ZONES[0], max_outbound=1000) as session,
    ):
        yield (
            lambda number: plain.get(urls[number]),
            lambda number: session.get(paths[number], key=keys[number]),
        )


async def _turn(get: Get, calls: int) -> float:
    """Microseconds of this process's CPU a call, AT_ONCE of them at a time."""

    async def caller(first: int) -> None:
        for number in islice(cycle(range(KEYS)), first, first + calls // AT_ONCE):
            async with get(number) as response:
                await response.read()

    began = time.process_time()
    await asyncio.gather(*(caller(number * KEYS // AT_ONCE) for number in range(AT_ONCE)))
    return (time.process_time() - began) / calls * 1e6


def _section(name: str, pairs: Sequence[tuple[float, float]], plan: Plan) -> Section:
    """The median of each round's share: the machine changes less within a round."""
    shares = [library / plain - 1 for plain, library in pairs]
    figures = [
        Figure("CPU of the aiohttp call", median(plain for plain, _ in pairs), "µs"),
        Figure("CPU of the library's call", median(library for _, library in pairs), "µs"),
        Figure("the library's own share of the call it wraps", median(shares), "", at_most=GOAL_SHARE),
        Figure("the same, in nine of ten rounds at most", percentile(shares, 0.9)),
    ]
    title = (
        f"{name}: {plan.upstreams} upstreams, {plan.rounds} rounds of {plan.calls:,} calls each, {AT_ONCE} at once"
    )
    return Section(title, figures)

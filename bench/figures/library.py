"""The client library's own CPU a call, beside the aiohttp call that it wraps."""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import cycle, islice
from statistics import median
from typing import Annotated

import uvloop
from aiohttp import ClientResponse, ClientSession, DummyCookieJar, TCPConnector
from typer import Option

from bench.command import Bench
from bench.pods import start_pods
from bench.ports import free_ports
from bench.table import Figure, Outcome, Section, percentile
from slb.client import Session

GOAL_SHARE = 0.15
AT_ONCE, KEYS = 8, 1000
SESSIONS = 3  # each keeps its place in memory, and so what it costs: a few hundredths more or less than the next
ZONES = ("a", "b", "c")
POLICIES: dict[str, dict[str, object]] = {
    "round_robin": {"policy": "round_robin"},
    "consistent_hash": {"policy": "consistent_hash"},
    "consistent_hash, zones": {"policy": "consistent_hash", "zone_affinity": True, "zone_delay": "0"},
}

Get = Callable[[int], AbstractAsyncContextManager[ClientResponse]]


def client(
    bench: Bench,
    upstreams: Annotated[int, Option(min=2, help="Of the route.")] = 20,
    rounds: Annotated[int, Option(min=1, help="Turns that each has, for each policy.")] = 60,
    calls: Annotated[int, Option(min=8, help="In each turn.")] = 800,
) -> Outcome:
    """The client library's own CPU a call, beside the aiohttp call that it wraps."""
    cores, ports = sorted(os.sched_getaffinity(0)), free_ports(upstreams)
    start_pods(bench.processes, bench.home / "upstreams", "plain", ports, core=cores[0])
    os.sched_setaffinity(0, {cores[-1]})
    members = [f"127.0.0.1:{port}" for port in ports]
    sections: list[Section] = []
    for name, settings in POLICIES.items():
        bench.to(name)
        pairs: list[tuple[float, float]] = []
        for session in range(SESSIONS):
            pairs += uvloop.run(_pairs(members, settings, len(range(session, rounds, SESSIONS)), calls))
        title = f"{name}: {upstreams} upstreams, {rounds} rounds of {calls:,} calls each, {AT_ONCE} at once"
        sections.append(_section(title, pairs))
    return Outcome(sections)


async def _pairs(
    members: Sequence[str], settings: dict[str, object], rounds: int, calls: int
) -> list[tuple[float, float]]:
    """CPU a call in µs, of a ClientSession as the library makes its own, called in turn at each upstream, and of
    the library, one pair a round; each begins every other time."""
    known = {member: {"zone": zone} for member, zone in zip(members, cycle(ZONES), strict=False)}
    urls = [f"http://{member}/products/{key}" for key, member in zip(range(KEYS), cycle(members), strict=False)]
    paths, keys = [f"/products/{key}" for key in range(KEYS)], [str(key) for key in range(KEYS)]
    async with (
        ClientSession(connector=TCPConnector(limit=0), cookie_jar=DummyCookieJar()) as plain,
        Session(upstreams=known, settings=settings, zone=ZONES[0], max_outbound=1000) as session,
    ):
        turns: tuple[Get, Get] = (
            lambda number: plain.get(urls[number]),
            lambda number: session.get(paths[number], key=keys[number]),
        )
        for get in turns:
            await _turn(get, KEYS * 2)
        pairs = []
        for number in range(rounds):
            took = {which: await _turn(turns[which], calls) for which in ((0, 1) if number % 2 else (1, 0))}
            pairs.append((took[0], took[1]))
    return pairs


async def _turn(get: Get, calls: int) -> float:
    """Microseconds of this process's CPU a call, AT_ONCE of them at a time."""

    async def caller(first: int) -> None:
        for number in islice(cycle(range(KEYS)), first, first + calls // AT_ONCE):
            async with get(number) as response:
                await response.read()

    began = time.process_time()
    await asyncio.gather(*(caller(number * KEYS // AT_ONCE) for number in range(AT_ONCE)))
    return (time.process_time() - began) / calls * 1e6


def _section(title: str, pairs: Sequence[tuple[float, float]]) -> Section:
    """The median of each round's share: the machine changes less within a round."""
    shares = [library / plain - 1 for plain, library in pairs]
    figures = [
        Figure("CPU of the aiohttp call", median(plain for plain, _ in pairs), "µs"),
        Figure("CPU of the library's call", median(library for _, library in pairs), "µs"),
        Figure("the library's own share of the call it wraps", median(shares), "", at_most=GOAL_SHARE),
        Figure("the same, in nine of ten rounds at most", percentile(shares, 0.9)),
    ]
    return Section(title, figures)

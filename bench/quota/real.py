"""Callers in real time: three router processes on one Redis, the caller's library over real sockets, and time
compressed (limits so many times as high, calls so many times as short)."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from random import Random

import uvloop

from bench.fleet import Fleet
from bench.http import send_json
from bench.machine import Shares, Surroundings
from bench.processes import Processes
from bench.quota.asking import Recorded, Spread
from bench.quota.book import Book, Standing
from bench.quota.crowds import Crowd
from slb.quota.asking import Instances, Persistence
from slb.quota.client import Router

INSTANCES = 3
LEASE_SECONDS, LEAST_LEASE_SECONDS = 150.0, 3.0
"""The router's default, and the shortest that it takes."""


@dataclass(frozen=True)
class Run:
    """`shares`: of the machine's time meanwhile."""

    standing: Standing
    shares: Shares


def demanded(home: Path, crowd: Crowd, factor: float, seconds: float, what: str) -> Run:
    """What a crowd that is hurried by `factor` comes to in so many seconds; what still runs then is cut off. The
    routers are its own, in a new folder; callers ask the instances in turn."""
    home.mkdir()
    crowd = crowd.hurried(factor).for_seconds(seconds)
    settings, book, models = home / "slb.toml", Book(), crowd.setting.models
    lease = max(LEAST_LEASE_SECONDS, LEASE_SECONDS / factor)  # compressed as calls are
    settings.write_text(f'roles = "quota"\nquota_lease = "{lease:g}s"\n')
    with Processes() as processes, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        fleet = Fleet(processes, home)
        ports = [each.api_port for each in fleet.start_instances(INSTANCES, "--config", str(settings))]
        for model in models:
            limits = {"max_tokens_per_minute": model.limit, "max_concurrent_requests": model.slots}
            body = {**limits, "weight": model.weight, "burst": model.burst}
            send_json("PUT", ports[0], f"/models/{model.name}", body)
        rng = Random(crowd.setting.seed)
        instances = [Instances([f"http://127.0.0.1:{port}"], None, Persistence(), rng) for port in ports]

        async def ask() -> None:
            async with Router(Recorded(Spread(instances), book)) as router:
                await crowd.ask(router, seconds, book)

        surroundings = Surroundings()
        runner.run(ask())
        shares = surroundings.shares()
        fleet.check_alive()
    return Run(Standing(f"slb, {INSTANCES} real routers, {what}", book, models, factor), shares)

"""Handoffs through real `slb serve` processes: pods in a process of their own, clients in this one."""

import asyncio
import time
from dataclasses import asdict
from random import Random
from typing import Any

import orjson

from bench.errors import BenchError
from bench.fleet import Fleet
from bench.handoff.gaps import Gap, Handoffs
from bench.handoff.plan import QUEUE_SECONDS, SETTINGS, WARM_UP_SECONDS, Plan
from bench.handoff.pods import Plan as PodsPlan
from bench.http import ask, free_ports, get_text
from bench.local import Loop
from bench.processes import Processes, wait_until
from bench.traffic import KeptAlive
from slb.control import keys

READY_SECONDS = 15.0
SERVED = 200


class Pods:
    """Twenty or so in one process, that all end in step, or each on its own; a route of their own names them."""

    def __init__(self, processes: Processes, fleet: Fleet, plan: Plan, in_step: bool) -> None:
        control, *ports = free_ports(plan.pods + 1)
        self.path = "/in-step" if in_step else "/out-of-step"
        self.in_step = in_step
        self._control = control
        home = fleet.folder("pods")
        told = home / "plan.json"
        told.write_bytes(orjson.dumps(asdict(PodsPlan(control, ports, plan.service, in_step, plan.seed))))
        running = processes.start_module(home, "bench.handoff.pods", told)
        wait_until(lambda: ask(control, "/")[0] == SERVED, running, READY_SECONDS, "starting the pods")
        redis: Any = fleet.redis.client  # its stubs know of no mapping of texts
        redis.hset(keys.settings_key(self.path), mapping=SETTINGS)
        redis.sadd(keys.route_key(self.path), *(f"127.0.0.1:{port}" for port in ports))

    def take(self) -> tuple[list[Gap], int]:
        """What they noted since the last take."""
        gaps, crowded = orjson.loads(get_text(self._control, "/"))
        return [Gap(*gap) for gap in gaps], crowded


class Clients:
    """So many, each with one request after another through an instance chosen at random. The request says which."""

    def __init__(self, fleet: Fleet, path: str, rng: Random) -> None:
        ports = [instance.port for instance in fleet.instances]
        self._doors = [KeptAlive(port, f"{path}?{number}", 2 * QUEUE_SECONDS) for number, port in enumerate(ports)]
        self._rng = rng
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self.failed = 0

    async def start(self, count: int) -> None:
        self._tasks = [asyncio.create_task(self._client()) for _ in range(count)]

    async def stop(self) -> None:
        """Ask no more, and wait for what has been asked."""
        self._stopping = True
        await asyncio.gather(*self._tasks)
        for door in self._doors:
            door.close()

    async def _client(self) -> None:
        while not self._stopping:
            status = await self._rng.choice(self._doors).ask()
            if status != SERVED:
                self.failed += 1
                return


def measure_fleet(fleet: Fleet, loop: Loop, pods: Pods, plan: Plan) -> Handoffs:
    """Through all instances that the fleet has now. Raises BenchError where a request fails."""
    clients = Clients(fleet, pods.path, Random(plan.seed))
    loop.run(clients.start(plan.clients))
    time.sleep(WARM_UP_SECONDS)
    pods.take()
    time.sleep(plan.seconds)
    gaps, crowded = pods.take()
    loop.run(clients.stop())
    for instance in fleet.instances:
        instance.running.check_alive()
    if clients.failed:
        raise BenchError(f"{clients.failed} requests through {len(fleet.instances)} instances failed")
    return Handoffs("slb serve", len(fleet.instances), pods.in_step, gaps, crowded)

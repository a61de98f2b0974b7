"""The lab: pods that stay, fleets that come one after another, and the load."""

import time
from dataclasses import asdict
from pathlib import Path

import orjson

from bench.errors import BenchError
from bench.gpu.balancers import Balancer, Stage
from bench.gpu.load import Plan, Result
from bench.gpu.standing import Standing
from bench.gpu.work import Shape, Work
from bench.http import ask, free_ports
from bench.processes import Processes, wait_until
from bench.progress import Steps

READY_SECONDS = 15.0
GIVE_UP_SECONDS = 120.0
LOOK_EVERY_SECONDS = 0.2


class Lab:
    """Owns the pods; they serve from its making on."""

    def __init__(self, processes: Processes, home: Path, shape: Shape) -> None:
        self._processes = processes
        self._home = home
        self.shape = shape
        self._pods = free_ports(shape.pods)
        self._turns = 0
        running = processes.start_module(home / "pods", "bench.gpu.pods", *self._pods)
        wait_until(self._answer, running, READY_SECONDS, "starting the pods")

    def take(self, balancer: Balancer, work: Work, steps: Steps) -> Standing:
        """One balancer's turn: a fresh fleet, the work, and the fleet's end. One that fails says why."""
        begun = steps.count
        try:
            result = self._loaded(balancer, work, steps)
        except (BenchError, OSError) as error:
            return Standing(balancer.label, failure=str(error))
        finally:
            steps.done(begun + steps_of(work) - steps.count)
        return Standing.of(balancer.label, result)

    def _loaded(self, balancer: Balancer, work: Work, steps: Steps) -> Result:
        self._turns += 1
        home = self._home / f"turn-{self._turns}"
        home.mkdir()
        with Processes() as fleet:
            steps.to(f"{work.name}: starting {balancer.label}")
            started = balancer.start(Stage(fleet, home, self._pods, self.shape.proxies))
            steps.to(f"{work.name}: {balancer.label}")
            result = self._send(Plan.of(work, started.ports, GIVE_UP_SECONDS), steps)
            for one in started.running:
                one.check_alive()
            started.end()
        return result

    def _send(self, plan: Plan, steps: Steps) -> Result:
        name = f"load-{self._turns}"
        told, found = self._home / f"{name}.plan", self._home / f"{name}.result"
        told.write_bytes(orjson.dumps(asdict(plan)))
        running = self._processes.start_module(self._home / name, "bench.gpu.load", told, found)
        begun, shown = time.monotonic(), 0
        while (code := running.process.poll()) is None:
            time.sleep(LOOK_EVERY_SECONDS)
            now = min(int(time.monotonic() - begun), int(plan.arrivals[-1]))
            steps.done(now - shown)
            shown = now
        if code:
            raise BenchError(f"the load ended with {code}: {running.tail()}")
        self._processes.stop(running)
        return Result(**orjson.loads(found.read_bytes()))

    def _answer(self) -> bool:
        return all(ask(port, "/")[0] == 200 for port in self._pods)


def steps_of(work: Work) -> int:
    """Of the bar, per balancer: seconds."""
    return int(work.seconds) + 1

"""The ledger alone: the same handoffs with nothing but slb's gates between, all instances in this process."""

import asyncio
import time
from collections.abc import Callable, Sequence
from random import Random

import uvloop

from bench.errors import BenchError
from bench.handoff.gaps import Book, Handoffs, Schedule
from bench.handoff.plan import SETTINGS, WARM_UP_SECONDS, Plan
from bench.simulated import Request, Simulated, simulated
from bench.timers import Timers
from slb.model import RouteSettings


class Clients:
    """So many, each with one request after another through an instance chosen at random."""

    def __init__(self, instances: Sequence[Simulated], timers: Timers, schedule: Schedule, rng: Random) -> None:
        self._instances = instances
        self._timers = timers
        self._schedule = schedule
        self._rng = rng
        self._stopping = False
        self._ended = asyncio.Event()
        self._asking = 0
        self.book = Book()
        self.failed: str = ""

    def ask(self) -> None:
        """One request; when it is served its client asks again."""
        self._asking += 1
        number = self._rng.randrange(len(self._instances))

        def admitted(member: str, release: Callable[[], None]) -> None:
            now = time.monotonic()
            self.book.began(member, str(number), now)
            self._timers.at(self._schedule.end_of(now), lambda: served(member, release))

        def served(member: str, release: Callable[[], None]) -> None:
            self.book.ended(member, str(number), time.monotonic())
            release()
            self._served()

        self._instances[number].enter(Request(admitted, self._note))

    async def stop(self) -> None:
        """Ask no more, and wait for those who have asked."""
        self._stopping = True
        await self._ended.wait()

    def _served(self) -> None:
        self._asking -= 1
        if not self._stopping:
            self.ask()
        elif not self._asking:
            self._ended.set()

    def _note(self, why: str) -> None:
        self.failed = why
        self._served()


async def _handoffs(url: str, instances: int, in_step: bool, plan: Plan) -> Handoffs:
    members = [f"10.0.0.{number}:80" for number in range(plan.pods)]
    settings = RouteSettings.model_validate(SETTINGS)
    timers = Timers(asyncio.get_running_loop())
    rng = Random(plan.seed)
    async with simulated(url, instances, members, settings, plan.seed) as fleet:
        clients = Clients(fleet, timers, Schedule(plan.service, in_step, rng), rng)
        for _ in range(plan.clients):
            clients.ask()
        await asyncio.sleep(WARM_UP_SECONDS)
        clients.book.take()
        await asyncio.sleep(plan.seconds)
        gaps, crowded = clients.book.take()
        await clients.stop()
    timers.close()
    if clients.failed:
        raise BenchError(f"the ledger alone: {clients.failed}")
    return Handoffs("the ledger alone", instances, in_step, gaps, crowded)


def measure_alone(url: str, instances: int, in_step: bool, plan: Plan) -> Handoffs:
    """Without HTTP, sockets to pods, or other processes than Redis."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_handoffs(url, instances, in_step, plan))

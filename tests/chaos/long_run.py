"""Rounds of faults under load, for as many minutes as asked for, and what was wrong."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.chaos.cap import Cap, CountedLeases
from tests.chaos.checker import Checker, Violation
from tests.chaos.cluster import Cluster, Failure
from tests.chaos.failovers import KINDS
from tests.chaos.faults import GENTLE, OF_INSTANCES, SETTLED_SECONDS, Lab
from tests.chaos.history import Granted, History, Span
from tests.chaos.route_book import RouteBook
from tests.chaos.upstream import Upstream
from tests.chaos.watchdog import Watchdog
from tests.process.commands import Commands

UPSTREAMS = 5
CLIENTS = 40
SERVICE_SECONDS = 0.08
CAP = 1
AFTERWARDS_SECONDS = 5.0
SLACK, PATIENCE = 0.5, 4.0
"""Seconds, of the checker: how late what is seen may be, and how long a slot may stay free."""

CALM_SECONDS = 0.0, 3.0
"""Between two faults: often the next one comes before all is well again."""

EMPTY_SECONDS = 15.0
"""In which all counts are zero once all requests have been answered: a dead instance's lease has to end."""

SHOWN_BEFORE = 4
"""Faults before a violation that its line names."""

SILENCE_BEFORE_SECONDS = 10.0

_LOOK = 0.1


@dataclass(frozen=True)
class Plan:
    """`server`: the program, None for the embedded Valkey. `warm_up`: seconds before the first fault. `kind`: of
    Redis, one of KINDS."""

    seconds: float
    seed: int
    faults: Sequence[str]
    server: Path | None
    instances: int
    warm_up: float
    kind: str = "one"


@dataclass
class Found:
    """What a run came to."""

    violations: list[Violation] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    grants: int = 0
    worst: int = 0
    strict: int = 0
    late: int = 0
    silences: int = 0
    longest_silence: float = 0.0
    unmeant: int = 0
    """Silences beyond what requests wait for, though no fault was to make one: the machine is too busy."""


Print = Callable[[str], None]


class Run:
    """One fleet through all rounds; `write` gets a line for each violation, as soon as it is known."""

    def __init__(self, plan: Plan, lab: Lab[Any], watchdog: Watchdog, found: Found, write: Print) -> None:
        self._plan = plan
        self._lab = lab
        self._write = write
        self._found = found
        self._watchdog = watchdog
        self._begun = lab.now()
        self._before: deque[str] = deque(maxlen=SHOWN_BEFORE)

    async def rounds(self) -> None:
        """Until the time is over; the last round is not cut short."""
        await self._lab.book.begin(self._lab.cluster.alive)
        await asyncio.sleep(self._plan.warm_up)
        async with self._lab.book.renewing(lambda: self._lab.cluster.alive):
            while not self._found.rounds or self._lab.now() - self._begun < self._plan.seconds:
                await self._round()
                self._found.rounds += 1

    async def _round(self) -> None:
        """Every fault once, in an order that the seed gives; then all are answered, and everything is looked at."""
        lab, names = self._lab, list(self._plan.faults)
        lab.rng.shuffle(names)
        async with lab.cluster.clients(CLIENTS, Random(lab.rng.random())):
            await asyncio.sleep(max(CALM_SECONDS))
            for name in names:
                await self._faults([name, *self._meanwhile(name)])
                if self._is_over():
                    break
        await self._all_is_zero("end of round")
        await self._afterwards()

    def _is_over(self) -> bool:
        return bool(self._found.rounds) and self._lab.now() - self._begun > self._plan.seconds

    def _meanwhile(self, name: str) -> list[str]:
        """Half of what is done to an instance has a fault of Redis beside it."""
        gentle = [each for each in self._plan.faults if each in GENTLE]
        if name not in OF_INSTANCES or not gentle or self._lab.rng.random() < 0.5:
            return []
        return [self._lab.rng.choice(gentle)]

    async def _faults(self, names: Sequence[str]) -> None:
        """All at one time; then what can be known is judged."""
        lab, name = self._lab, " and ".join(names)
        await lab.book.change(lab.cluster.alive)
        self._found.done.update(names)
        self._before.append(f"{name} at {lab.now() - self._begun:.3f} s")
        await asyncio.gather(*(KINDS[self._plan.kind].faults[each](lab) for each in names))
        await asyncio.sleep(lab.rng.uniform(*CALM_SECONDS))
        self._report(await lab.book.judged(lab.cluster.alive, lab.now(), name))
        self._report(self._crowds(name))
        self._report(self._failures(name))

    def _crowds(self, what: str) -> list[Violation]:
        """Too many at one upstream, though Redis was never silent for longer than requests wait for it."""
        cap, found, watchdog = self._lab.cap, self._found, self._watchdog
        for silence in watchdog.beyond_patience():
            found.unmeant += not any(span.meets(silence.start, silence.end) for span in cap.excused)
            cap.excused.append(Span(silence.start, silence.end + SETTLED_SECONDS))
        found.silences, found.longest_silence = len(watchdog.silences), watchdog.longest(0.0)
        return cap.judged(self._lab.now(), what)

    def _failures(self, what: str) -> list[Violation]:
        """Requests whose instance was there all the while, in one for each status."""
        failures, self._lab.cluster.failures = self._lab.cluster.failures, []
        by_status: dict[int, list[Failure]] = {}
        for each in failures:
            if not self._lab.cluster.history.was_stalled(each.instance, each.asked, each.time):
                by_status.setdefault(each.status, []).append(each)
        return [
            Violation("failed", of[0].time, f"{len(of)} requests with status {status or 'none'}: {what}")
            for status, of in by_status.items()
        ]

    async def _all_is_zero(self, what: str) -> None:
        """Nothing asks any more."""
        lab = self._lab
        cluster, history = lab.cluster, lab.cluster.history
        deadline = lab.now() + EMPTY_SECONDS
        while (remaining := await asyncio.to_thread(cluster.remaining)) and lab.now() < deadline:
            await asyncio.sleep(_LOOK)
        left = ", ".join(f"{name}: {count}" for name, count in remaining.items())
        self._report([Violation("not zero", lab.now(), f"{left}: {what}")] if left else [])
        self._report([*self._crowds(what), *self._failures(what)])
        self._found.grants += sum(isinstance(event, Granted) for event in history.events)
        self._found.worst, self._found.strict, self._found.late = lab.cap.worst, lab.cap.strict, lab.cap.late
        history.events.clear()

    async def _afterwards(self) -> None:
        """There are no faults: leases and the order of the queue are right, as the checker of the short run
        has it. While an instance logs that it decides alone, it judges neither."""
        cluster, history = self._lab.cluster, self._lab.cluster.history
        history.disturbed.clear()
        await self._lab.book.let_lapse(cluster.alive)
        watching = asyncio.create_task(cluster.watch())
        async with cluster.clients(CLIENTS, Random(self._lab.rng.random())):
            await asyncio.sleep(AFTERWARDS_SECONDS)
        watching.cancel()
        await asyncio.wait([watching])
        cluster.note_local_turns(SLACK)
        capacities = {"/p": dict.fromkeys(cluster.members, CAP)}
        self._report(Checker(history, capacities, SLACK, PATIENCE).check().violations)
        self._report(await self._lab.book.judged(cluster.alive, self._lab.now(), "afterwards, a lease among it"))
        await self._all_is_zero("afterwards")

    def _report(self, violations: Sequence[Violation]) -> None:
        self._found.violations += violations
        for each in violations:
            silent = self._watchdog.longest(each.time - SILENCE_BEFORE_SECONDS)
            self._write(
                f"seed {self._plan.seed} {each.time - self._begun:8.3f} s {each.rule}: {each.what} "
                f"(done: {', '.join(self._before)}; Redis silent for {silent:.1f} s at most)"
            )


@asynccontextmanager
async def lab_of(plan: Plan, home: Path) -> AsyncIterator[Lab[Any]]:
    """Redis, upstreams and instances; all of them are gone when this ends."""
    history, cap, rng = History(time.time), Cap(CAP), Random(plan.seed)
    leases = CountedLeases(history, cap)
    async with AsyncExitStack() as stack:
        server = KINDS[plan.kind].make(plan.server)
        stack.callback(server.close)
        slb = Commands(home)
        stack.push_async_callback(slb.close)
        made = [Upstream(history, leases, SERVICE_SECONDS) for _ in range(UPSTREAMS)]
        upstreams = [await stack.enter_async_context(each.serving()) for each in made]
        cluster = Cluster(slb, server, history, leases, upstreams)
        cluster.register()
        for _ in range(plan.instances):
            await cluster.start()
        yield Lab(cluster, server, cap, RouteBook(slb.session, server, rng), rng)

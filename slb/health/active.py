"""Active health checks: each check of each upstream is made once per interval by the whole fleet.

Every instance asks which checks are due, for many of them at a time. Each check falls to the first that asks, and
all use its result. While Redis is away each instance makes all checks itself and uses its own results.
"""

import asyncio
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Protocol

import structlog

from slb.balance.health_state import FOUND_BY_OTHERS, State, Tally, moved
from slb.balance.upstream import LiveUpstream
from slb.control.health_store import AT_ONCE, Answer, Ask, Report
from slb.errors import RedisUnavailable
from slb.health.roster import Watched
from slb.model import HealthCheck, Upstream
from slb.observe.changes import Note, unnoted
from slb.observe.health import HealthCounts
from slb.routing.availability import Availability

_OWN_EYES = -1
"""The claim of a check that was made without Redis."""

_log = structlog.get_logger("slb.health")


class Store(Protocol):
    """The fleet's checks in Redis. Each call raises RedisUnavailable."""

    @property
    def up(self) -> bool: ...
    async def claim(self, asks: Sequence[Ask], room: int) -> list[Answer]: ...
    async def report(self, reports: Sequence[Report]) -> int: ...


class Probe(Protocol):
    """Makes one check; returns why it failed, None where it passed."""

    async def fault(self, upstream: Upstream, check: HealthCheck) -> str | None: ...


@dataclass(frozen=True, slots=True)
class ActiveTiming:
    """Seconds, but for `jitter` (the part of an interval by which checks vary) and `at_once` (checks running)."""

    first: float = 1.0
    jitter: float = 0.1
    settle: float = 0.02
    at_once: int = 64


class Active:
    """`turn` is to be called when `due` has come; `aclose` ends the checks that run. `passed` is called for each
    check made here that passes, `note` where one turns an upstream."""

    def __init__(
        self,
        store: Store,
        probe: Probe,
        availability: Availability,
        counts: HealthCounts,
        passed: Callable[[LiveUpstream], None],
        rng: Random,
        clock: Callable[[], float],
        timing: ActiveTiming,
        note: Note = unnoted,
    ) -> None:
        self._store = store
        self._probe = probe
        self._availability = availability
        self._counts = counts
        self._passed = passed
        self._rng = rng
        self._clock = clock
        self._timing = timing
        self._note = note
        self._next: list[tuple[float, int, Watched]] = []
        self._order = count()
        self._running: set[asyncio.Task[None]] = set()
        self._found: list[Report] = []
        self._reporting: asyncio.Task[None] | None = None
        self._changed: set[str] = set()
        self._alone = False

    def add(self, watched: Watched) -> None:
        """Check it soon, and as long as it is used."""
        self._ask_after(watched, self._rng.uniform(0, min(self._timing.first, watched.check.interval)))

    def due(self) -> float | None:
        """When the next check may be due; None where there is none."""
        return self._next[0][0] if self._next else None

    async def turn(self) -> None:
        """Ask which checks are due here, and begin them."""
        watched = self._take_due()
        if not watched:
            return
        room = self._timing.at_once - len(self._running)
        answers = await self._answers(watched, room)
        for each, answer in zip(watched, answers, strict=True):
            if each.uses:
                self._follow(each, answer)

    def adopt(self, watched: Watched, state: str, run: int) -> None:
        """Take over the fleet's result; without one the local result stays."""
        before = watched.tally.state
        if before == state:
            watched.tally = Tally(before, run)
        elif state in (State.UP, State.DOWN):
            self._conclude(watched, Tally(moved(before, State(state)), run), FOUND_BY_OTHERS)

    async def aclose(self) -> None:
        running = self._running | ({self._reporting} if self._reporting else set())
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    def _take_due(self) -> list[Watched]:
        now = self._clock()
        taken: list[Watched] = []
        while self._next and self._next[0][0] <= now and len(taken) < AT_ONCE:
            watched = heapq.heappop(self._next)[2]
            if watched.uses:
                taken.append(watched)
        return taken

    async def _answers(self, watched: Sequence[Watched], room: int) -> list[Answer]:
        asks = [self._ask(each) for each in watched]
        if self._store.up:
            try:
                answers = await self._store.claim(asks, room)
            except RedisUnavailable as error:
                _log.debug("health_not_shared", error=str(error))
            else:
                self._show_alone(False)
                return answers
        self._show_alone(True)
        return [_own(ask, index < room) for index, ask in enumerate(asks)]

    def _ask(self, watched: Watched) -> Ask:
        check, tally = watched.check, watched.tally
        hold = max(check.timeout, check.interval * self._rng.uniform(1 - self._timing.jitter, 1))
        return Ask(watched.upstream.member, check, tally.state.value, tally.run, hold)

    def _follow(self, watched: Watched, answer: Answer) -> None:
        """Apply the fleet's result, make the check where it is claimed here, and ask again when it is due."""
        self.adopt(watched, answer.state, answer.run)
        if answer.claim:
            task = asyncio.create_task(self._check(watched, answer.claim))
            self._running.add(task)
            task.add_done_callback(self._ended)
        self._ask_after(watched, answer.wait + self._rng.uniform(0, self._timing.jitter * watched.check.interval))

    def _ask_after(self, watched: Watched, seconds: float) -> None:
        heapq.heappush(self._next, (self._clock() + seconds, next(self._order), watched))

    async def _check(self, watched: Watched, claim: int) -> None:
        check, upstream = watched.check, watched.upstream
        fault = await self._probe.fault(upstream.spec, check)
        if not watched.uses or not self._availability.is_current(upstream):
            return
        self._counts.checks[upstream.member, "failed" if fault else "passed"] += 1
        before, tally = watched.tally.state, watched.tally.after(fault is None, check)
        if tally.state is not before:  # the whole fleet finds it by this one check
            self._note_turn(watched, before, tally.state, fault or "it passes")
        self._conclude(watched, tally, fault or "it passes")
        if fault is None:
            self._passed(upstream)
        if claim != _OWN_EYES:
            self._found.append(Report(upstream.member, check, claim, tally.state.value, tally.run))
            if self._reporting is None:
                self._reporting = asyncio.create_task(self._report())
                self._reporting.add_done_callback(self._reported)

    def _note_turn(self, watched: Watched, before: State, now: State, why: str) -> None:
        detail = f"{watched.check.path}: {why}"
        if now is State.DOWN:
            self._note("check_failed", watched.upstream.member, detail)
        elif before is State.DOWN:
            self._note("check_passed", watched.upstream.member, detail)

    async def _report(self) -> None:
        """Results that come during a call go with the next."""
        while self._found:
            some, self._found = self._found[:AT_ONCE], self._found[AT_ONCE:]
            try:
                await self._store.report(some)
            except RedisUnavailable as error:
                _log.debug("health_not_reported", checks=len(some), error=str(error))

    def _reported(self, task: "asyncio.Task[None]") -> None:
        self._reporting = None
        self._ended(task)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("health_check_broke", exc_info=error)

    def _conclude(self, watched: Watched, tally: Tally, why: str) -> None:
        before, watched.tally = watched.tally.state, tally
        if tally.state is before:
            return
        upstream, check = watched.upstream, watched.check
        is_up = tally.state is State.UP
        if before is State.UP:
            upstream.passed_at = self._clock()
        upstream.down = upstream.down - {check} if is_up else upstream.down | {check}
        upstream.passing = upstream.passing | {check} if is_up else upstream.passing - {check}
        self._availability.moved(upstream, before, tally.state, f"{check.path}: {why}")
        if not self._changed:
            asyncio.get_running_loop().call_later(self._timing.settle, self._settle)
        self._changed.add(upstream.member)

    def _settle(self) -> None:
        """Many change at once when a rack fails, and each refresh looks at every route."""
        changed, self._changed = self._changed, set()
        self._availability.refresh(changed)

    def _show_alone(self, alone: bool) -> None:
        if alone is not self._alone:
            self._alone = alone
            _log.info("health_checks_alone" if alone else "health_checks_shared")


def _own(ask: Ask, has_room: bool) -> Answer:
    """Without Redis each instance makes all checks."""
    return Answer(_OWN_EYES if has_room else 0, ask.hold if has_room else 0.0, "", 0)

"""Active health checks: each check of each upstream is made once per interval by the whole fleet.

Every instance asks which checks are due, for many of them at a time. Each check falls to the first that asks, and
all use its result. While Redis is away each instance makes all checks itself and uses its own results.

No host alone turns an upstream down for all, where there is another: its network may be at fault. Where all
failures in a row were found on one host, and the next would be enough, its instances leave that check to others for
a part of the interval. They make it themselves where none has taken it by then.
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
from slb.control.health_store import AT_ONCE, Answer, Ask, Outcome, Report
from slb.errors import RedisUnavailable
from slb.health.flapping import WINDOW, Flapping
from slb.health.roster import Watched
from slb.model import HealthCheck, Upstream
from slb.observe.changes import Note, What, unnoted
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
    async def report(self, reports: Sequence[Report]) -> list[Outcome]: ...


class Probe(Protocol):
    """Makes one check; returns why it failed, None where it passed."""

    async def fault(self, upstream: Upstream, check: HealthCheck) -> str | None: ...


@dataclass(frozen=True, slots=True)
class ActiveTiming:
    """Seconds, but for `jitter` (the part of an interval by which checks vary) and `at_once` (checks running).
    `grace`: how much longer than its check may take a claim is held at least. A result that comes later is lost, so
    it has room for a busy machine and for the call to Redis. Where an instance ends in the middle of a check, the
    next check of that upstream is so much later at most. `left`: the part of an interval for which a check is left
    to other hosts; all ask within `jitter` of an interval after it is due."""

    first: float = 1.0
    jitter: float = 0.1
    settle: float = 0.02
    at_once: int = 64
    grace: float = 2.0
    left: float = 0.5


@dataclass(frozen=True, slots=True)
class _Found:
    """What a check has found that was claimed in Redis: the tally and `Watched.suspected` as they are if its report
    counts. `fault` is None where the check passed."""

    watched: Watched
    tally: Tally
    fault: str | None
    suspected: int
    report: Report


class Active:
    """`turn` is to be called when `due` has come; `aclose` ends the checks that run. `passed` is called for each
    check made here that passes, `note` where one turns an upstream. `host`: a name without blanks; `elsewhere`:
    whether instances on other hosts make checks too."""

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
        host: str = "",
        elsewhere: Callable[[], bool] = lambda: False,
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
        self._host = host
        self._elsewhere = elsewhere
        self._next: list[tuple[float, int, Watched]] = []
        self._order = count()
        self._running: set[asyncio.Task[None]] = set()
        self._found: list[_Found] = []
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
        for each in watched:
            each.heard = False
        asks = [self._ask(each) for each in watched]
        answers = await self._answers(asks, self._timing.at_once - len(self._running))
        for each, ask, answer in zip(watched, asks, answers, strict=True):
            if each.uses:
                self._follow(each, ask, answer)

    def adopt(self, watched: Watched, state: str, run: int) -> None:
        """Take over a result that another instance has published. While a report of this one is on its way, the
        reply to it says what holds."""
        watched.heard = True
        if not watched.reporting:
            self._adopt(watched, state, run)

    def suspect(self, watched: Watched, host: str, run: int) -> None:
        """So many checks in a row have failed, all of them on `host`."""
        if host == self._host and watched.tally.state is not State.DOWN:
            watched.tally, watched.suspected = Tally(watched.tally.state, run), run

    def _adopt(self, watched: Watched, state: str, run: int) -> None:
        """The fleet's result; without one the local result stays."""
        before = watched.tally.state
        if not run or before != state:
            watched.suspected = 0
        if before == state:
            watched.tally = Tally(before, run)
        elif state in (State.UP, State.DOWN):
            self._conclude(watched, Tally(moved(before, State(state)), run), FOUND_BY_OTHERS, ours=False)

    async def aclose(self) -> None:
        running = self._running | ({self._reporting} if self._reporting else set())
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    def _take_due(self) -> list[Watched]:
        now = self._clock()
        taken: list[Watched] = []
        busy: list[Watched] = []
        while self._next and self._next[0][0] <= now and len(taken) < AT_ONCE:
            watched = heapq.heappop(self._next)[2]
            if not watched.uses:
                continue
            if watched.checking:
                busy.append(watched)
            elif watched.tally.run and not watched.left and self._is_doubtful(watched):
                watched.left = True
                self._ask_again(watched, self._timing.left * watched.check.interval)
            else:
                taken.append(watched)
        for each in busy:
            self._ask_again(each, 0.0)
        return taken

    def _is_doubtful(self, watched: Watched) -> bool:
        """Whether one more failure here would be enough, and no other host has found one of those in a row, though
        there are others."""
        tally, fall = watched.tally, watched.check.fall
        would_turn = tally.state is not State.DOWN and tally.run + 1 >= fall
        return would_turn and watched.suspected == tally.run and self._store.up and self._elsewhere()

    async def _answers(self, asks: Sequence[Ask], room: int) -> list[Answer]:
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
        interval = check.interval * self._rng.uniform(1 - self._timing.jitter, 1)
        hold = max(check.timeout + self._timing.grace, interval)
        return Ask(watched.upstream.member, check, tally.state.value, tally.run, hold)

    def _follow(self, watched: Watched, ask: Ask, answer: Answer) -> None:
        """Apply the fleet's result, make the check where it is claimed here, and ask again after an interval: a
        check whose result has come is due again before its claim ends."""
        if (answer.claim or not watched.heard) and not watched.reporting:
            self._adopt(watched, answer.state, answer.run)
        watched.left = watched.left and answer.claim > 0
        self._tell_flapping(watched, watched.turns.over(self._clock()), watched.tally.state)
        if answer.claim:
            watched.checking = True
            task = asyncio.create_task(self._check(watched, answer.claim, ask.hold))
            self._running.add(task)
            task.add_done_callback(self._ended)
        self._ask_again(watched, min(answer.wait, watched.check.interval))

    def _ask_again(self, watched: Watched, seconds: float) -> None:
        """Later by a part of the interval, so that not all instances ask at once."""
        self._ask_after(watched, seconds + self._rng.uniform(0, self._timing.jitter * watched.check.interval))

    def _ask_after(self, watched: Watched, seconds: float) -> None:
        heapq.heappush(self._next, (self._clock() + seconds, next(self._order), watched))

    async def _check(self, watched: Watched, claim: int, hold: float) -> None:
        check, upstream = watched.check, watched.upstream
        try:
            fault = await self._probe.fault(upstream.spec, check)
        finally:
            watched.checking = False
        if not self._is_wanted(watched):
            return
        self._counts.checks[upstream.member, "failed" if fault else "passed"] += 1
        before, tally = watched.tally, watched.tally.after(fault is None, check)
        if claim == _OWN_EYES:
            self._apply(watched, tally, fault)
            return
        if fault and not watched.left and self._is_doubtful(watched):
            tally = Tally(before.state, before.run + 1)
        watched.left = False
        suspected = watched.suspected + (watched.suspected == before.run) if fault else 0
        is_sole = suspected == tally.run and tally.state is before.state is not State.DOWN
        suspects = self._host if fault and is_sole and self._elsewhere() else ""
        early = max(0.0, hold - check.interval)
        report = Report(upstream.member, check, claim, tally.state.value, tally.run, early, suspects)
        watched.reporting = True
        self._found.append(_Found(watched, tally, fault, suspected, report))
        if self._reporting is None:
            self._reporting = asyncio.create_task(self._report())
            self._reporting.add_done_callback(self._reported)

    def _is_wanted(self, watched: Watched) -> bool:
        return watched.uses > 0 and self._availability.is_current(watched.upstream)

    async def _report(self) -> None:
        """Results that come during a call go with the next. They hold once Redis has taken them, and without Redis
        for this instance."""
        while self._found:
            some, self._found = self._found[:AT_ONCE], self._found[AT_ONCE:]
            outcomes: Sequence[Outcome | None] = [None] * len(some)
            try:
                outcomes = await self._store.report([each.report for each in some])
            except RedisUnavailable as error:
                _log.debug("health_not_reported", checks=len(some), error=str(error))
            finally:
                for each in some:
                    each.watched.reporting = False
            for each, outcome in zip(some, outcomes, strict=True):
                self._heed(each, outcome)

    def _heed(self, found: _Found, outcome: Outcome | None) -> None:
        """A result that came too late says nothing: another instance has the check, and the fleet's holds."""
        if not self._is_wanted(found.watched):
            return
        found.watched.heard = True
        if outcome is None or outcome.counted:
            found.watched.suspected = found.suspected
            self._apply(found.watched, found.tally, found.fault)
            self._tell_dispute(found)
        else:
            _log.debug("health_result_too_late", upstream=found.report.member, check=found.report.check.asked)
            self._adopt(found.watched, outcome.state, outcome.run)

    def _apply(self, watched: Watched, tally: Tally, fault: str | None) -> None:
        """The result of a check that was made here, which all the fleet finds by this one check."""
        self._conclude(watched, tally, fault or "it passes", ours=True)
        if fault is None:
            self._passed(watched.upstream)

    def _tell_dispute(self, found: _Found) -> None:
        """Say that checks fail here, in a row, between which others pass elsewhere."""
        watched, tally = found.watched, found.tally
        down = tally.state is State.DOWN
        watched.failed_here = watched.failed_here + 1 if found.fault and not down else 0
        failed, now = watched.failed_here, self._clock()
        if failed <= tally.run or failed < max(2, watched.check.fall) or now - watched.disputed_at < WINDOW:
            return
        watched.disputed_at = now
        member, asked = watched.upstream.member, watched.check.asked
        self._note("check_disputed", member, f"{asked}: {failed} times in a row, {found.fault}")
        _log.warning("health_check_disputed", upstream=member, check=asked, failures=failed, why=found.fault)

    def _tell_turn(self, watched: Watched, before: State, why: str, ours: bool) -> bool:
        """Whether the turn is told for itself, which it is not of an upstream that flaps. The fleet is told by the
        instance that made it."""
        now, state = self._clock(), watched.tally.state
        if before is State.UNKNOWN and state is State.UP:
            return True
        self._tell_flapping(watched, watched.turns.over(now), before)
        self._tell_flapping(watched, watched.turns.turned(now, ours), state, f": {why}")
        if watched.turns.flapping:
            return False
        if ours:
            what: What = "check_failed" if state is State.DOWN else "check_passed"
            self._note(what, watched.upstream.member, f"{watched.check.asked}: {why}")
        return True

    def _tell_flapping(self, watched: Watched, flapping: Flapping | None, state: State, why: str = "") -> None:
        if flapping is None:
            return
        member, asked, seconds = watched.upstream.member, watched.check.asked, round(flapping.seconds)
        if flapping.ours:
            told = f"{asked}: {flapping.turns} turns in {seconds} s, {state} now{why}"
            self._note("flapping", member, told)
        _log.warning(
            "upstream_flapping",
            upstream=member,
            check=asked,
            turns=flapping.turns,
            seconds=seconds,
            now=state.value,
        )

    def _reported(self, task: "asyncio.Task[None]") -> None:
        self._reporting = None
        self._ended(task)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("health_check_broke", exc_info=error)

    def _conclude(self, watched: Watched, tally: Tally, why: str, ours: bool) -> None:
        before, watched.tally = watched.tally.state, tally
        if tally.state is before:
            return
        upstream, check = watched.upstream, watched.check
        is_up = tally.state is State.UP
        if before is State.UP:
            upstream.passed_at = self._clock()
        upstream.down = upstream.down - {check} if is_up else upstream.down | {check}
        upstream.passing = upstream.passing | {check} if is_up else upstream.passing - {check}
        alone = self._tell_turn(watched, before, why, ours)
        self._availability.moved(upstream, before, tally.state, f"{check.asked}: {why}", quiet=not alone)
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

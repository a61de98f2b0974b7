"""A crowd in several processes, of which one is killed with `kill -9`, and a router too. What has to hold all the
same is judged from what the callers had written down."""

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from bench.errors import BenchError
from bench.machine import Shares, Surroundings
from bench.processes import STOP_SECONDS, Processes, Running, wait_until
from bench.progress import Steps
from bench.quota.caller import Orders
from bench.quota.crowds import Crowd
from bench.quota.held import overdrawn
from bench.quota.journal import Journals
from bench.quota.real import SHOW_SECONDS, STEPS_A_SECOND
from bench.quota.routers import INSTANCES, Routers, routers
from bench.quota.standing import Standing

CALLERS = 4
"""Processes; one of them is killed."""
CALLER_DIES, ROUTER_DIES = 0.25, 0.5
"""When, as parts of the run."""
START_SECONDS = 60.0
SLACK_SECONDS = 0.05
"""By so much a decision may be early: what the router allows who comes when told, and what its clock rounds."""
SETTLING_SECONDS = 10.0


@dataclass(frozen=True)
class Killed:
    """`in_hand`: tasks of the callers that were killed; `left`: what was in flight when all leases had lapsed.
    `over`: by how many seconds of its refill the worst interval, of whatever length, had more than one bucket and
    what was refilled and given back meanwhile."""

    standing: Standing
    shares: Shares
    in_hand: int
    twice: int
    left: int
    over: float


def killed(home: Path, crowd: Crowd, factor: float, seconds: float, steps: Steps) -> Killed:
    """What a crowd that is hurried by `factor` comes to, of which a quarter dies, and one of three routers."""
    label = f"slb, {INSTANCES} real routers, kill -9"
    steps.to(f"starting {INSTANCES} routers")
    crowd = crowd.hurried(factor).for_seconds(seconds)
    with routers(home, crowd.setting.models, factor) as serving, Processes() as processes:
        steps.to(label)
        run = _Run(home, serving, processes, steps)
        run.start(crowd)
        surroundings = Surroundings()
        run.until(CALLER_DIES * seconds)
        run.kill_caller()
        run.until(ROUTER_DIES * seconds)
        serving.kill_one()
        run.until(seconds)
        shares = surroundings.shares()
        run.stop()
        return run.judged(label, crowd, factor, seconds, shares)


class _Run:
    def __init__(self, home: Path, serving: Routers, processes: Processes, steps: Steps) -> None:
        self._home = home
        self._serving = serving
        self._processes = processes
        self._steps = steps
        self._callers: list[Running] = []
        self._journals = [home / f"caller-{number}.jsonl" for number in range(CALLERS)]
        self._shown = 0
        self._in_hand = 0

    def start(self, crowd: Crowd) -> None:
        """All callers; time counts from when each has been told something."""
        file = self._home / "orders.json"
        setting = crowd.setting
        orders = Orders(
            self._serving.urls,
            setting.models,
            setting.backlog,
            crowd.callers // CALLERS,
            CALLERS,
            setting.seed,
        )
        orders.write(file)
        self._first = time.monotonic()
        for number, journal in enumerate(self._journals):
            self._callers.append(self._caller(file, journal, number))
        for running, journal in zip(self._callers, self._journals, strict=True):
            wait_until(_has_lines(journal), running, START_SECONDS, "asking for the first time")
        self._began = time.monotonic()

    def _caller(self, orders: Path, journal: Path, number: int) -> Running:
        home = self._home / f"caller-{number}"
        return self._processes.start_module(home, "bench.quota.caller", orders, journal, number)

    def until(self, seconds: float) -> None:
        """So long since the beginning. Raises BenchError where somebody ends who should not."""
        while (since := time.monotonic() - self._began) < seconds:
            self._show(since)
            for running in self._callers:
                running.check_alive()
            self._serving.check_alive()
            time.sleep(min(SHOW_SECONDS, seconds - since))
        self._show(seconds)

    def kill_caller(self) -> None:
        """One process, once it has tasks in hand."""
        running, journal = self._callers.pop(), self._journals[-1]
        wait_until(lambda: bool(Journals.read([journal]).in_hand()), running, START_SECONDS, "taking up a task")
        self._processes.kill(running)
        self._in_hand = len(Journals.read([journal]).in_hand())

    def stop(self) -> None:
        """All that live give back what they have. Raises BenchError where one does not end well."""
        for running in self._callers:
            running.process.terminate()
        for running, journal in zip(self._callers, self._journals, strict=False):  # a killed one was the last
            with suppress(TimeoutExpired):
                running.process.wait(STOP_SECONDS)  # a second signal, as from `stop`, would end it at once
            self._processes.stop(running)
            has_begun = journal.exists()
            if running.process.returncode and (has_begun or running.process.returncode != -signal.SIGTERM):
                raise BenchError(f"a caller ended with {running.process.returncode}: {running.tail()}")

    def judged(self, label: str, crowd: Crowd, factor: float, seconds: float, shares: Shares) -> Killed:
        """By the callers' journals, and by what the routers say they took back."""
        left = self._left()
        abandoned = self._serving.abandoned()
        journals = Journals.read(self._journals)
        book = journals.book((task["task_id"] for task in abandoned), self._serving.lease - SLACK_SECONDS)
        for entry in book.all():
            entry.asked -= self._first
            entry.admitted -= self._first
            entry.ended -= self._first
        book.drained = book.exhausted = seconds + self._began - self._first
        standing = Standing(label, book, crowd.setting.models, factor)
        over = _most_over(standing, abandoned, self._first)
        return Killed(standing, shares, self._in_hand, len(journals.twice), left, over)

    def _left(self) -> int:
        """What is still in flight when every lease of the dead must have lapsed."""
        deadline = time.monotonic() + self._serving.lease + SETTLING_SECONDS
        while (left := self._serving.in_flight()) and time.monotonic() < deadline:
            time.sleep(SHOW_SECONDS)
        return left

    def _show(self, since: float) -> None:
        due = round(since * STEPS_A_SECOND)
        self._steps.done(due - self._shown)
        self._shown = due


def _has_lines(journal: Path) -> Callable[[], bool]:
    return lambda: journal.exists() and journal.stat().st_size > 0


def _most_over(standing: Standing, abandoned: list[dict[str, Any]], first: float) -> float:
    """Over all models, in seconds of their refill."""
    offset = time.time() - time.monotonic() + first
    worst = 0.0
    for model in standing.models:
        back = [
            (task["reclaimed_at"] - offset, task["estimated_tokens"])
            for task in abandoned
            if task["model_backend_id"] == model.name
        ]
        entries = standing.book.entries.get(model.name)
        if entries:
            worst = max(worst, overdrawn(entries, model.rate, model.burst, back) / model.rate)
    return worst

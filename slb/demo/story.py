"""The acts of the demo, and what must be true of each."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slb.demo.fleet import GPU_SLOTS, Fleet
from slb.demo.jobs import GPUS, JOBS, Jobs
from slb.demo.traffic import Account, Traffic

_BAR = 40


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of the demo, and whether the counts confirm it."""

    sentence: str
    true: bool
    counted: str


@dataclass
class Phase:
    """One act: what was counted in all of it; `exact` is the part in which the shares must be exact."""

    title: str
    short: str
    events: Account
    exact: Account
    planned: int

    @property
    def requests(self) -> int:
        return self.events.requests + self.exact.requests

    @property
    def failures(self) -> list[str]:
        return self.events.failures + self.exact.failures


class PlainScreen:
    """Prints a line for each event."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> "PlainScreen":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, phase: Phase) -> None:
        self._console.print(Text(f"\n{phase.title}", style="bold"), soft_wrap=True)

    def note(self, text: str) -> None:
        self._console.print(Text(f"  {text}"), soft_wrap=True)

    def claim(self, claim: Claim) -> None:
        mark = Text("  yes  ", style="green") if claim.true else Text("  NO   ", style="bold red")
        self._console.print(mark + Text(f"{claim.sentence}: {claim.counted}"), soft_wrap=True)


class LiveScreen(PlainScreen):
    """The same lines, and below them the answers of each upstream so far."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._phase: Phase | None = None
        self._live = Live(console=console, get_renderable=self._picture, refresh_per_second=10, transient=True)

    def __enter__(self) -> "LiveScreen":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def begin(self, phase: Phase) -> None:
        super().begin(phase)
        self._phase = phase

    def _picture(self) -> RenderableType:
        phase = self._phase
        if phase is None:
            return Text("  starting Valkey and two instances of slb ...", style="dim")
        table = Table.grid(padding=(0, 2))
        answers = phase.events.answers + phase.exact.answers
        most = max(answers.values(), default=1)
        for name in sorted(answers):
            bar = ProgressBar(total=most, completed=answers[name], width=_BAR)
            table.add_row(f"  upstream {name}", bar, str(answers[name]))
        counted = ProgressBar(total=phase.planned, completed=phase.exact.requests, width=_BAR)
        table.add_row("  exact count", counted, f"{phase.exact.requests} of {phase.planned}")
        failed = Text(f"  {phase.requests} requests, {len(phase.failures)} failed", style="dim")
        return Group(Text(""), table, failed)


def summary(phases: Sequence[Phase], names: Sequence[str]) -> Table:
    """What was counted, a row a phase. Upstreams' columns hold the exact part, which the claims are about."""
    table = Table("phase", "requests", "failed", *names, title="What was counted", title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for phase in phases:
        shares = [str(phase.exact.answers.get(name, "")) for name in names]
        table.add_row(phase.short, str(phase.requests), str(len(phase.failures)), *shares)
    table.caption = f"{names[0]} to {names[-1]}: who answered in the part of a phase that is counted exactly"
    table.caption_justify = "left"
    return table


COUNTED = 120  # requests of an exact count: divisible by two instances times three or four upstreams

NAMES = ("a", "b", "c", "d", "e")


class Story:
    """`tell` is called once; `phases` and `claims` are its results."""

    def __init__(self, fleet: Fleet, traffic: Traffic, screen: PlainScreen) -> None:
        self._fleet = fleet
        self._traffic = traffic
        self._screen = screen
        self.phases: list[Phase] = []
        self.claims: list[Claim] = []

    async def tell(self) -> None:
        await self._three_upstreams()
        await self._one_joins()
        await self._one_leaves()
        await self._redis_dies()
        await self._redis_is_back()
        await self._jobs_outlive_a_dispatcher()

    async def _three_upstreams(self) -> None:
        phase = self._begin("three upstreams, two instances, one DNS name", "three upstreams")
        await self._fleet.join("a", "b", "c")
        self._screen.note("a, b and c started and registered themselves through the first instance")
        before = [await self._fleet.requests_of(instance) for instance in self._fleet.instances]
        await self._count(phase, "abc")
        after = [await self._fleet.requests_of(instance) for instance in self._fleet.instances]
        served = [end - start for start, end in zip(before, after, strict=True)]
        half = COUNTED // len(served)
        self._claim("each instance served half of the requests", served == [half] * len(served), f"{served}")

    async def _one_joins(self) -> None:
        async with self._act("an upstream joins", "one joins", "abcd"):
            await self._fleet.join("d")
            self._screen.note(
                "d registered through the first instance while requests went on; both instances use it"
            )

    async def _one_leaves(self) -> None:
        async with self._act("an upstream leaves", "one leaves", "bcd"):
            code = await self._fleet.leave("a")
            self._screen.note("a got SIGTERM: it deregistered, finished what it had, and ended")
            self._claim("a ended in order", code == 0, f"exit code {code}")

    async def _redis_dies(self) -> None:
        async with self._act("Redis is killed (kill -9)", "Redis killed", "bcd"):
            await self._fleet.kill_redis()
            self._screen.note("Redis is gone, and both instances know it")

    async def _redis_is_back(self) -> None:
        async with self._act("Redis is back, and a new upstream with it", "Redis back", "bcde"):
            await self._fleet.revive_redis()
            self._screen.note("Redis is back, and both instances have found it")
            await self._fleet.join("e")
            self._screen.note("e registered through the first instance; both instances use it")

    @asynccontextmanager
    async def _act(self, title: str, short: str, upstreams: str) -> AsyncIterator[None]:
        """Requests go on while the block runs. Then exactly `upstreams` answer, and no request has failed."""
        phase = self._begin(title, short)
        async with self._traffic.flowing(phase.events):
            yield
        await self._count(phase, upstreams)
        first = f", the first: {phase.failures[0]}" if phase.failures else ""
        counted = f"{len(phase.failures)} of {phase.requests}{first}"
        self._claim("no request failed meanwhile", not phase.failures, counted)

    async def _jobs_outlive_a_dispatcher(self) -> None:
        phase, jobs = (
            self._begin(f"{JOBS} jobs, and a dispatcher is killed (kill -9)", "a dispatcher killed", JOBS),
            Jobs(self._fleet),
        )
        await jobs.submit()
        slots = len(GPUS) * GPU_SLOTS
        self._screen.note(
            f"the first instance has taken {JOBS} jobs; both dispatch them to {slots} slots of two GPUs"
        )
        running = await jobs.kill_one()
        self._screen.note(f"instance {jobs.killed.name} is gone; jobs that it was running: {running}")
        await jobs.collect()
        phase.exact.answers.update(jobs.results)
        phase.exact.failures += ["no result"] * (JOBS - jobs.results.total())
        counted = " ".join(f"{name}={count}" for name, count in sorted(jobs.results.items()))
        self._claim(f"all {JOBS} jobs have their results", jobs.results.total() == JOBS, counted)
        twice = f"begun twice={jobs.repeated}"
        self._claim("only jobs that were running there were begun again", jobs.repeated <= slots, twice)
        await self._fleet.serve_again(jobs.killed)

    def _begin(self, title: str, short: str, planned: int = COUNTED) -> Phase:
        number = len(self.phases) + 1
        phase = Phase(f"{number}  {title}", f"{number}  {short}", Account(), Account(), planned)
        self.phases.append(phase)
        self._screen.begin(phase)
        return phase

    async def _count(self, phase: Phase, upstreams: Sequence[str]) -> None:
        """Nothing else is in flight now, so round robin gives each upstream exactly the same number."""
        await self._traffic.send(phase.exact, COUNTED)
        share = COUNTED // len(upstreams)
        counted = " ".join(f"{name}={count}" for name, count in sorted(phase.exact.answers.items()))
        exact = phase.exact.answers == dict.fromkeys(upstreams, share)
        self._claim(f"{COUNTED} requests are {share} for each of {len(upstreams)} upstreams", exact, counted)

    def _claim(self, sentence: str, true: bool, counted: str) -> None:
        claim = Claim(sentence, true, counted)
        self.claims.append(claim)
        self._screen.claim(claim)

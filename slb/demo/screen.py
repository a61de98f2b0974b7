"""What the demo shows: a live view on a terminal, plain lines elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slb.demo.traffic import Account

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

"""The bar that shows how far a run is. It is drawn on the load's core, so seldom."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

REFRESH_PER_SECOND = 2


def progress_bar(console: Console) -> Progress:
    """A bar with what is being done now before it; nothing at all where `console` is no terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        refresh_per_second=REFRESH_PER_SECOND,
        transient=True,
        disable=not console.is_terminal,
    )


class Steps:
    """One bar: `to` names what begins now, `done` counts what has ended."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total)
        self.count = 0

    def to(self, what: str) -> None:
        self._progress.update(self._task, description=what)

    def done(self, count: int = 1) -> None:
        self.count += count
        self._progress.advance(self._task, count)

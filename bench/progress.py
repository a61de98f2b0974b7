"""The bar that shows how far a run is. It is drawn on the load's core, so seldom."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

REFRESH_PER_SECOND = 2


def progress_bar(console: Console) -> Progress:
    """A bar with what is being done now before it; nothing at all where `console` is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    disabled = not console.is_terminal
    return Progress(
        *columns, console=console, refresh_per_second=REFRESH_PER_SECOND, transient=True, disable=disabled
    )


class Steps:
    """One bar: `expect` says how long it is, `to` what begins now, `done` counts what has ended."""

    def __init__(self, progress: Progress, total: int = 0) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total)
        self.count = 0

    def expect(self, total: int) -> None:
        self._progress.update(self._task, total=total)

    def to(self, what: str) -> None:
        self._progress.update(self._task, description=what)

    def done(self, count: int = 1) -> None:
        self.count += count
        self._progress.advance(self._task, count)

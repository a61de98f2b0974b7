"""`slb simulate`: the policies of the hash ring before a fleet with caches, in simulated time."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slb.cli.console import make_console, show
from slb.cli.rows import Rows
from slb.errors import ConfigError
from slb.simulate.names import Name

if TYPE_CHECKING:
    from slb.simulate.report import Experiment, Report

_HELD = {True: "yes: ", False: "NO: ", None: ""}


def add_to(app: typer.Typer) -> None:
    """Make the command part of `slb`."""
    app.command()(simulate)


def simulate(
    experiment: Annotated[Name, typer.Argument(help="Which experiment.", show_default=False)],
    seed: Annotated[int, typer.Option(help="The same seed gives the same figures.")] = 1,
    out: Annotated[Path, typer.Option(help="The directory for the picture.")] = Path(),
    scale: Annotated[
        float, typer.Option(min=0.01, max=1.0, help="Simulate only this part of the fleet and its traffic.")
    ] = 1.0,
    no_plot: Annotated[bool, typer.Option("--no-plot", help="Print the figures, draw nothing.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit 1 where a goal is missed.")] = False,
) -> None:
    """Run an experiment in simulated time: what the hash ring and its policies do for upstreams with caches."""
    from slb.simulate.lab import make_experiment
    from slb.simulate.pictures import check_pictures

    if not no_plot:
        _check_directory(out)
        check_pictures()
    report = _run(make_experiment(experiment, seed, scale), experiment)
    _print(report)
    if not no_plot:
        picture = out / f"simulate-{experiment}.png"
        report.draw(picture)
        typer.echo(f"picture: {picture}")
    if check and any(claim.holds is False for claim in report.claims):
        raise typer.Exit(1)


def _check_directory(out: Path) -> None:
    """Now, not after a minute's work."""
    if not out.is_dir():
        raise ConfigError(f"--out: {out} is not a directory")


def _run(experiment: "Experiment", name: Name) -> "Report":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)  # stdout is for the figures
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(f"simulate {name}", total=experiment.seconds())
        return experiment.run(lambda passed: progress.advance(task, passed))


def _print(report: "Report") -> None:
    console = make_console()
    console.print(report.title)
    table = Rows(report.columns, right=report.columns[report.words :])
    for row in report.rows:
        table.add_row(*row)
    show(table)
    for note in report.notes:
        console.print(note)
    for claim in report.claims:
        console.print(_HELD[claim.holds] + claim.text)

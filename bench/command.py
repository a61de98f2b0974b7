"""What all commands of the bench share: options, a folder, a bar, the tables, the exit code."""

import inspect
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial, wraps
from inspect import Parameter
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Annotated, NoReturn

import orjson
import typer
from redis.exceptions import RedisError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bench.errors import BenchError
from bench.fleet import Fleet
from bench.machine import Surroundings, described
from bench.processes import ENDING, Processes
from bench.table import Outcome

USAGE_ERROR, INTERRUPTED = 2, 130
PLAIN_WIDTH = 110
"""Of a table that goes to a file or a pipe."""

REFRESH_PER_SECOND = 2
"""Of the bar: it is drawn on the load's core."""

ALL = "all"
Json = Annotated[Path | None, typer.Option("--json", help="Write all tables to this file.")]
Check = Annotated[bool, typer.Option("--check", help="Exit 1 where a goal is missed.")]


class Steps:
    """One bar: `expect` sets its length, `to` names what begins now, `done` counts what has ended."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=0)
        self.count = 0

    def expect(self, total: int) -> None:
        self._progress.update(self._task, total=total)

    def to(self, what: str) -> None:
        self._progress.update(self._task, description=what)

    def done(self, count: int = 1) -> None:
        self.count += count
        self._progress.advance(self._task, count)


@dataclass(frozen=True)
class Bench:
    """What a command measures with: an owner of processes, an empty folder, and the bar."""

    processes: Processes
    home: Path
    steps: Steps

    def fleet(self) -> Fleet:
        """A fleet without instances, whose Redis runs."""
        self.steps.to("starting Redis")
        return Fleet(self.processes, self.home)


def add_command(app: typer.Typer, measure: Callable[..., Outcome], default: bool = False) -> None:
    """A command that does `measure`: its options are the parameters after the first, which is a Bench, and those
    that all commands have. The `default` one is what the bench does without a command."""

    name = measure.__name__.replace("_", "-")

    @wraps(measure)
    def command(context: typer.Context, json: Path | None, check: bool, **options: object) -> None:
        if context.invoked_subcommand is None:
            raise typer.Exit(_run(partial(measure, **options), name, options, json, check))

    signature = inspect.signature(measure)
    common = (
        Parameter("json", Parameter.KEYWORD_ONLY, default=None, annotation=Json),
        Parameter("check", Parameter.KEYWORD_ONLY, default=False, annotation=Check),
        Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context),
    )
    shown = signature.replace(parameters=[*list(signature.parameters.values())[1:], *common])
    command.__signature__ = shown.replace(return_annotation=None)  # type: ignore[attr-defined]
    (app.callback(invoke_without_command=True) if default else app.command())(command)


def _run(
    measure: Callable[[Bench], Outcome], name: str, options: dict[str, object], json: Path | None, check: bool
) -> int:
    """Measure, print, write. The exit code: 1 where something failed, or a goal is missed and `check` is set."""
    if json is not None and not json.parent.is_dir():
        refuse(f"--json: there is no folder {json.parent}")
    for number in ENDING:
        signal.signal(number, _end)
    started, surroundings = datetime.now(UTC), Surroundings()
    try:
        with TemporaryDirectory(prefix="slb-bench-") as home, _bar() as progress, Processes() as processes:
            outcome = measure(Bench(processes, Path(home), Steps(progress)))
    except KeyboardInterrupt:
        print("interrupted: nothing was measured to its end", file=sys.stderr)
        return INTERRUPTED
    except (BenchError, OSError, RedisError) as error:
        print(f"bench {name}: {error}", file=sys.stderr)
        return 1
    shares = surroundings.shares()
    _print(outcome, shares.words())
    if json is not None:
        head = {"command": name, "options": options, "started": started, "machine": described()}
        whole = {**head, "shares": asdict(shares), "sections": [asdict(each) for each in outcome.sections]}
        json.write_bytes(orjson.dumps(whole, default=str, option=orjson.OPT_INDENT_2))
    return INTERRUPTED if outcome.interrupted else int(outcome.failed or (check and not outcome.met))


def _bar() -> Progress:
    """With what is being done now before it; nothing at all where standard error is no terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(
        *columns,
        console=console,
        refresh_per_second=REFRESH_PER_SECOND,
        transient=True,
        disable=not console.is_terminal,
    )


def _print(outcome: Outcome, last: str) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    for section in outcome.sections:
        console.print(section.title, style="bold", markup=False, highlight=False)
        console.print(section.table())
        for note in section.notes:
            console.print(note, markup=False, highlight=False)
        console.print()
    console.print(last, markup=False, highlight=False)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """A signal handler: all three ways to be stopped clean up in the same way."""
    raise KeyboardInterrupt


def refuse(why: str) -> NoReturn:
    """Print why it cannot be done, and exit."""
    print(f"bench: {why}", file=sys.stderr)
    raise typer.Exit(USAGE_ERROR)


def chosen(option: str, text: str, known: Iterable[str]) -> list[str]:
    """Those of `known` that a text with commas names, in the order of `known`; all where it names none, or `all`.
    Refuses unknown names."""
    everything = list(known)
    names = [word.strip() for word in text.split(",") if word.strip()]
    if unknown := sorted({*names} - {*everything, ALL}):
        refuse(f"{option}: {', '.join(unknown)}: known are {', '.join(everything)}")
    return [name for name in everything if name in names or not names or ALL in names]


def instance_counts(text: str) -> list[int]:
    """The value of `--instances`, ascending. Refuses what is no number of instances."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) for word in words):
        refuse(f"--instances: {text}: whole numbers from 1 on, with commas between them")
    return sorted({int(word) for word in words})

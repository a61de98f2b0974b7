"""What all commands of the bench share: a folder, a bar, the tables, the file, the exit code."""

import inspect
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial, wraps
from inspect import Parameter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import orjson
import typer
from redis.exceptions import RedisError
from rich.console import Console

from bench.errors import BenchError
from bench.fleet import Fleet
from bench.machine import Shares, Surroundings, described
from bench.outcome import INTERRUPTED, Check, Json, check_folder, end, plain_console
from bench.processes import ENDING, Processes
from bench.progress import Steps, progress_bar
from bench.table import Outcome


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


class Job(NamedTuple):
    """What a command does; `total` is the length of its bar."""

    measure: Callable[[Processes, Path, Steps], Outcome]
    total: int

    def run(self, bench: Bench) -> Outcome:
        bench.steps.expect(self.total)
        return self.measure(bench.processes, bench.home, bench.steps)


def add_job(app: typer.Typer, asked: Callable[..., Job]) -> None:
    """A command that is the Job that `asked` returns for its options."""

    @wraps(asked)
    def measure(bench: Bench, **options: object) -> Outcome:
        return asked(**options).run(bench)

    signature = inspect.signature(asked)
    first = Parameter("bench", Parameter.POSITIONAL_OR_KEYWORD)
    measure.__signature__ = signature.replace(parameters=[first, *signature.parameters.values()])  # type: ignore[attr-defined]
    add_figure(app, measure)


def add_figure(app: typer.Typer, measure: Callable[..., Outcome], default: bool = False) -> None:
    """A command that does `measure`: its options are the parameters after the first, which is a Bench, and those
    that all commands have. The `default` one is what the bench does without a command."""
    name = measure.__name__.replace("_", "-")

    @wraps(measure)
    def command(context: typer.Context, json: Path | None, check: bool, **options: object) -> None:
        if context.invoked_subcommand is None:
            raise typer.Exit(_run(name, partial(measure, **options), options, json, check))

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
    name: str, measure: Callable[[Bench], Outcome], options: dict[str, object], json: Path | None, check: bool
) -> int:
    """Measure, show, keep. The exit code: 1 where something failed, or a goal is missed and `check` is set."""
    check_folder("--json", json and json.parent)
    for number in ENDING:
        signal.signal(number, end)
    started, surroundings = datetime.now(UTC), Surroundings()
    try:
        with (
            TemporaryDirectory(prefix="slb-bench-") as home,
            progress_bar(Console(stderr=True)) as progress,
            Processes() as processes,
        ):
            outcome = measure(Bench(processes, Path(home), Steps(progress)))
    except KeyboardInterrupt:
        print("interrupted: nothing was measured to its end", file=sys.stderr)
        return INTERRUPTED
    except (BenchError, OSError, RedisError) as error:
        print(f"bench {name}: {error}", file=sys.stderr)
        return 1
    shares = surroundings.shares()
    _show(outcome, shares, plain_console())
    if json is not None:
        whole = {
            "figure": name,
            "started": started.isoformat(timespec="seconds"),
            "machine": described(),
            "shares": shares.as_json(),
            "settings": options,
            "sections": [section.as_json() for section in outcome.sections],
            "raw": outcome.raw,
        }
        json.write_bytes(orjson.dumps(whole, default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
    return INTERRUPTED if outcome.interrupted else int(outcome.failed or (check and not outcome.met))


def _show(outcome: Outcome, shares: Shares, console: Console) -> None:
    for section in outcome.sections:
        console.print(section.title, style="bold", markup=False, highlight=False)
        console.print(section.table())
        for note in section.notes:
            console.print(note, markup=False, highlight=False)
        console.print()
    console.print(shares.words(), markup=False, highlight=False)

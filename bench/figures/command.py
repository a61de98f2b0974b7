"""What the commands of all figures share: a folder, a bar, the tables, the file, the exit code."""

import inspect
import signal
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import wraps
from inspect import Parameter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import orjson
import typer
from redis.exceptions import RedisError
from rich.console import Console

from bench.errors import BenchError
from bench.figures.figure import Outcome
from bench.figures.fleet import Fleet
from bench.machine import Shares, Surroundings, described
from bench.outcome import INTERRUPTED, Check, Json, check_folder, end, plain_console
from bench.processes import ENDING, Processes
from bench.progress import Steps, progress_bar

Measure = Callable[[Fleet, Steps], Outcome]
MeasureBare = Callable[[Processes, Path, Steps], Outcome]
"""Nothing is started yet; the folder is empty."""


class Job(NamedTuple):
    """What a command does; `total` is the length of its bar."""

    measure: MeasureBare
    total: int


def with_redis(measure: Measure, total: int) -> Job:
    """The same with a fleet that has a Redis."""

    def started(processes: Processes, home: Path, steps: Steps) -> Outcome:
        steps.to("starting Redis")
        return measure(Fleet(processes, home), steps)

    return Job(started, total)


def add_figure(app: typer.Typer, asked: Callable[..., Job]) -> None:
    """A command of the bench: its options are the parameters of `asked`, and those that all commands have. It runs
    the job that `asked` returns."""

    @wraps(asked)
    def command(json: Path | None, check: bool, **options: object) -> None:
        raise typer.Exit(run(asked.__name__.replace("_", "-"), asked(**options), options, json, check))

    signature = inspect.signature(asked)
    common = (
        Parameter("json", Parameter.KEYWORD_ONLY, default=None, annotation=Json),
        Parameter("check", Parameter.KEYWORD_ONLY, default=False, annotation=Check),
    )
    shown = signature.replace(parameters=[*signature.parameters.values(), *common], return_annotation=None)
    command.__signature__ = shown  # type: ignore[attr-defined]
    app.command()(command)


def run(name: str, job: Job, settings: Mapping[str, object], json: Path | None, check: bool) -> int:
    """Measure, show, keep. The exit code: 1 where a goal is missed and `check` is set."""
    check_folder("--json", json and json.parent)
    for number in ENDING:
        signal.signal(number, end)
    started = datetime.now(UTC)
    try:
        outcome, shares = _measured(job)
    except KeyboardInterrupt:
        print("interrupted: nothing was measured to its end", file=sys.stderr)
        return INTERRUPTED
    except (BenchError, OSError, RedisError) as error:
        print(f"bench {name}: {error}", file=sys.stderr)
        return 1
    _show(outcome, shares, plain_console())
    if json is not None:
        json.write_bytes(_as_json(name, started, settings, outcome, shares))
    return INTERRUPTED if outcome.interrupted else int(check and not outcome.met)


def _measured(job: Job) -> tuple[Outcome, Shares]:
    surroundings = Surroundings()
    with (
        TemporaryDirectory(prefix="slb-bench-") as home,
        progress_bar(Console(stderr=True)) as progress,
        Processes() as processes,
    ):
        outcome = job.measure(processes, Path(home), Steps(progress, job.total))
    return outcome, surroundings.shares()


def _show(outcome: Outcome, shares: Shares, console: Console) -> None:
    for section in outcome.sections:
        console.print(section.title, style="bold", markup=False, highlight=False)
        console.print(section.table())
        for note in section.notes:
            console.print(note, markup=False, highlight=False)
        console.print()
    console.print(shares.words(), markup=False, highlight=False)


def _as_json(
    name: str, started: datetime, settings: Mapping[str, object], outcome: Outcome, shares: Shares
) -> bytes:
    whole = {
        "figure": name,
        "started": started.isoformat(timespec="seconds"),
        "machine": described(),
        "shares": shares.as_json(),
        "settings": settings,
        "sections": [section.as_json() for section in outcome.sections],
        "raw": outcome.raw,
    }
    return orjson.dumps(whole, default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)

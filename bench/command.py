"""What all commands of the bench share: options, a folder, the tables, the exit code."""

import inspect
import logging
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import wraps
from inspect import Parameter
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Annotated, NoReturn

import orjson
import structlog
import typer
from redis.exceptions import RedisError
from rich.console import Console

from bench.fleet import Fleet
from bench.processes import ENDING, BenchError, Processes
from bench.procstat import Surroundings, machine
from bench.table import Outcome

USAGE_ERROR, INTERRUPTED = 2, 130
PLAIN_WIDTH = 110
"""Of a table that goes to a file or a pipe."""

ALL = "all"
Json = Annotated[Path | None, typer.Option(help="Write all tables to this file.")]
Check = Annotated[bool, typer.Option("--check", help="Exit 1 where a goal is missed.")]


@dataclass(frozen=True)
class Bench:
    """What a command measures with: an owner of processes, and an empty folder. `to` shows on a terminal what is
    being done now."""

    processes: Processes
    home: Path
    to: Callable[[str], None]

    def fleet(self) -> Fleet:
        """A fleet without instances, whose Redis runs."""
        self.to("starting Redis")
        return Fleet(self.processes, self.home)


def add_command(app: typer.Typer, measure: Callable[..., Outcome], default: bool = False) -> None:
    """A command that does `measure`: its options are the parameters after the first, which is a Bench, and those
    that all commands have. The `default` one is what the bench does without a command."""

    @wraps(measure)
    def command(context: typer.Context, json: Path | None, check: bool, **options: object) -> None:
        if context.invoked_subcommand is None:
            raise typer.Exit(_run(measure, options, json, check))

    common = [
        Parameter("json", Parameter.KEYWORD_ONLY, default=None, annotation=Json),
        Parameter("check", Parameter.KEYWORD_ONLY, default=False, annotation=Check),
        Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context),
    ]
    own = list(inspect.signature(measure).parameters.values())[1:]
    command.__signature__ = inspect.Signature([*own, *common])  # type: ignore[attr-defined]
    (app.callback(invoke_without_command=True) if default else app.command())(command)


def _run(measure: Callable[..., Outcome], options: dict[str, object], json: Path | None, check: bool) -> int:
    """Measure, print, write. The exit code: 1 where something failed, or a goal is missed and `check` is set."""
    name = measure.__name__.replace("_", "-")
    if json is not None and not json.parent.is_dir():
        refuse(f"--json: there is no folder {json.parent}")
    for number in ENDING:
        signal.signal(number, _end)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))  # slb's parts log
    started, surroundings = datetime.now(UTC), Surroundings()
    try:
        folder, status = TemporaryDirectory(prefix="slb-bench-"), Console(stderr=True).status("")
        with folder as home, status, Processes() as processes:
            outcome = measure(Bench(processes, Path(home), status.update), **options)
    except KeyboardInterrupt:
        print("interrupted: nothing was measured to its end", file=sys.stderr)
        return INTERRUPTED
    except (BenchError, OSError, RedisError) as error:
        print(f"bench {name}: {error}", file=sys.stderr)
        return 1
    shares = surroundings.shares()
    _print(outcome, shares)
    if json is not None:
        head = {"command": name, "options": options, "started": started, "machine": machine(), "shares": shares}
        whole = {**head, "sections": [asdict(each) for each in outcome.sections]}
        json.write_bytes(orjson.dumps(whole, default=str, option=orjson.OPT_INDENT_2))
    return INTERRUPTED if outcome.interrupted else int(outcome.failed or (check and not outcome.met))


def _print(outcome: Outcome, shares: Mapping[str, float]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    for section in outcome.sections:
        console.print(section.title, style="bold", markup=False, highlight=False)
        console.print(section.table())
        for note in section.notes:
            console.print(note, markup=False, highlight=False)
        console.print()
    console.print(
        f"of the machine's time meanwhile: the bench and all it started {shares['ours']:.0%}, "
        f"other processes {shares['others']:.0%}, withheld by the hypervisor {shares['stolen']:.0%}",
        highlight=False,
    )


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
    names = {word.strip() for word in text.split(",")} - {""}
    if unknown := sorted(names - {*everything, ALL}):
        refuse(f"{option}: {', '.join(unknown)}: known are {', '.join(everything)}")
    return [name for name in everything if name in names or not names or ALL in names]


def instance_counts(text: str) -> list[int]:
    """The value of `--instances`, ascending. Refuses what is no number of instances."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) for word in words):
        refuse(f"--instances: {text}: whole numbers from 1 on, with commas between them")
    return sorted({int(word) for word in words})

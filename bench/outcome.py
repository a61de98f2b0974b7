"""What every bench has in common: options, refusals, exit codes, where it prints, and what Ctrl-C does."""

import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer
from rich.console import Console

USAGE_ERROR = 2
INTERRUPTED = 130
PLAIN_WIDTH = 110
"""Of a table that goes to a file or a pipe."""

ALL = "all"

Json = Annotated[Path | None, typer.Option("--json", help="Keep all that was measured in this file.")]
Check = Annotated[bool, typer.Option("--check", help="Exit 1 where a goal is missed.")]


def plain_console() -> Console:
    """Where tables are printed."""
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)


def refuse(why: str) -> NoReturn:
    """Say why it cannot be done, and exit."""
    print(f"bench: {why}", file=sys.stderr)
    raise typer.Exit(USAGE_ERROR)


def check_folder(option: str, folder: Path | None) -> None:
    """Exits where what an option wants written has no folder; None: nothing is wanted."""
    if folder is not None and not folder.is_dir():
        refuse(f"{option}: there is no folder {folder}")


def chosen(option: str, text: str, known: Iterable[str]) -> list[str]:
    """Those of `known` that a text with commas names, in the order of `known`; all where it names none, or `all`.
    Refuses unknown names."""
    everything = list(known)
    names = [word.strip() for word in text.split(",") if word.strip()]
    if unknown := sorted({*names} - {*everything, ALL}):
        refuse(f"{option}: {', '.join(unknown)}: known are {', '.join(everything)}")
    return [name for name in everything if name in names or not names or ALL in names]


def instance_counts(text: str) -> list[int]:
    """What `--instances` says, ascending. Refuses what is no number of instances."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) for word in words):
        refuse(f"--instances: {text}: whole numbers from 1 on, with commas between them")
    return sorted({int(word) for word in words})


def end(number: int, frame: FrameType | None) -> NoReturn:
    """A signal handler: all three ways to be stopped clean up in the same way."""
    raise KeyboardInterrupt

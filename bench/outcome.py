"""How every bench ends: its exit codes, where it prints, and what Ctrl-C does."""

import sys
from types import FrameType
from typing import NoReturn

import typer
from rich.console import Console

USAGE_ERROR = 2
INTERRUPTED = 130
PLAIN_WIDTH = 110
"""Of a table that goes to a file or a pipe."""


def plain_console() -> Console:
    """Where tables are printed."""
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)


def refuse(why: str) -> NoReturn:
    """Say why it cannot be done, and exit."""
    print(f"bench: {why}", file=sys.stderr)
    raise typer.Exit(USAGE_ERROR)


def instance_counts(text: str) -> list[int]:
    """What `--instances` says, ascending. Refuses what is no number of instances."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) for word in words):
        refuse(f"--instances: {text}: whole numbers from 1 on, with commas between them")
    return sorted({int(word) for word in words})


def end(number: int, frame: FrameType | None) -> NoReturn:
    """A signal handler: all three ways to be stopped clean up in the same way."""
    raise KeyboardInterrupt

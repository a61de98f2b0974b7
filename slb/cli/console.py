"""What the commands print for a person: tables that cut nothing, words for what is not there, times."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_NO_TERMINAL_WIDTH = 100_000
"""Columns: in a pipe there is no edge, and a table takes no more than its cells need."""


def make_console() -> "Console":
    """Of stdout."""
    from rich.console import Console

    # [fd00::1]:80 is an address, not a style
    console = Console(markup=False, highlight=False)
    return console if console.is_terminal else Console(markup=False, highlight=False, width=_NO_TERMINAL_WIDTH)


def make_table(*names: str, right: Collection[str] = ()) -> "Table":
    """A table with these columns, those in `right` flush right. Where a terminal is narrow, cells are folded: half
    an address is none."""
    from rich.table import Column, Table

    return Table(*(Column(name, overflow="fold", justify="right" if name in right else "left") for name in names))


def show(table: "Table") -> None:
    """Print a table."""
    make_console().print(table)


def shown(value: Any) -> str:
    """A setting's value."""
    return "none" if value is None or value == "" or value == [] or value == {} else str(value)


def moment(seconds: Any) -> str:
    """`2026-01-31 12:00:00+00:00` of seconds since 1970; nothing where there are none."""
    try:
        return datetime.fromtimestamp(float(seconds), UTC).isoformat(" ", "seconds")
    except (TypeError, ValueError, OverflowError):
        return ""

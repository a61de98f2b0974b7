"""What the commands print for a person: tables that cut nothing, words for what is not there, times."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson
import typer

from slb.cli.rows import Rows, folded

if TYPE_CHECKING:
    from rich.console import Console

_NO_TERMINAL_WIDTH = 100_000  # columns: in a pipe there is no edge, and a table takes no more than its cells need


def make_console() -> "Console":
    from rich.console import Console

    # [fd00::1]:80 is an address, not a style
    console = Console(markup=False, highlight=False)
    return console if console.is_terminal else Console(markup=False, highlight=False, width=_NO_TERMINAL_WIDTH)


def show_json(answer: Any) -> None:
    typer.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2))


def show(rows: Rows) -> None:
    from rich.table import Table

    console = make_console()
    for part in rows.fitted(console.width):
        console.print(part, soft_wrap=not isinstance(part, Table))


def show_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and what they are, one below the other."""
    console, found = make_console(), list(pairs)
    margin = max(len(name) for name, _ in found) + 2
    for name, value in found:
        lines = folded(value, console.width, name.ljust(margin), " " * margin) or [name]
        console.print("\n".join(lines), soft_wrap=True)


def shown(value: Any) -> str:
    """A setting's value, as it is typed after `KEY=`."""
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None or value == "" or value == [] or value == {} else str(value)


def moment(seconds: Any) -> str:
    """`2026-01-31 12:00:00+00:00` of seconds since 1970; nothing where there are none."""
    try:
        return datetime.fromtimestamp(float(seconds), UTC).isoformat(" ", "seconds")
    except (TypeError, ValueError, OverflowError):
        return ""

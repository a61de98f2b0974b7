"""`slb status`, `slb instances`: how one instance is, and who else there is."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson
import typer

from slb.cli.client import DEFAULT_URL, ApiClient, JsonOption, TokenOption, UrlOption, show

if TYPE_CHECKING:
    from rich.table import Table

_INSTANCE_COLUMNS = ("name", "address", "api", "version", "roles", "host", "pid")


def add_to(app: typer.Typer) -> None:
    """Make the commands part of `slb`."""
    app.command()(status)
    app.command()(instances)


def status(as_json: JsonOption = False, url: UrlOption = DEFAULT_URL, token: TokenOption = None) -> None:
    """How one instance is: its Redis, its routes, its traffic."""
    answer = ApiClient(url, token).call("GET", "/status")
    if as_json:
        typer.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2))
    else:
        show(_status_table(answer))


def instances(as_json: JsonOption = False, url: UrlOption = DEFAULT_URL, token: TokenOption = None) -> None:
    """Every instance that is alive."""
    answer = ApiClient(url, token).call("GET", "/instances")
    if as_json:
        typer.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2))
        return
    from rich.table import Table

    table = Table(*_INSTANCE_COLUMNS, "started")
    for each in answer["instances"]:
        table.add_row(*(str(each.get(name, "")) for name in _INSTANCE_COLUMNS), _moment(each.get("started")))
    show(table)
    if answer["stale"]:
        typer.echo("Redis does not answer: this is the list last known.")


def _status_table(answer: dict[str, Any]) -> "Table":
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, value in answer.items():
        table.add_row(name, _line(value))
    return table


def _line(value: Any) -> str:
    """Nested figures on one line: `up=True mode=sync`."""
    if isinstance(value, dict):
        return " ".join(f"{name}={_line(each)}" for name, each in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(_line(each) for each in value) or "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _moment(started: Any) -> str:
    try:
        return datetime.fromtimestamp(float(started), UTC).isoformat(" ", "seconds")
    except (TypeError, ValueError, OverflowError):
        return ""

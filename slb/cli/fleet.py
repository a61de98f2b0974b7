"""`slb instances`: who there is."""

from datetime import UTC, datetime
from typing import Any

import orjson
import typer

from slb.cli.client import DEFAULT_URL, ApiClient, JsonOption, TokenOption, UrlOption, show

_INSTANCE_COLUMNS = ("name", "address", "api", "version", "roles", "host", "pid")


def add_to(app: typer.Typer) -> None:
    """Make the commands part of `slb`."""
    app.command()(instances)


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


def _moment(started: Any) -> str:
    try:
        return datetime.fromtimestamp(float(started), UTC).isoformat(" ", "seconds")
    except (TypeError, ValueError, OverflowError):
        return ""

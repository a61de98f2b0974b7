"""`slb instances`: who there is."""

from typing import Any

import orjson
import typer

from slb.cli.client import DEFAULT_URL, ApiClient, JsonOption, TokenOption, UrlOption
from slb.cli.console import moment, show
from slb.cli.rows import Rows
from slb.names import natural

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
    table = Rows((*_INSTANCE_COLUMNS, "started"), spare=("pid", "roles", "version", "host", "started"))
    for each in sorted(answer["instances"], key=lambda each: natural(str(each.get("name", "")))):
        table.add_row(*(_cell(each.get(name, "")) for name in _INSTANCE_COLUMNS), moment(each.get("started")))
    show(table)
    if answer["stale"]:
        typer.echo("Redis does not answer: this is the list last known.")


def _cell(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

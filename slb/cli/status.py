"""`slb status`: one instance at a glance. Two looks, a moment apart, give the rates."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from slb.cli.client import DEFAULT_URL, ApiClient, JsonOption, TokenOption, UrlOption, show
from slb.cli.options import duration_option

if TYPE_CHECKING:
    from rich.table import Table

_ROWS = 40
"""Upstreams shown; those with most in flight and the busiest routes first. `slb routes` has all."""

Json = Mapping[str, Any]


def add_to(app: typer.Typer) -> None:
    """Make the command part of `slb`."""
    app.command()(status)


def status(
    as_json: JsonOption = False,
    over: Annotated[str, typer.Option(help="How long rates are measured; 0 shows none.")] = "1s",
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
) -> None:
    """How one instance is: its Redis, its upstreams and their health, what is in flight, requests a second."""
    client, seconds = ApiClient(url, token), duration_option("over", over)
    first, begun = client.call("GET", "/status"), time.monotonic()
    if as_json:
        typer.echo(orjson.dumps(first, option=orjson.OPT_INDENT_2))
        return
    time.sleep(seconds)
    answer = client.call("GET", "/status") if seconds else first
    rates = _rates(first, answer, time.monotonic() - begun) if seconds else None
    routes = client.call("GET", "/routes")["routes"]
    show(_overview(answer, rates))
    if routes:
        show(_upstreams(routes, answer["traffic"]["inflight_by_upstream"], rates))


def _rates(before: Json, after: Json, seconds: float) -> dict[str, float]:
    """Requests a second by route, "" for those that took none."""
    counts, earlier = after["traffic"]["by_route"], before["traffic"]["by_route"]
    return {route: (count - earlier.get(route, 0)) / seconds for route, count in counts.items()}


def _overview(answer: Json, rates: Mapping[str, float] | None) -> "Table":
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    traffic = {name: value for name, value in answer["traffic"].items() if name != "by_route"}
    for name, value in {**answer, "traffic": traffic}.items():
        table.add_row(name, _line(value))
    if rates is not None:
        table.add_row("requests/s", _rate(sum(rates.values())))
    return table


def _upstreams(routes: list[Json], inflight: Mapping[str, int], rates: Mapping[str, float] | None) -> "Table":
    from rich.table import Table

    table = Table("route", "requests/s", "upstream", "health", "in flight")
    for column in (1, 4):
        table.columns[column].justify = "right"
    rows = [(route, member) for route in routes for member in route["members"] or [None]]
    rates = rates or {}
    rows.sort(key=lambda row: (-rates.get(row[0]["path"], 0.0), row[0]["path"]))
    told = ""
    for route, member in rows[:_ROWS]:
        path = route["path"]
        head = (path, _rate(rates[path]) if path in rates else "") if path != told else ("", "")
        told = path
        table.add_row(*head, *_cells(member, inflight), style="red" if route["panic"] else None)
    if len(rows) > _ROWS:
        table.caption = f"and {len(rows) - _ROWS} more: slb routes"
    return table


def _cells(member: Json | None, inflight: Mapping[str, int]) -> tuple[str, str, str]:
    if member is None:
        return "(none)", "", ""
    health = "draining" if member["drain"] else str(member["health"])
    return member["member"], health, str(inflight.get(member["member"], 0))


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _line(value: Any) -> str:
    """Nested figures on one line: `up=True mode=sync`."""
    if isinstance(value, dict):
        return " ".join(f"{name}={_line(each)}" for name, each in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(_line(each) for each in value) or "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)

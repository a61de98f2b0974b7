"""`slb alerts`: what needs attention in the fleet, the worst first; the exit code says how bad it is."""

import time
from datetime import datetime
from typing import Annotated, Any

import typer

from slb.cli.client import ApiClient, ApiError
from slb.cli.console import show_json
from slb.cli.fleet_state import FleetState
from slb.cli.options import DEFAULT_URL, CaOption, TokenOption, UrlOption, duration_option
from slb.cli.top_views import plain_line, since, worst, worst_first

CODES = {"": 0, "info": 0, "warning": 3, "error": 4}
"""By the level of the worst alert. 1 and 2 are those of a command that has failed, and of a wrong command line."""


def alerts(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print `alerts`, and in `missing` the instances that were not heard.")
    ] = False,
    over: Annotated[
        str, typer.Option(help="How long to look. By what requests of a route fail is known after some seconds.")
    ] = "5s",
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> None:
    """What needs attention in the fleet, the worst first: who is at fault, since when, and what to type. Exits with
    0 where there is nothing, or no more than hints, with 3 after a warning and with 4 after an error."""
    state = _seen(ApiClient(url, token, ca), duration_option("over", over))
    found = worst_first(state)
    missing = sorted(str(each["name"]) for each in state.of("instances").values() if each["silent_for"] is None)
    if as_json:
        show_json({"alerts": found, "missing": missing})
    else:
        for alert in found:
            _show(alert)
        if not found and not missing:
            typer.echo("Nothing needs attention.")
        if missing:
            typer.echo(plain_line(f"Not heard, so what they would tell is missing here: {', '.join(missing)}"))
    code = max(CODES[worst(state)], CODES["warning"] if missing else 0)
    if code:
        raise typer.Exit(code)


def _seen(client: ApiClient, seconds: float) -> FleetState:
    """The fleet, after as long of its events. The first comes once all instances have shown themselves, or after
    about a second."""
    state, end = FleetState(), time.monotonic() + seconds
    for name, data in client.events("/fleet/events"):
        state.apply(name, data)
        if time.monotonic() >= end:
            break
    if not state.own:
        raise ApiError("GET /fleet/events: the instance has ended the stream")
    return state


def _show(alert: Any) -> None:
    typer.echo(plain_line(f"{alert['level']:<7}  {_when(alert)}  {alert['text']}"))
    culprits = alert.get("culprits", [])  # an instance with an older version tells of none
    for each in culprits if len(culprits) > 1 else ():
        failed = f"{each['failed']} failed" if each["failed"] else ""
        told = ", ".join(filter(None, (each["why"], f"since {_when(each)}", failed)))
        typer.echo(plain_line(f"         {each['upstream']}: {told}"))
    if alert.get("do"):
        typer.echo(plain_line(f"         $ {alert['do']}"))


def _when(told: Any) -> str:
    """Of an alert or a culprit."""
    began = datetime.fromtimestamp(told["since"]).astimezone()
    return f"{began:%Y-%m-%d %H:%M:%S}, {since(told)} ago"

"""`slb upstreams`: every upstream, or those that nothing has found alive for long, and how to be rid of them."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import orjson
import typer

from slb.cli.client import DEFAULT_URL, ApiClient, ApiError, JsonOption, TokenOption, UrlOption, url_parts
from slb.cli.console import show
from slb.cli.options import duration_option
from slb.cli.rows import Rows
from slb.errors import ConfigError
from slb.names import natural

_COLUMNS = ("upstream", "routes", "last alive", "tried", "zone", "node")


def add_to(app: typer.Typer) -> None:
    """Make the command part of `slb`."""
    app.command()(upstreams)


def upstreams(
    dead: Annotated[
        bool, typer.Option("--dead", help="Those that no check and no request has found alive for long.")
    ] = False,
    silent_for: Annotated[str | None, typer.Option("--for", help="How long that is [10m].")] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Deregister them, where the last check or request failed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove without being asked.")] = False,
    here: Annotated[bool, typer.Option("--here", help="Go by this instance alone, not by all.")] = False,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
) -> None:
    """Every upstream; or the dead ones, which all instances agree on."""
    if remove and not dead:
        raise ConfigError("--remove takes out what --dead lists: give both")
    if (silent_for or here) and not dead:
        raise ConfigError("--for and --here say which upstreams --dead lists: give it, too")
    silent_for = silent_for or "10m"
    seconds = duration_option("for", silent_for) if dead else 0.0
    client = ApiClient(url, token)
    found, missed = _agreed(client, url, token, seconds, alone=here or not dead)
    if as_json:
        typer.echo(orjson.dumps({"upstreams": found, "not_asked": missed}, option=orjson.OPT_INDENT_2))
    else:
        _show(found, dead, silent_for)
    if missed:
        typer.echo(f"slb: not asked, so they may know better: {', '.join(missed)}", err=True)
    if remove:
        if missed:
            raise ApiError("nothing is removed, as not all instances could be asked (--here goes by one alone)")
        _remove(client, found, yes)


def _agreed(
    client: ApiClient, url: str, token: str | None, seconds: float, alone: bool
) -> tuple[list[Any], list[str]]:
    """What all instances that can be asked agree on, and the names of the others."""
    from slb.api.silent import agreed

    ask = f"/upstreams?silent={seconds:g}"
    first = client.call("GET", ask)
    answers, missed, asked = [first["upstreams"]], [], set(first["instances"])
    for each in _carrying_traffic(client) if not alone else ():
        if each["id"] in asked:
            continue
        try:
            answer = ApiClient(_url_of(url, each["api"]), token).call("GET", ask)
        except ApiError:
            answer = {"instances": []}
        if each["id"] in answer["instances"]:
            answers.append(answer["upstreams"])
            asked.update(answer["instances"])
        else:  # or: on another machine the same address is another instance
            missed.append(f"{each['name']} ({each['api']})")
    return sorted(agreed(answers), key=lambda found: natural(found["member"])), missed


def _carrying_traffic(client: ApiClient) -> Iterator[dict[str, Any]]:
    for each in client.call("GET", "/instances")["instances"]:
        if "proxy" in each["roles"]:
            yield each


def _url_of(url: str, api: str) -> str:
    """The API of another instance is spoken to as this one's is."""
    return f"{url_parts(url).scheme}://{api}"


def _show(found: Sequence[dict[str, Any]], dead: bool, silent_for: str) -> None:
    if not found:
        typer.echo(f"No upstream has been silent for {silent_for}." if dead else "There are no upstreams yet.")
        return
    table = Rows(_COLUMNS, right=("last alive",), spare=("zone", "node", "tried"), names=("routes",))
    for each in found:
        alive = "not since it is known" if each["alive_ago"] is None else f"{each['alive_ago']:.0f} s ago"
        tried = "fails" if each["failing"] else "no" if each["alive_ago"] is None else "served"
        table.add_row(each["member"], " ".join(each["routes"]), alive, tried, each["zone"], each["node"])
    show(table)


def _remove(client: ApiClient, found: Sequence[dict[str, Any]], yes: bool) -> None:
    """Those that have failed when they were last tried: of others nobody knows."""
    failing = [each for each in found if each["failing"]]
    if untried := len(found) - len(failing):
        typer.echo(f"slb: {untried} stay: nothing has failed there (slb deregister takes them out)", err=True)
    if not failing or not (yes or typer.confirm(f"Deregister {len(failing)} upstreams from all their routes?")):
        return
    for each in failing:
        for path in each["routes"]:
            answer = client.call("DELETE", "/register", {"path": path, "target": each["member"]})
            typer.echo(f"{path}: {answer['target']} {'removed' if answer['removed'] else 'was not there'}")

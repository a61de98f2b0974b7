"""`slb upstreams`: every upstream, or those that nothing has found alive for long, and how to be rid of them."""

import ipaddress
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from slb.cli.client import ApiClient, ApiError, environment_token, url_parts
from slb.cli.console import Rows, show, show_json
from slb.cli.options import DEFAULT_URL, CaOption, JsonOption, Misused, TokenOption, UrlOption, duration_option
from slb.names import natural

_Networks = Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]
_SILENT_FOR = "10m"
_COLUMNS = ("upstream", "routes", "last alive", "tried", "zone", "node")


def upstreams(
    dead: Annotated[
        bool, typer.Option("--dead", help="Those that no check and no request has found alive for long.")
    ] = False,
    silent_for: Annotated[str | None, typer.Option("--for", help=f"How long that is [{_SILENT_FOR}].")] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Deregister them, where the last check or request failed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove without being asked.")] = False,
    here: Annotated[bool, typer.Option("--here", help="Go by this instance alone, not by all.")] = False,
    token_to: Annotated[
        list[str] | None,
        typer.Option(help="An address or a network of instances that get the API token too.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> None:
    """Every upstream; or the dead ones, which all instances agree on."""
    if not dead and (remove or here or silent_for is not None or token_to):
        raise Misused("--for, --remove, --here and --token-to go with --dead")
    if remove and not yes and not sys.stdin.isatty():
        raise Misused("--remove asks before it removes anything, and here is no terminal to ask on: use --yes")
    silent_for = silent_for or _SILENT_FOR
    seconds = duration_option("for", silent_for) if dead else 0.0
    networks, token = _networks(token_to or ()), token or environment_token()
    client = ApiClient(url, token, ca)
    found, missed = _agreed(client, url, token, ca, networks, seconds, alone=here or not dead)
    if as_json:
        show_json({"upstreams": found, "not_asked": missed})
    else:
        _show(found, dead, silent_for)
    if missed:
        hint = " (the token goes to --url, and to what --token-to names)" if token else ""
        typer.echo(f"slb: not asked, so they may know better: {', '.join(missed)}{hint}", err=True)
    if remove:
        if missed:
            raise ApiError("nothing is removed, as not all instances could be asked (--here goes by one alone)")
        _remove(client, found, yes)


def _networks(written: Sequence[str]) -> _Networks:
    try:
        return [ipaddress.ip_network(each, strict=False) for each in written]
    except ValueError as error:
        raise Misused(f"--token-to: {error}") from None


def _agreed(
    client: ApiClient,
    url: str,
    token: str | None,
    ca: Path | None,
    networks: _Networks,
    seconds: float,
    alone: bool,
) -> tuple[list[Any], list[str]]:
    """What all instances that can be asked agree on, and the names of the others. Their addresses come from Redis,
    where any program may write: the token goes only to those in `networks`."""
    from slb.api.silent import agreed

    ask = f"/upstreams?silent={seconds:g}"
    first = client.call("GET", ask)
    answers, missed, asked = [first["upstreams"]], [], set(first["instances"])
    for each in client.call("GET", "/instances")["instances"] if not alone else ():
        if each["id"] in asked or {"proxy", "jobs", "extproc"}.isdisjoint(each["roles"]):
            continue
        try:
            at = f"{url_parts(url).scheme}://{each['api']}"  # spoken to as this one is
            answer = ApiClient(at, token if _is_in(at, networks) else None, ca, environ={}).call("GET", ask)
        except (ApiError, Misused):
            answer = {"instances": []}
        if each["id"] in answer["instances"]:
            answers.append(answer["upstreams"])
            asked.update(answer["instances"])
        else:  # or: on another machine the same address is another instance
            missed.append(f"{each['name']} ({each['api']})")
    return sorted(agreed(answers), key=lambda found: natural(found["member"])), missed


def _is_in(url: str, networks: _Networks) -> bool:
    try:
        address = ipaddress.ip_address(url_parts(url).hostname or "")
    except ValueError:  # a name: DNS decides where it leads
        return False
    return any(address in network for network in networks)


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
    """Those at which the last request or check failed: of others it is not known."""
    failing = [each for each in found if each["failing"]]
    if untried := len(found) - len(failing):
        typer.echo(f"slb: {untried} stay: nothing has failed there (slb deregister takes them out)", err=True)
    if not failing:
        return
    if not yes and not typer.confirm(f"Deregister {len(failing)} upstreams from all their routes?"):
        typer.echo("slb: nothing is removed", err=True)
        return
    for each in failing:
        for path in each["routes"]:
            answer = client.call("DELETE", "/register", {"path": path, "target": each["member"]})
            typer.echo(f"{path}: {answer['target']} {'removed' if answer['removed'] else 'was not there'}")

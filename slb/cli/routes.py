"""`slb register`, `deregister`, `routes`, `route set|unset|delete`."""

import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from slb.addresses import is_address
from slb.cli.client import ApiClient, ApiError, environment_token, url_parts
from slb.cli.console import show, show_json
from slb.cli.options import (
    DEFAULT_URL,
    CaOption,
    JsonOption,
    Misused,
    TokenOption,
    UrlOption,
    key_value,
    ttl_option,
)
from slb.cli.tables import in_order, route_tables, routes_table, settings_lines, unknown_routes
from slb.dns_names import is_dns_name, normal_target
from slb.errors import NO_ROUTE
from slb.names import duration, join_member, normal_path, split_member

_KEPT_FOR = 30.0  # seconds: the ttl of `--keep` where none is given

PathArgument = Annotated[str, typer.Argument(help="The route, such as /p1; / is the root.")]
_TargetsOrNames = Annotated[
    list[str],
    typer.Argument(
        help="Upstreams, such as 10.0.0.1:80 or https://gpu-1; or names in DNS whose addresses are upstreams, "
        "dns://flux.internal:8000 or dns+srv://_http._tcp.flux.internal.",
    ),
]


def register(
    path: PathArgument,
    targets: _TargetsOrNames,
    weight: Annotated[int | None, typer.Option(help="Its share under weighted_round_robin [1].")] = None,
    slots: Annotated[int | None, typer.Option(help="Requests it serves at the same time [1].")] = None,
    zone: Annotated[str | None, typer.Option(help="The zone it runs in.")] = None,
    node: Annotated[str | None, typer.Option(help="The machine it runs on.")] = None,
    ttl: Annotated[
        str | None,
        typer.Option(help="Take them out after this long, 5s to 24h, unless they are registered again [never]."),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Stay, renew them every third of --ttl [30s], and deregister them at the end."),
    ] = False,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> int | None:
    """Add upstreams to a route; a route comes to be with its first."""
    _check_order("register", path, targets)
    written = {"weight": weight, "slots": slots, "zone": zone, "node": node}
    attributes: dict[str, Any] = {name: value for name, value in written.items() if value is not None}
    seconds = ttl_option(ttl) if ttl is not None else None
    if keep:
        return _keep(url, token, ca, path, targets, _KEPT_FOR if seconds is None else seconds, attributes)
    lease = {} if seconds is None else {"ttl": seconds}
    client = ApiClient(url, token, ca)
    several = [normal_target(target) for target in targets] if len(targets) > 1 else []
    members = [split_member(target) for target in several if not is_dns_name(target)]
    are_addresses = all(scheme == "http" and is_address(host) for scheme, host, _ in members)
    if members and len(members) == len(several) and are_addresses:
        rest = {"path": path, **attributes, **lease}
        body = [{**rest, "ip_address": host, "port": port} for _, host, port in members]
        for each in client.call("POST", "/register", body):
            member = join_member("http", each["ip_address"], each["port"])
            _print_registered(each, member, attributes)
    else:  # the API takes https and names of any kind one at a time
        _register_singly(client, path, targets, attributes, lease)
    return None


def _check_order(command: str, path: str, targets: list[str]) -> None:
    """Raises Misused where the path stands behind a target."""
    paths = [each for each in targets if each.startswith("/")]
    if not path.startswith("/") and len(paths) == 1:
        others = [path, *(each for each in targets if each not in paths)]
        raise Misused(f"the path comes first: {shlex.join(['slb', command, *paths, *others])}")


def _keep(
    url: str,
    token: str | None,
    ca: Path | None,
    path: str,
    targets: list[str],
    ttl: float,
    attributes: Mapping[str, Any],
) -> int:
    """The exit code. Raises ConfigError, RegistrationRefused."""
    from slb.cli.keeping import keep_registered
    from slb.registration import Registration

    url_parts(url)
    token = token or environment_token()
    made = [Registration(url, path, each, ttl=ttl, token=token, ca=ca, attributes=attributes) for each in targets]
    return keep_registered(made)


def _register_singly(
    client: ApiClient, path: str, targets: list[str], attributes: Mapping[str, Any], lease: Mapping[str, float]
) -> None:
    for number, target in enumerate(targets):
        try:
            answer = client.call("POST", "/register", {"path": path, "target": target, **attributes, **lease})
        except ApiError as error:
            which = f"{target}: " if len(targets) > 1 else ""
            written = f" (registered before it: {', '.join(targets[:number])})" if number else ""
            raise ApiError(f"{which}{error}{written}") from None
        _print_registered(answer, answer["target"], attributes)


def _print_registered(answer: Mapping[str, Any], member: str, attributes: Mapping[str, Any]) -> None:
    """A call without a ttl takes away the lease of a registration that was there, and attributes are set on it."""
    ttl = answer.get("ttl")
    lease = "" if ttl is None else f", for {duration(ttl)} unless renewed"
    if answer["added"]:
        typer.echo(f"{answer['path']}: {member} added{lease}")
        return
    written = "".join(f", {name} = {value} set" for name, value in attributes.items())
    typer.echo(
        f"{answer['path']}: {member} was there already, now{lease.removeprefix(',') or ' for good'}{written}"
    )


def deregister(
    path: PathArgument,
    targets: _TargetsOrNames,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> None:
    """Take upstreams from a route; requests they are serving finish. Exit code 1 where one was not there."""
    _check_order("deregister", path, targets)
    client = ApiClient(url, token, ca)
    missed = []
    for target in targets:
        answer = client.call("DELETE", "/register", {"path": path, "target": target})
        if answer["removed"]:
            typer.echo(f"{answer['path']}: {answer['target']} removed")
        else:
            missed.append(answer["target"])
    if missed:
        raise ApiError(f"{path}: not there: {', '.join(missed)} (slb routes shows what is)")


def routes(
    path: Annotated[
        str | None, typer.Argument(help="One route and all of its settings, or those below it.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> None:
    """Show every route, its upstreams and what is set on it; or one route, and where each of its settings comes
    from."""
    client = ApiClient(url, token, ca)
    route = _route_at(client, path) if path is not None else None
    answer = route or _routes_below(client, path)
    if as_json:
        show_json(answer)
    elif route is not None:
        for table in route_tables(*in_order([route])):
            show(table)
    elif answer["routes"]:
        show(routes_table(in_order(answer["routes"])))
    else:
        unknown = unknown_routes(client.call("GET", "/status"))
        typer.echo(unknown or "There are no routes yet: slb register PATH TARGET makes one.")


def _route_at(client: ApiClient, path: str) -> dict[str, Any] | None:
    """None where there is no route of just this path. Raises ApiError."""
    try:
        found: dict[str, Any] = client.call("GET", _api_path(path))
    except ApiError as error:
        if error.reason == NO_ROUTE.name:
            return None
        raise
    return found


def _routes_below(client: ApiClient, path: str | None) -> dict[str, Any]:
    """All routes; or those below a `path` that is none itself. Raises ApiError where there are none."""
    answer: dict[str, Any] = client.call("GET", "/routes")
    if path is None:
        return answer
    above = normal_path(path).rstrip("/") + "/"
    below = [route for route in answer["routes"] if route["path"].startswith(above)]
    if not below:
        raise ApiError(f"there is no route {path}, and none below it (slb routes shows all)", NO_ROUTE.name)
    return {"routes": below}


def set_settings(
    path: PathArgument,
    settings: Annotated[list[str], typer.Argument(metavar="KEY=VALUE", help="Such as policy=p2c retries=2.")],
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> None:
    """Set some of a route's settings."""
    changes = dict(map(key_value, settings))
    route = ApiClient(url, token, ca).call("PATCH", _api_path(path), changes)
    _show_settings(route, changes)
    if not route["members"]:  # settings may come first, but the longest path wins, with upstreams or without
        notice = f"no upstream is registered at {route['path']}: requests there and below find none until one is"
        typer.echo(f"slb: {notice} (503 no_upstream)", err=True)


def unset_settings(
    path: PathArgument,
    names: Annotated[list[str], typer.Argument(metavar="KEY", help="Settings to take back to their default.")],
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> None:
    """Take some of a route's settings back to their default."""
    _show_settings(ApiClient(url, token, ca).call("PATCH", _api_path(path), dict.fromkeys(names)), names)


def delete(
    path: PathArgument, url: UrlOption = DEFAULT_URL, token: TokenOption = None, ca: CaOption = None
) -> None:
    """Remove a route: its upstreams and its settings."""
    answer = ApiClient(url, token, ca).call("DELETE", _api_path(path))
    typer.echo(f"{answer['path']}: removed")


def _api_path(path: str) -> str:
    return "/routes" + normal_path(path)


def _show_settings(route: dict[str, Any], asked: Collection[str]) -> None:
    for line in settings_lines(route, asked):
        typer.echo(line)

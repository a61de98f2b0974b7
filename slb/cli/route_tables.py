"""What `slb routes` draws: every route and its upstreams, or one with all of its settings."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from slb.cli.console import shown
from slb.cli.rows import Rows
from slb.names import natural

SOURCES = {"hash": "route", "file": "config file", "defaults": "[defaults]", "built_in": "built in"}
"""The API's words for where a setting comes from, for a person."""
_COLUMNS = {"health": "health", "weight": "weight", "slots": "slots", "zone": "zone", "inflight": "in flight"}
_UNSET = {"weight": 1, "slots": 1, "zone": ""}
_RIGHT = ("weight", "slots", "in flight")
_SPARE = ("zone", "weight", "slots", "in flight")

Json = Mapping[str, Any]


def in_order(routes: Sequence[Json]) -> list[Json]:
    """Sorted by path, and the members of each by name, as people count."""
    ordered = [
        {**route, "members": sorted(route["members"], key=lambda member: natural(member["member"]))}
        for route in routes
    ]
    return sorted(ordered, key=lambda route: natural(route["path"]))


def routes_table(found: Sequence[Json]) -> Rows:
    columns = _columns_of([member for route in found for member in route["members"]])
    table = Rows(
        ("route", "upstream", *columns.values(), "settings"),
        right=_RIGHT,
        spare=_SPARE,
        prose="settings",
        names=("route", "upstream"),
    )
    for route in found:
        own = ", ".join(_set_on(route))
        for line, member in enumerate(route["members"] or [None]):
            head, tail = (route["path"], own) if line == 0 else ("", "")
            ends = line == max(0, len(route["members"]) - 1)
            table.add_row(head, *_cells(member, columns), tail, style=_style(route), end_section=ends)
    table.notes.extend(panics(found))
    return table


def route_tables(route: Json) -> Iterator[Rows]:
    """All of one route: what is set and where, then its upstreams."""
    settings = Rows(("setting", "value", "from"))
    for name, value in route["settings"].items():
        settings.add_row(name, shown(value), _source(route, name))
    settings.notes.extend(route["faults"])
    yield settings
    columns, leases = _columns_of(route["members"]), route.get("leases") or {}
    titles = ("upstream", *columns.values(), *(["lease"] if leases else []))
    upstreams = Rows(titles, right=(*_RIGHT, "lease"), spare=_SPARE)
    for member in route["members"] or [None]:
        left = [_lease(leases.get(member["member"]))] if leases and member is not None else []
        upstreams.add_row(*_cells(member, columns), *left, style=_style(route))
    upstreams.notes.extend(panics([route]))
    yield upstreams


def settings_lines(route: Json, asked: Collection[str]) -> Iterator[str]:
    """Lines of those that were asked for, and those that are set somewhere."""
    settings, sources = route["settings"], route["sources"]
    listed = [name for name in settings if name in asked or sources.get(name) != "built_in"]
    for name in listed:
        yield f"{name} = {shown(settings[name])}    ({_source(route, name)})"
    if rest := len(settings) - len(listed):
        yield f"The other {rest} settings are the built in ones; all: slb routes {route['path']}"


def panics(routes: Sequence[Json]) -> Iterator[str]:
    """A sentence for each route in panic."""
    for route in routes:
        if route["panic"]:
            members = [member for member in route["members"] if not member["drain"]]
            good = sum(member["health"] not in ("down", "ejected") for member in members)
            share = f"fewer than its panic_threshold of {route['settings']['panic_threshold']}"
            yield (
                f"{route['path']} is in panic: {good} of its {len(members)} upstreams are available, {share}, so "
                "requests go to all of them."
            )


def _lease(left: float | None) -> str:
    return "for good" if left is None else f"{left:.0f} s left"


def _source(route: Json, name: str) -> str:
    source = route["sources"].get(name, "")
    return str(SOURCES.get(source, source))


def _style(route: Json) -> str | None:
    return "red" if route["panic"] else None


def _columns_of(members: Sequence[Json]) -> dict[str, str]:
    """What is shown of upstreams, and its title. Attributes that are set on no upstream are left out."""
    return {
        name: title
        for name, title in _COLUMNS.items()
        if name not in _UNSET or any(member[name] != _UNSET[name] for member in members)
    }


def _set_on(route: Json) -> list[str]:
    """What is set on the route, then what the config file of this instance sets."""
    settings, sources = route["settings"], route["sources"]
    own = [f"{name}={shown(settings[name])}" for name in sources if sources[name] == "hash"]
    file = [f"{name}={shown(settings[name])} (config file)" for name in sources if sources[name] == "file"]
    return own + file


def _cells(member: Json | None, names: Collection[str]) -> list[str]:
    if member is None:
        return ["(none)", *("" for _ in names)]
    drain = " (draining)" if member["drain"] else ""
    return [member["member"] + drain, *(str(member[name]) for name in names)]

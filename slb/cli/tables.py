"""What `slb routes` and `slb status` draw: tables made of the answers of /routes and /status."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from slb.cli.console import Rows, moment, shown
from slb.names import natural

SOURCES = {"hash": "route", "file": "config file", "defaults": "[defaults]", "built_in": "built in"}
"""The API's words for where a setting comes from, for a person."""
_COLUMNS = {"health": "health", "weight": "weight", "slots": "slots", "zone": "zone", "inflight": "in flight"}
_UNSET = {"weight": 1, "slots": 1, "zone": ""}
_RIGHT = ("weight", "slots", "in flight")
_SPARE = ("zone", "weight", "slots", "in flight")

_OUTCOMES = ("completed", "failed", "cancelled")

Json = Mapping[str, Any]


def in_order(routes: Sequence[Json]) -> list[Json]:
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
        rows = _rows(route, columns)
        for line, cells in enumerate(rows):
            head, tail = (route["path"], own) if line == 0 else ("", "")
            table.add_row(head, *cells, tail, style=_style(route), end_section=line == len(rows) - 1)
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
    for cells in _rows(route, columns):
        left = [_lease(leases.get(cells[0].removesuffix(_DRAINING)))] if leases and cells[0] != _NONE else []
        upstreams.add_row(*cells, *left, style=_style(route))
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


_NONE, _DRAINING = "(none)", " (draining)"


def _rows(route: Json, columns: Collection[str]) -> list[list[str]]:
    """The cells of each upstream, or of "(none)"; then of the names in DNS that upstreams come from."""
    rows = [_cells(member, columns) for member in route["members"]] or [_only(_NONE, columns)]
    return rows + [_only(name, columns, "in DNS") for name in route.get("names", ())]


def _cells(member: Json, names: Collection[str]) -> list[str]:
    drain = _DRAINING if member["drain"] else ""
    return [member["member"] + drain, *(str(member[name]) for name in names)]


def _only(what: str, columns: Collection[str], health: str = "") -> list[str]:
    return [what, *(health if name == "health" else "" for name in columns)]


_ROWS = 40  # upstreams shown; those of the busiest routes first. `slb routes` has all

Rates = Mapping[str, float]  # requests a second by route, "" for those that took none


def summary(status: Json, rates: Rates | None) -> str:
    """All of it in one line, where the lines are few."""
    redis, traffic, unknown = status["redis"], status["traffic"], unknown_routes(status)
    per_second = _rate(sum(rates.values())) if rates is not None else "-"
    return (
        f"{status['name']}  redis {'up' if redis['up'] else 'down'} ({redis['mode']})  "
        f"instances {status['instances']}  in flight {traffic['inflight']}  {per_second} requests/s"
        + (f"  {unknown}" if unknown else "")
    )


def unknown_routes(status: Json) -> str:
    """Why an instance that shows no routes may be wrong about them; nothing where it is not."""
    if status["mirror"]["ready"]:
        return ""
    why = "they are being read" if status["redis"]["up"] else "Redis does not answer"
    return f"The routes are not known yet ({why})."


def live_tables(status: Json, routes: Sequence[Json], rates: Rates | None) -> Iterator[Rows]:
    """What changes from second to second."""
    if status["ledger"]["pools"]:
        yield _pools(status["ledger"]["pools"])
    if routes:
        yield _upstreams(routes, status, rates or {})
    if sources := status.get("discovery"):
        yield _sources(sources)
    if models := status.get("jobs", {}).get("models"):
        yield _jobs(models, time.time())


def overview(status: Json, rates: Rates | None) -> Iterator[tuple[str, str]]:
    """The figures of the whole instance, by name."""
    traffic = {name: value for name, value in status["traffic"].items() if name != "by_route"}
    given = {**status, "traffic": traffic}
    if "jobs" in status:
        given["jobs"] = {name: value for name, value in status["jobs"].items() if name != "models"}
    for name, value in given.items():
        if name not in ("ledger", "discovery"):
            yield name, moment(value) if name == "started" else _line(value)
    if rates is not None:
        yield "requests/s", _rate(sum(rates.values()))


def _pools(pools: Json) -> Rows:
    right = ("instances", "held here", "waiting here", "waiting everywhere")
    table = Rows(("pool", "slots", *right, "why not shared"), right=right, prose="why not shared")
    for name, pool in sorted(pools.items(), key=lambda each: natural(each[0])):
        holders, everywhere = ("" if pool[name] is None else pool[name] for name in ("holders", "queued"))
        figures = (holders, sum(pool["held"].values()), _waiting(pool["waiting"]), everywhere)
        error = "" if pool["mode"] == "shared" else pool["error"]
        style = None if pool["mode"] == "shared" else "red"
        table.add_row(name, pool["mode"], *map(str, figures), error, style=style)
    return table


def _sources(found: Sequence[Json]) -> Rows:
    """What is known of a source at the instance that writes it; elsewhere only which that is."""
    titles = ("source", "route", "written by", "upstreams", "answered", "why not")
    table = Rows(titles, right=("upstreams",), spare=("answered",), prose="why not", names=("source", "route"))
    for each in sorted(found, key=lambda each: (natural(each["path"]), natural(each["source"]))):
        count, at = (str(each["members"]), each["answered_at"]) if each["writes"] else ("", 0)
        why = each["trouble"] or ("an answer without upstreams is not believed yet" if each["held_back"] else "")
        cells = each["source"], each["path"], each["writer"] or "(nobody yet)", count, moment(at) if at else "", why
        table.add_row(*cells, style="red" if why else None)
    return table


def _jobs(models: Json, now: float) -> Rows:
    """Of all instances; outcomes since a model's first job."""
    right = ("queued", "oldest waits", "retrying", "running", *_OUTCOMES, "dead", "callbacks due")
    table = Rows(("model", *right), right=right, spare=("callbacks due", "cancelled", "failed", "retrying"))
    for name, model in sorted(models.items(), key=lambda each: natural(each[0])):
        since = model["oldest_since"]
        waits = f"{max(0.0, now - since):.0f} s" if since is not None else ""
        places = (str(model["queued"]), waits, str(model["retrying"]), str(model["processing"]))
        outcomes = (str(model["counts"].get(each, 0)) for each in _OUTCOMES)
        left = (str(model["dead_lettered"]), str(model["callbacks"]))
        table.add_row(name + (" (paused)" if model["paused"] else ""), *places, *outcomes, *left)
    return table


def _waiting(by_route: Mapping[str, Mapping[str, int]]) -> str:
    classes: dict[str, int] = {}
    for depths in by_route.values():
        for name, depth in depths.items():
            classes[name] = classes.get(name, 0) + depth
    named = ", ".join(f"{name} {depth}" for name, depth in sorted(classes.items()) if name)
    return f"{sum(classes.values())}" + (f" ({named})" if named else "")


def _upstreams(routes: Sequence[Json], status: Json, rates: Rates) -> Rows:
    figures = ("requests/s", "in flight", "everywhere")
    titles = ("route", "requests/s", "upstream", "health", "in flight", "everywhere")
    table = Rows(titles, figures, ("in flight", "requests/s", "everywhere"), names=("route", "upstream"))
    rows = [(route, member) for route in in_order(routes) for member in route["members"] or [None]]
    rows.sort(key=lambda row: -rates.get(row[0]["path"], 0.0))
    before = ""
    for route, member in rows[:_ROWS]:
        path = route["path"]
        head = (path, _rate(rates[path]) if path in rates else "") if path != before else ("", "")
        before = path
        table.add_row(*head, *_live_cells(route, member, status), style="red" if route["panic"] else None)
    if len(rows) > _ROWS:
        table.notes.append(f"and {len(rows) - _ROWS} more: slb routes")
    table.notes.extend(panics(routes))
    return table


def _live_cells(route: Json, member: Json | None, status: Json) -> tuple[str, str, str, str]:
    if member is None:
        return "(none)", "", "", ""
    health = "draining" if member["drain"] else str(member["health"])
    here = status["traffic"]["inflight_by_upstream"].get(member["member"], 0)
    return member["member"], health, str(here), _everywhere(route, member, status["ledger"]["pools"])


def _everywhere(route: Json, member: Json, pools: Json) -> str:
    """Its score, and of how many; "" where requests are not counted, or the count is not known."""
    settings = route["settings"]
    pool = pools.get(settings["pool"] or route["path"])
    counted = settings["max_inflight"] or settings["policy"] == "least_inflight"
    if pool is None or pool["scores"] is None or not counted:
        return ""
    score = str(pool["scores"].get(member["member"], 0))
    return f"{score} of {settings['max_inflight'] * member['slots']}" if settings["max_inflight"] else score


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _nested(value: Any) -> str:
    return f"({_line(value)})" if isinstance(value, dict) and value else _line(value)


def _line(value: Any) -> str:
    """Nested figures on one line: `requests=3 by_code=(200=2 502=1)`."""
    if isinstance(value, dict):
        return " ".join(f"{name}={_nested(each)}" for name, each in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(_line(each) for each in value) or "-"
    return f"{value:.3f}" if isinstance(value, float) else shown(value)

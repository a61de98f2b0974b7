"""What `slb status` draws: tables made of the answers of /status and /routes."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from slb.cli.console import make_table, moment

if TYPE_CHECKING:
    from rich.table import Table

_ROWS = 40
"""Upstreams shown; those of the busiest routes first. `slb routes` has all."""

Json = Mapping[str, Any]
Rates = Mapping[str, float]
"""Requests a second by route, "" for those that took none."""


def tables(status: Json, routes: list[Json], rates: Rates | None) -> "Iterator[Table]":
    """From the whole to the parts."""
    yield _overview(status, rates)
    yield from live_tables(status, routes, rates)


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


def live_tables(status: Json, routes: list[Json], rates: Rates | None) -> "Iterator[Table]":
    """What changes from second to second."""
    if status["ledger"]["pools"]:
        yield _pools(status["ledger"]["pools"])
    if routes:
        yield _upstreams(routes, status, rates or {})


def _overview(status: Json, rates: Rates | None) -> "Table":
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(overflow="fold")
    traffic = {name: value for name, value in status["traffic"].items() if name != "by_route"}
    for name, value in {**status, "traffic": traffic}.items():
        if name != "ledger":
            table.add_row(name, moment(value) if name == "started" else _line(value))
    if rates is not None:
        table.add_row("requests/s", _rate(sum(rates.values())))
    return table


def _pools(pools: Json) -> "Table":
    right = ("instances", "held here", "waiting here", "waiting everywhere")
    table = make_table("pool", "slots", *right, "why not shared", right=right)
    for name, pool in pools.items():
        holders, everywhere = ("" if pool[name] is None else pool[name] for name in ("holders", "queued"))
        figures = (holders, sum(pool["held"].values()), _waiting(pool["waiting"]), everywhere)
        error = "" if pool["mode"] == "shared" else pool["error"]
        style = None if pool["mode"] == "shared" else "red"
        table.add_row(name, pool["mode"], *map(str, figures), error, style=style)
    return table


def _waiting(by_route: Mapping[str, Mapping[str, int]]) -> str:
    """All together, and how many of each class where there are classes."""
    classes: dict[str, int] = {}
    for depths in by_route.values():
        for name, depth in depths.items():
            classes[name] = classes.get(name, 0) + depth
    named = ", ".join(f"{name} {depth}" for name, depth in sorted(classes.items()) if name)
    return f"{sum(classes.values())}" + (f" ({named})" if named else "")


def _upstreams(routes: list[Json], status: Json, rates: Rates) -> "Table":
    columns = ("route", "requests/s", "upstream", "health", "in flight", "everywhere")
    table = make_table(*columns, right=("requests/s", "in flight", "everywhere"))
    rows = [(route, member) for route in routes for member in route["members"] or [None]]
    rows.sort(key=lambda row: (-rates.get(row[0]["path"], 0.0), row[0]["path"]))
    told = ""
    for route, member in rows[:_ROWS]:
        path = route["path"]
        head = (path, _rate(rates[path]) if path in rates else "") if path != told else ("", "")
        told = path
        table.add_row(*head, *_cells(route, member, status), style="red" if route["panic"] else None)
    if len(rows) > _ROWS:
        table.caption = f"and {len(rows) - _ROWS} more: slb routes"
    return table


def _cells(route: Json, member: Json | None, status: Json) -> tuple[str, str, str, str]:
    if member is None:
        return "(none)", "", "", ""
    health = "draining" if member["drain"] else str(member["health"])
    here = status["traffic"]["inflight_by_upstream"].get(member["member"], 0)
    return member["member"], health, str(here), _everywhere(route, member, status["ledger"]["pools"])


def _everywhere(route: Json, member: Json, pools: Json) -> str:
    """Its score, and of how many; nothing where nobody counts, or nobody can know."""
    settings = route["settings"]
    pool = pools.get(settings["pool"] or route["path"])
    counted = settings["max_inflight"] or settings["policy"] == "least_inflight"
    if pool is None or pool["scores"] is None or not counted:
        return ""
    score = str(pool["scores"].get(member["member"], 0))
    return f"{score} of {settings['max_inflight'] * member['slots']}" if settings["max_inflight"] else score


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _line(value: Any) -> str:
    """Nested figures on one line: `up=True mode=sync`."""
    if isinstance(value, dict):
        return " ".join(f"{name}={_line(each)}" for name, each in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(_line(each) for each in value) or "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)

"""What `slb status` draws: tables made of the answers of /status and /routes."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slb.cli.console import moment, shown
from slb.cli.route_tables import panics
from slb.cli.rows import Rows
from slb.names import natural

_ROWS = 40
"""Upstreams shown; those of the busiest routes first. `slb routes` has all."""

_OUTCOMES = ("completed", "failed", "cancelled")

Json = Mapping[str, Any]
Rates = Mapping[str, float]
"""Requests a second by route, "" for those that took none."""


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
    if models := status.get("jobs", {}).get("models"):
        yield _jobs(models, time.time())


def overview(status: Json, rates: Rates | None) -> Iterator[tuple[str, str]]:
    """What the whole instance says of itself, by name."""
    traffic = {name: value for name, value in status["traffic"].items() if name != "by_route"}
    shown = {**status, "traffic": traffic}
    if "jobs" in status:
        shown["jobs"] = {name: value for name, value in status["jobs"].items() if name != "models"}
    for name, value in shown.items():
        if name != "ledger":
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
    """All together, and how many of each class where there are classes."""
    classes: dict[str, int] = {}
    for depths in by_route.values():
        for name, depth in depths.items():
            classes[name] = classes.get(name, 0) + depth
    named = ", ".join(f"{name} {depth}" for name, depth in sorted(classes.items()) if name)
    return f"{sum(classes.values())}" + (f" ({named})" if named else "")


def _upstreams(routes: Sequence[Json], status: Json, rates: Rates) -> Rows:
    figures = ("requests/s", "in flight", "everywhere")
    titles = ("route", "requests/s", "upstream", "health", "in flight", "everywhere")
    table = Rows(
        titles, right=figures, spare=("in flight", "requests/s", "everywhere"), names=("route", "upstream")
    )
    rows = [(route, member) for route in routes for member in route["members"] or [None]]
    rows.sort(key=lambda row: (-rates.get(row[0]["path"], 0.0), *_place(*row)))
    before = ""
    for route, member in rows[:_ROWS]:
        path = route["path"]
        head = (path, _rate(rates[path]) if path in rates else "") if path != before else ("", "")
        before = path
        table.add_row(*head, *_cells(route, member, status), style="red" if route["panic"] else None)
    if len(rows) > _ROWS:
        table.notes.append(f"and {len(rows) - _ROWS} more: slb routes")
    table.notes.extend(panics(routes))
    return table


def _place(route: Json, member: Json | None) -> tuple[Any, Any]:
    return natural(route["path"]), natural(member["member"] if member else "")


def _cells(route: Json, member: Json | None, status: Json) -> tuple[str, str, str, str]:
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

"""What `slb top` shows: rows of text made of the fleet's state. Pure."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slb.cli.events import printable
from slb.cli.fleet_state import FleetState
from slb.names import natural

Object = Mapping[str, Any]
_FULL, _FREE = "▮", "▯"
_MOST_BOXES = 8
_LONGEST_CELL = 60
"""Characters: a name of 4 KB is cut, and `slb routes` has it whole."""
_MOST_ROWS = 500
"""A terminal has fewer lines; a filter finds the others."""


@dataclass(frozen=True)
class Row:
    """`key` names it within its view; `order` is what each of its cells is sorted by; `style` is a colour."""

    key: str
    cells: Sequence[str]
    order: Sequence[Any]
    style: str = ""


@dataclass(frozen=True)
class View:
    """`right`: the columns of numbers, which are sorted with the largest first; `empty`: why there may be none."""

    name: str
    columns: Sequence[str]
    right: frozenset[str]
    rows: Callable[[FleetState], Iterable[Row]]
    empty: str


def plain(value: Any) -> str:
    """One line without what a terminal could take for a command: names and errors come from strangers."""
    text = printable(str(value))
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"


def figure(value: Any) -> str:
    """A count or a rate, or nothing where it is not known."""
    if value is None:
        return ""
    return f"{value:.0f}" if isinstance(value, int) or value >= 10 or value == 0 else f"{value:.1f}"


def span(seconds: Any) -> str:
    """Seconds, in the unit that suits them; nothing where they are not known."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def boxes(used: int, capacity: int) -> str:
    """The slots of an upstream: up to eight as boxes, more as numbers alone."""
    if not capacity:
        return str(used)
    drawn = _FULL * min(used, capacity) + _FREE * max(0, capacity - used) if capacity <= _MOST_BOXES else ""
    return f"{used}/{capacity} {drawn}".rstrip()


def shown(view: View, state: FleetState, wanted: str, column: int, reverse: bool) -> tuple[list[Row], int]:
    """The rows that have the text `wanted` in them, in the order of a column, and how many there are beyond."""
    needle = wanted.lower()
    found = [row for row in view.rows(state) if not needle or any(needle in cell.lower() for cell in row.cells)]
    found.sort(key=lambda row: row.order[0])
    largest_first = view.columns[column] in view.right
    found.sort(key=lambda row: row.order[column], reverse=largest_first != reverse)
    return found[:_MOST_ROWS], max(0, len(found) - _MOST_ROWS)


def _row(key: str, cells: Sequence[tuple[str, Any]], style: str = "") -> Row:
    return Row(key, [plain(text) for text, _ in cells], [order for _, order in cells], style)


def _number(value: Any, text: Callable[[Any], str] = figure) -> tuple[str, float]:
    return text(value), -1.0 if value is None else float(value)


def _name(value: Any) -> tuple[str, Any]:
    return str(value), natural(plain(value))


def _routes(state: FleetState) -> Iterable[Row]:
    upstreams, queued = state.of("upstreams"), _queued(state)
    for path, each in state.of("routes").items():
        members = [upstreams[member] for member in each.get("members", ()) if member in upstreams]
        usable = sum(_is_usable(member) for member in members)
        cells = [
            _name(path),
            (f"{usable}/{len(each.get('members', ()))}", usable),
            _number(each.get("inflight")),
            _number(queued.get(path, 0)),
            _number(each.get("rate")),
            _number(each.get("p50"), span),
            _number(each.get("p99"), span),
            _number(each.get("error_rate")),
            _name(each.get("policy", "")),
        ]
        bad = each.get("panic") or not usable
        yield _row(path, cells, "red" if bad else "yellow" if usable < len(members) else "")


def _queued(state: FleetState) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in state.of("queues").values():
        found[each["route"]] = found.get(each["route"], 0) + each["depth"]
    return found


def _is_usable(upstream: Object) -> bool:
    return not upstream["drain"] and upstream["health"] not in ("down", "ejected")


def condition(upstream: Object) -> str:
    """Its health in a word, with who has ejected it and why."""
    if upstream["drain"]:
        return "draining"
    if upstream["health"] in ("down", "ejected", "failing") and upstream.get("why"):
        return f"{upstream['health']}: {upstream['why']}"
    fading = upstream.get("fading")
    return f"fading in {fading:.0%}" if fading is not None else str(upstream["health"])


def _upstreams(state: FleetState) -> Iterable[Row]:
    for member, each in state.of("upstreams").items():
        cells = [
            _name(member),
            (boxes(each["inflight"], each["capacity"]), each["inflight"]),
            _number(each.get("rate")),
            _number(each.get("error_rate")),
            _number(each.get("latency"), span),
            _number(each.get("first_byte"), span),
            _name(condition(each)),
            _name(" ".join(each["routes"])),
            _name(each.get("zone", "")),
            _name(each.get("node", "")),
        ]
        yield _row(member, cells, "" if _is_usable(each) else "yellow" if each["drain"] else "red")


def _queues(state: FleetState) -> Iterable[Row]:
    for key, each in state.of("queues").items():
        cells = [
            _name(each["route"]),
            _name(each["priority"] or "-"),
            _number(each["depth"]),
            _number(each["oldest"], span),
            _number(each["eta"], span),
            _name(each["pool"]),
        ]
        yield _row(key, cells)


_OF_JOBS = ("queued", "processing", "retrying", "dead_lettered")


def _jobs(state: FleetState) -> Iterable[Row]:
    for model, each in state.of("jobs").items():
        counted = [_number(each.get(name, 0)) for name in _OF_JOBS]
        name = _name(f"{model} (paused)" if each.get("paused") else model)
        cells = [name, *counted, _number(each.get("rate")), _number(each.get("oldest"), span)]
        yield _row(model, cells, "red" if each.get("dead_lettered") else "")


def _instances(state: FleetState) -> Iterable[Row]:
    now = time.time()
    for id_, each in state.of("instances").items():
        redis = "" if each.get("redis_up") is None else each["redis_mode"] if each["redis_up"] else "away"
        silent = each.get("silent_for")
        cells = [
            _name(each["name"]),
            _name(",".join(each["roles"])),
            _number(each.get("rate")),
            _number(each.get("inflight")),
            _number(each.get("p99"), span),
            _number(each.get("error_rate")),
            _name("draining" if each.get("draining") else "silent" if silent is None or silent > 5 else "serving"),
            _name(redis),
            _number(max(0.0, now - each["started"]) if each.get("started") else None, span),
            _name(each.get("version", "")),
        ]
        yield _row(id_, cells, "red" if redis == "away" else "")


def _view(name: str, columns: str, right: str, rows: Callable[[FleetState], Iterable[Row]], empty: str) -> View:
    return View(name, columns.split(","), frozenset(right.split(",")), rows, empty)


VIEWS = (
    _view(
        "routes",
        "route,up,in flight,queued,req/s,p50,p99,err/s,policy",
        "in flight,queued,req/s,p50,p99,err/s",
        _routes,
        "There are no routes yet: POST /register makes one, with its first upstream.",
    ),
    _view(
        "upstreams",
        "upstream,slots,req/s,err/s,latency,first byte,condition,routes,zone,node",
        "slots,req/s,err/s,latency,first byte",
        _upstreams,
        "There are no upstreams yet: POST /register adds one to a route.",
    ),
    _view("queues", "route,class,depth,oldest,eta,pool", "depth,oldest,eta", _queues, "Nobody waits."),
    _view(
        "jobs",
        "model,queued,running,retrying,dead,done/s,oldest",
        "queued,running,retrying,dead,done/s,oldest",
        _jobs,
        "No model has jobs: they are submitted to POST /queue/submit of an slb with the role jobs.",
    ),
    _view(
        "instances",
        "instance,roles,req/s,in flight,p99,err/s,state,redis,up for,version",
        "req/s,in flight,p99,err/s,up for",
        _instances,
        "No instance is heard of.",
    ),
)


def decided(route: Object) -> list[str]:
    """Lines that tell why the last request of a route went where it went, of what `GET /routes/<path>` answers."""
    decision = route["decision"]
    if decision is None:
        return [f"{route['path']}: no request has been decided yet"]
    reason = f" ({decision['reason']})" if decision["reason"] else ""
    ago = f", {span(decision['seconds_ago'])} ago" if decision["seconds_ago"] is not None else ""
    outcome = f"{decision['outcome']}{reason}" if decision["outcome"] else "what the next request goes by"
    head = f"{route['path']}: {outcome}{ago}, by {decision['policy']}, decided by {decision['decided_by']}"
    position = decision["position"]
    waited = [f"waited {span(decision['waited'])}, {position} before it"] if position is not None else []
    return [head, *waited, *(_verdict(each) for each in decision["members"])]


def _verdict(member: Object) -> str:
    score = "-" if member["score"] is None else str(member["score"])
    of = f"/{member['capacity']}" if member["capacity"] else ""
    return f"  {member['member']}  {score}{of}  {member['verdict']}"


def headline(state: FleetState, trouble: str, frozen: bool) -> str:
    """The first line: who is asked, the fleet's rate, and what is wrong."""
    own = state.own
    if trouble:
        return plain(trouble)
    if not own:
        return "asking…"
    every = state.of("instances").values()
    rate, inflight = (sum(each.get(name) or 0 for each in every) for name in ("rate", "inflight"))
    redis = "redis up" if own["redis"]["up"] else "redis away"
    alone = "  alone: others are not heard" if own.get("alone") else ""
    paused = "  FROZEN (f)" if frozen else ""
    name = plain(own["name"])
    instances = "1 instance" if len(every) == 1 else f"{len(every)} instances"
    return f"{name}  {instances}  {figure(rate)} req/s  {inflight} in flight  {redis}{alone}{paused}"


def alerts(state: FleetState, most: int) -> list[tuple[str, str]]:
    """Level and sentence of the alerts, the worst first, and a line for those that do not fit."""
    found = [(str(each.get("level", "info")), _alert_line(each)) for each in worst_first(state)]
    if len(found) > most:
        found = [*found[: most - 1], ("info", f"and {len(found) - most + 1} more: slb alerts, or the dashboard")]
    return found


def worst_first(state: FleetState) -> list[Object]:
    """The alerts, of one level the oldest first."""
    found = state.of("alerts").values()
    return sorted(found, key=lambda each: (-LEVELS.index(_level(each)), each.get("since", 0.0)))


LEVELS = ("info", "warning", "error")
"""Of alerts, the worst last."""


def _level(alert: Object) -> str:
    """One that this version does not know is taken for the least."""
    return alert["level"] if alert.get("level") in LEVELS else LEVELS[0]


def worst(state: FleetState) -> str:
    """The level of the worst alert; empty where there is none."""
    return max(map(_level, state.of("alerts").values()), key=LEVELS.index, default="")


def since(alert: Object) -> str:
    """For how long it has lasted, or nothing where that is not known."""
    return span(max(0.0, time.time() - alert["since"])) if alert.get("since") else ""


def _alert_line(alert: Object) -> str:
    do = f"$ {alert['do']}" if alert.get("do") else ""
    return plain_line("  ".join(filter(None, (since(alert), str(alert.get("text", "")), do))))


def plain_line(value: Any) -> str:
    """A sentence in one line, cut at 400 characters."""
    return printable(str(value))[:400]

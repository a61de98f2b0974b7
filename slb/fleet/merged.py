"""Rows of several processes as one object of the state. Pure."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from slb.balance.health_state import FOUND_BY_OTHERS
from slb.fleet.frame import HEALTH, NO_UPSTREAM_ROW, PoolRow, QueueRow, RouteRow, UpstreamRow
from slb.fleet.rates import quantile, summed

_MODES = ("local", "settling", "late", "shared")
"""The worst first, as of a supervisor's workers."""
UNSURE = frozenset({"local", "settling"})
"""Those in which Redis does not know of all slots."""
MOST_QUEUES = 2000
"""That are shown."""
_EJECTED = HEALTH.index("ejected")
_BUSY = "it says that it is full"


def upstream(
    rows: Mapping[str, UpstreamRow],
    names: Mapping[str, str],
    since: Mapping[str, float] = {},
    first_bytes: Mapping[str, float] = {},
    is_busy: bool = False,
    spared_by: Container[str] = (),
    stuck_for: Container[str] = (),
) -> dict[str, Any]:
    """What all find of one upstream; `names`: of the processes, by id; `since`: of these, from when on each finds
    it out; `first_bytes`: how long these take each, in seconds. Its health is the worst that any sees, by
    the words of one that has found it itself. `is_busy`: one has set it aside; `spared_by`: those that would eject
    it, were `max_ejected` not reached, or find it stuck; `stuck_for`: those of them that find it stuck, and others
    that have ejected it for that."""
    worst, is_spared, is_stuck = NO_UPSTREAM_ROW, False, False
    if rows:
        worst_at = max(
            rows,
            key=lambda id_: (rows[id_][0], not rows[id_][1].endswith(FOUND_BY_OTHERS), id_ in spared_by, rows[id_]),
        )
        worst, is_spared = rows[worst_at], worst_at in spared_by and rows[worst_at][0] < _EJECTED
        is_stuck = is_spared and worst_at in stuck_for
    shown, why = HEALTH[worst[0]], worst[1]
    if is_stuck:
        shown = "stuck"
    elif is_busy and worst[0] < _EJECTED:
        shown, why = "busy", _BUSY
    inflight, rate, errors, took, timed, waited = 0, 0.0, 0.0, 0.0, 0.0, 0.0
    held: dict[str, int] = {}
    ejected_by: list[str] = []
    for id_, (health, _, its_inflight, its_held, its_rate, its_errors, latency) in rows.items():
        inflight += its_inflight
        rate += its_rate
        errors += its_errors
        if latency:
            took += latency * its_rate
            timed += its_rate
            waited += first_bytes.get(id_, 0.0) * its_rate
        if its_held:
            name = names.get(id_, id_)
            held[name] = held.get(name, 0) + its_held
        if health == _EJECTED:
            ejected_by.append(names.get(id_, id_))
    return {
        "health": shown,
        "ejected_by": sorted(ejected_by),
        "spared": is_spared,
        "why": why,
        "since": min(since.values(), default=None),
        "inflight": inflight,
        "held": held,
        "rate": round(rate, 3),
        "error_rate": round(errors, 3),
        "latency": round(took / timed, 6) if timed else None,
        "first_byte": round(waited / timed, 6) if timed and first_bytes else None,
    }


def route(rows: Iterable[RouteRow]) -> dict[str, Any]:
    panic, rate, error_rate = False, 0.0, 0.0
    histograms: list[Sequence[float]] = []
    reasons: dict[str, float] = {}
    for its_panic, its_rate, its_errors, its_times, its_reasons in rows:
        panic, rate, error_rate = panic or its_panic, rate + its_rate, error_rate + its_errors
        if its_times:
            histograms.append(its_times)
        for name, of_reason in its_reasons.items():
            reasons[name] = round(reasons.get(name, 0.0) + of_reason, 3)
    times = summed(histograms)
    return {
        "panic": panic,
        "rate": round(rate, 3),
        "error_rate": round(error_rate, 3),
        "p50": quantile(times, 0.5),
        "p99": quantile(times, 0.99),
        "reasons": reasons,
    }


def pools(rows: Iterable[PoolRow]) -> dict[str, dict[str, Any]]:
    by_name: dict[str, list[PoolRow]] = {}
    for row in rows:
        by_name.setdefault(row.name, []).append(row)
    return {name: _pool(each) for name, each in sorted(by_name.items())}


def _pool(rows: Sequence[PoolRow]) -> dict[str, Any]:
    known = [row for row in rows if row.mode in _MODES] or [rows[0]._replace(mode="shared")]
    holders, queued = max(row.holders for row in rows), max(row.queued for row in rows)
    return {
        "mode": min((row.mode for row in known), key=_MODES.index),
        "error": next((row.error for row in rows if row.error), ""),
        "holders": holders if holders >= 0 else None,
        "queued": queued if queued >= 0 else None,
        "inflight": sum(row.held for row in rows),
    }


def queues(rows: Iterable[QueueRow], served: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """`served`: by pool the requests that end per second, by which those that wait will have gone."""
    found: dict[str, dict[str, Any]] = {}
    depths: dict[str, int] = {}
    for row in rows:
        key = f"{row.pool}|{row.route}|{row.priority}"
        if len(found) >= MOST_QUEUES and key not in found:
            continue
        shown = found.setdefault(
            key,
            {"pool": row.pool, "route": row.route, "priority": row.priority, "depth": 0, "oldest": 0.0},
        )
        shown["depth"] += row.depth
        shown["oldest"] = max(shown["oldest"], round(row.oldest, 1))
        depths[row.pool] = depths.get(row.pool, 0) + row.depth
    for shown in found.values():
        rate = served.get(shown["pool"], 0.0)
        shown["eta"] = round(depths[shown["pool"]] / rate, 1) if rate else None
    return found

"""What `slb top` makes of the fleet's state."""

import time
from typing import Any

import pytest

from slb.cli.fleet_state import FleetState
from slb.cli.top_views import VIEWS, alerts, boxes, decided, headline, plain, shown, span, worst

ROUTES, UPSTREAMS, QUEUES, JOBS, INSTANCES = VIEWS


def upstream(**changes: Any) -> dict[str, Any]:
    return {
        "routes": ["/p"],
        "capacity": 8,
        "zone": "",
        "node": "",
        "drain": False,
        "fading": None,
        "health": "up",
        "why": "",
        "inflight": 3,
        "rate": 1.25,
        "error_rate": 0,
        "latency": 0.25,
        **changes,
    }


def state_of(**sections: Any) -> FleetState:
    state = FleetState()
    state.apply("all", sections)
    return state


def cells(state: FleetState, view: Any, column: int = 0, wanted: str = "", reverse: bool = False) -> list[Any]:
    return [list(row.cells) for row in shown(view, state, wanted, column, reverse)[0]]


def test_a_change_replaces_objects_and_null_removes_them() -> None:
    state = state_of(routes={"/a": {"rate": 1}, "/b": {"rate": 2}})
    state.apply("change", {"routes": {"/a": {"rate": 3}, "/b": None}, "queues": {"x": {}}})
    assert state.sections == {"routes": {"/a": {"rate": 3}}, "queues": {"x": {}}}
    state.apply("all", {"routes": {}})
    assert state.sections == {"routes": {}}


@pytest.mark.parametrize(
    ("used", "capacity", "drawn"),
    [(3, 8, "3/8 ▮▮▮▯▯▯▯▯"), (2, 1, "2/1 ▮"), (5, 9, "5/9"), (7, 0, "7"), (0, 2, "0/2 ▯▯")],
)
def test_slots_are_boxes_up_to_eight(used: int, capacity: int, drawn: str) -> None:
    assert boxes(used, capacity) == drawn


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, ""), (0.0123, "12 ms"), (1.5, "1.5 s"), (59, "59 s"), (600, "10 min"), (9e3, "2 h")],
)
def test_a_span_has_the_unit_that_suits_it(seconds: float | None, text: str) -> None:
    assert span(seconds) == text


def test_an_upstream_says_why_it_is_not_used() -> None:
    state = state_of(
        upstreams={
            "10.0.0.2:80": upstream(health="ejected", why="connection refused", inflight=0),
            "10.0.0.10:80": upstream(drain=True),
            "10.0.0.3:80": upstream(fading=0.5),
        }
    )
    found = {row[0]: row[6] for row in cells(state, UPSTREAMS)}
    assert found == {
        "10.0.0.2:80": "ejected: connection refused",
        "10.0.0.10:80": "draining",
        "10.0.0.3:80": "fading in 50%",
    }
    assert [row[0] for row in cells(state, UPSTREAMS)] == ["10.0.0.2:80", "10.0.0.3:80", "10.0.0.10:80"]


def test_rows_are_sorted_by_a_column_with_the_largest_number_first_and_filtered() -> None:
    state = state_of(upstreams={f"10.0.0.{n}:80": upstream(inflight=n % 3, zone=f"z{n}") for n in range(1, 5)})
    assert [row[1][0] for row in cells(state, UPSTREAMS, column=1)] == ["2", "1", "1", "0"]
    assert [row[1][0] for row in cells(state, UPSTREAMS, column=1, reverse=True)] == ["0", "1", "1", "2"]
    assert [row[0] for row in cells(state, UPSTREAMS, wanted="Z3")] == ["10.0.0.3:80"]


def test_more_rows_than_a_screen_needs_are_counted() -> None:
    state = state_of(upstreams={f"10.0.{n // 250}.{n % 250}:80": upstream() for n in range(700)})
    rows, beyond = shown(UPSTREAMS, state, "", 0, False)
    assert (len(rows), beyond) == (500, 200)


def test_a_route_counts_those_that_wait_and_those_that_are_up() -> None:
    route = {"members": ["a:1", "b:1"], "inflight": 4, "rate": 10.4, "p50": 0.1, "p99": 2.0, "error_rate": 0}
    state = state_of(
        routes={"/p": {**route, "policy": "p2c", "panic": False}},
        upstreams={"a:1": upstream(), "b:1": upstream(health="down", why="")},
        queues={"p|/p|": {"route": "/p", "priority": "", "depth": 3, "oldest": 1.0, "eta": None, "pool": "/p"}},
    )
    assert cells(state, ROUTES) == [["/p", "1/2", "4", "3", "10", "100 ms", "2.0 s", "0", "p2c"]]
    assert cells(state, QUEUES) == [["/p", "-", "3", "1.0 s", "", "/p"]]


def test_models_with_dead_jobs_and_silent_instances_stand_out() -> None:
    instance = {
        "name": "one",
        "roles": ["proxy"],
        "started": 0,
        "version": "1",
        "redis_up": False,
        "redis_mode": "",
    }
    state = state_of(
        jobs={"flux": {"queued": 2, "processing": 1, "dead_lettered": 1, "paused": True, "oldest": 5.0}},
        instances={"i": {**instance, "silent_for": None}},
    )
    assert cells(state, JOBS) == [["flux (paused)", "2", "1", "0", "1", "", "5.0 s"]]
    assert cells(state, INSTANCES)[0][6:8] == ["silent", "away"]
    assert [row.style for row in shown(JOBS, state, "", 0, False)[0]] == ["red"]


def test_names_of_strangers_move_no_cursor_and_fill_no_screen() -> None:
    assert plain("\x1b[2J\u202eabc\n") == "\\x1b[2J\\u202eabc\\n"
    assert len(plain("x" * 4096)) == 60


def test_the_headline_adds_the_fleet_up_or_tells_of_trouble() -> None:
    own = {"name": "one", "redis": {"up": True}, "alone": False}
    each = {"rate": 2.0, "inflight": 3}
    state = state_of(view={"self": own}, instances={"a": each, "b": {"rate": None, "inflight": None}})
    assert headline(state, "", False) == "one  2 instances  2.0 req/s  3 in flight  redis up"
    alone = state_of(view={"self": own}, instances={"a": each})
    assert headline(alone, "", False).startswith("one  1 instance  ")
    assert headline(state, "no answer", False) == "no answer"
    assert "FROZEN" in headline(state, "", True)


def test_the_worst_alerts_come_first_and_the_others_are_counted() -> None:
    levels = ["info", "error", "warning", "info"]
    state = state_of(alerts={str(n): {"level": level, "text": f"t{n}"} for n, level in enumerate(levels)})
    assert [text for _, text in alerts(state, 3)][:2] == ["t1", "t2"]
    assert alerts(state, 3)[2][1].startswith("and 2 more")


def test_an_alert_is_told_with_its_age_and_what_to_type() -> None:
    alert = {"level": "error", "text": "a is down", "since": time.time() - 600, "do": "slb drain a"}
    assert alerts(state_of(alerts={"x": alert}), 3) == [("error", "10 min  a is down  $ slb drain a")]


def test_a_level_of_another_version_is_the_least() -> None:
    levels = ["grave", "warning"]
    state = state_of(alerts={str(n): {"level": level, "text": ""} for n, level in enumerate(levels)})
    assert worst(state) == "warning"
    assert worst(state_of(alerts={"0": {"level": "grave"}})) == "info"
    assert worst(state_of()) == ""


def test_a_decision_is_told_line_by_line() -> None:
    member = {"member": "a:1", "score": 1, "capacity": 2, "verdict": "chosen"}
    decision = {"decided_by": "redis", "policy": "p2c", "seconds_ago": 1.0, "outcome": "granted", "reason": None}
    route = {"path": "/p", "decision": {**decision, "position": 0, "waited": 0.5, "members": [member]}}
    assert decided(route) == [
        "/p: granted, 1.0 s ago, by p2c, decided by redis",
        "waited 500 ms, 0 before it",
        "  a:1  1/2  chosen",
    ]
    assert decided({"path": "/p", "decision": None}) == ["/p: no request has been decided yet"]

"""What is printed for a person: whole on any terminal, and in a pipe."""

import io
import re
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from slb.cli.console import Rows, moment, show, show_pairs, shown
from slb.cli.tables import in_order, live_tables, route_tables, routes_table
from slb.model import RouteSettings

MEMBER = "https://a-machine-with-a-long-name.of-some-cluster.internal.example.test:8443"
PATH = "/a/path/that/goes/on/for/long/and/longer/than/eighty/columns/take/beside/an/upstream"
MEMBERS = (
    "10.0.0.9:80",
    "10.0.0.10:18080",
    "[2001:db8:85a3:8d3:1319:8a2e:370:7348]:18080",
    "https://gpu-node-with-a-name-12.cluster-7.internal.example:8443",
)
PATHS = ("/models/llama", "/models/meta-llama/Meta-Llama-3.1-405B-Instruct-FP8")
_STYLES = re.compile("\x1b\\[[0-9;]*m")
WIDTHS = [40, 60, 80, 120]


def member(name: str, **other: Any) -> dict[str, Any]:
    shown = {"weight": 1, "slots": 1, "zone": "", "node": "", "drain": False, "joined": 0.0, "inflight": 3}
    return {"member": name, **shown, "health": "unchecked", "failures": 0, **other}


def route(path: str, *members: dict[str, Any], panic: bool = False, **settings: Any) -> dict[str, Any]:
    effective_settings = RouteSettings.model_validate(settings).model_dump(mode="json")
    sources = {name: "hash" if name in settings else "built_in" for name in effective_settings}
    route = {"settings": effective_settings, "sources": sources, "faults": [], "panic": panic}
    return {"path": path, "members": list(members), **route}


def status(*routes: dict[str, Any]) -> dict[str, Any]:
    pool = {"mode": "local", "error": "Redis did not answer within 50 ms, and that is a long sentence to draw"}
    figures = {"holders": 3, "queued": 2, "held": {MEMBERS[1]: 2}, "waiting": {PATHS[1]: {"": 1}}}
    pools = {each["path"]: {**pool, **figures, "scores": dict.fromkeys(MEMBERS, 7)} for each in routes}
    return {"traffic": {"inflight_by_upstream": {}}, "ledger": {"pools": pools}}


def drawn(width: int, *parts: Rows) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, color_system=None, markup=False)
    for each in parts:
        console.print(each)
    return out.getvalue()


def long_names() -> Iterator[Rows]:
    set_there: dict[str, Any] = {
        "policy": "p2c",
        "max_inflight": 4,
        "hash_key": "header:X-Session",
        "pool": "/models",
    }
    routes = [
        route(path, *(member(each, zone="eu-west-1b", slots=8) for each in MEMBERS), **set_there) for path in PATHS
    ]
    yield routes_table(routes)
    yield from route_tables(routes[1])
    yield from live_tables(status(*routes), routes, {PATHS[1]: 12345.0})


@pytest.mark.parametrize("width", WIDTHS)
def test_no_table_breaks_an_address_or_a_path_or_is_wider_than_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for table in long_names():
        show(table)
    printed = _STYLES.sub("", capsys.readouterr().out)
    for name in (*MEMBERS, *PATHS):
        assert printed.count(name) >= 2
    longest = max(map(len, (*MEMBERS, *PATHS)))
    assert max(map(len, printed.splitlines())) <= max(width, longest + 2)
    assert "\u2026" not in printed, "something was cut"


@pytest.mark.parametrize(
    ("width", "left_out"), [(80, ["Not shown at this width: in flight (--json has all)."]), (120, [])]
)
def test_names_of_ordinary_length_stand_in_a_table_at_eighty_columns(width: int, left_out: list[str]) -> None:
    set_there: dict[str, Any] = {
        "policy": "least_inflight",
        "max_inflight": 4,
        "when_full": "queue",
        "health_path": "/healthz",
    }
    found = route("/models/llama", *(member(f"192.168.100.{each}:18080") for each in range(3)), **set_there)
    lines = drawn(width, routes_table([found]), *live_tables(status(found), [found], {})).splitlines()
    assert max(map(len, lines)) <= width
    assert [line for line in lines if "Not shown" in line] == left_out
    assert sum("192.168.100.2:18080" in line and "\u2502" in line for line in lines) == 2


def test_columns_that_matter_less_are_left_out_before_a_table_becomes_lines() -> None:
    table = Rows(("name", "zone", "figure"), spare=("zone",))
    table.add_row("node-1", "eu-west-1b", "12")
    assert "eu-west-1b" in drawn(32, table)
    narrow = drawn(28, table)
    assert "eu-west-1b" not in narrow
    assert "\u2502 node-1 \u2502 12" in narrow
    assert "Not shown at this" in narrow
    assert drawn(18, table).splitlines() == ["node-1", "  zone eu-west-1b,", "  figure 12"]


def test_in_a_pipe_a_table_is_as_wide_as_what_it_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    table = Rows(("route", "upstream", "slots"), right=("slots",))
    table.add_row(PATH, MEMBER, "1")
    show(table)
    row = capsys.readouterr().out.splitlines()[3]
    assert [cell.strip() for cell in row.split("\u2502")[1:-1]] == [PATH, MEMBER, "1"]


def test_names_and_what_they_are_fold_between_words_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    show_pairs([("redis", f"url={MEMBER} up=True mode=sync"), ("pid", "1")])
    out = capsys.readouterr().out
    assert MEMBER in out
    assert "\npid    1\n" in out


def test_names_are_listed_as_people_count() -> None:
    found = in_order([route(f"/p{number}", *map(member, ("n10:80", "n9:80", "10.0.0.2:80"))) for number in (10, 9)])
    assert [each["path"] for each in found] == ["/p9", "/p10"]
    assert [each["member"] for each in found[0]["members"]] == ["10.0.0.2:80", "n9:80", "n10:80"]


def test_a_route_in_panic_is_described_in_words() -> None:
    health = ("down", "ejected", "up", "unchecked", "down")
    members = [member(f"10.0.0.{number}:80", health=each) for number, each in enumerate(health)]
    members.append(member("10.0.0.9:80", drain=True))
    found = route("/p1", *members, panic=True)
    sentence = "/p1 is in panic: 2 of its 5 upstreams are available"
    for tables in ([routes_table([found])], route_tables(found), live_tables(status(found), [found], None)):
        assert sentence in drawn(200, *tables)
    assert "panic:" not in drawn(200, routes_table([route("/p1", *members)]))


def test_one_route_is_shown_with_each_setting_and_where_it_comes_from() -> None:
    found = route("/p1", member(MEMBERS[0]), policy="p2c")
    found["sources"]["retries"], found["sources"]["fade_in"] = "file", "defaults"
    rows = [
        [cell.strip() for cell in line.split("\u2502")[1:-1]]
        for line in drawn(80, *route_tables(found)).splitlines()
    ]
    assert ["policy", "p2c", "route"] in rows
    assert ["retries", "1", "config file"] in rows
    assert ["fade_in", "0", "[defaults]"] in rows
    assert ["idle_timeout", "1m", "built in"] in rows
    assert {row[0] for row in rows if len(row) == 3} >= RouteSettings.model_fields.keys()
    assert [MEMBERS[0], "unchecked", "3"] in rows


def test_what_is_not_set_is_called_none() -> None:
    nothing: list[object] = [None, "", {}, []]
    assert {shown(value) for value in nothing} == {"none"}
    assert (shown(0), shown(False), shown(True), shown("/gpus")) == ("0", "false", "true", "/gpus")


def test_a_moment_is_a_date_and_a_time() -> None:
    assert moment(0) == "1970-01-01 00:00:00+00:00"
    assert moment(None) == moment("soon") == ""


def test_a_models_jobs_have_a_row_with_where_they_are_and_what_became_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("slb.cli.tables.time.time", lambda: 1_000_090.0)
    figures = {"queued": 12, "retrying": 1, "processing": 8, "callbacks": 2, "dead_lettered": 3, "ended": 40}
    flux = {**figures, "oldest": "one", "oldest_since": 1_000_000.0, "paused": True, "counts": {"completed": 37}}
    idle: dict[str, Any] = {
        **dict.fromkeys(figures, 0),
        "oldest": None,
        "oldest_since": None,
        "paused": False,
        "counts": {},
    }
    shown = {**status(), "jobs": {"at_risk": None, "models": {"zimg": idle, "flux": flux}}}
    lines = drawn(160, *live_tables(shown, [], None)).splitlines()
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    assert rows == [
        ["flux (paused)", "12", "90 s", "1", "8", "37", "0", "0", "3", "2"],
        ["zimg", "0", "", "0", "0", "0", "0", "0", "0", "0"],
    ]
    assert list(live_tables(status(), [], None)) == []

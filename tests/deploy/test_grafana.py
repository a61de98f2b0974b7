"""deploy/grafana: what the tool writes, out of metrics that there are, in PromQL that Prometheus takes."""

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.core import GaugeMetricFamily

from slb.observe import health
from slb.observe.collectors import MetricsCollector
from slb.observe.families import Rows, gauges
from tests.support.prometheus import PROMTOOL, substituted
from tools.grafana.boards import BOARDS
from tools.grafana.model import FOLDER, Board, text_of
from tools.metric_names import SUFFIXES
from tools.reference import metrics_of_all_roles

BOARD = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)


def _committed(board: Board) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / f"{board.name}.json").read_text())
    return loaded


@BOARD
def test_the_dashboard_is_what_the_tool_writes(board: Board) -> None:
    assert (FOLDER / f"{board.name}.json").read_text() == text_of(board), "make grafana"


def test_there_is_no_other_dashboard() -> None:
    assert {file.stem for file in FOLDER.glob("*.json")} == {board.name for board in BOARDS}


@BOARD
def test_it_imports_wherever_the_metrics_are(board: Board) -> None:
    document = _committed(board)
    assert document["uid"] == f"slb-{board.name}"
    assert document["schemaVersion"] >= 36
    assert document["templating"]["list"][0] == {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
    }
    panels = [each for each in document["panels"] if each["type"] != "row"]
    sources = {each["datasource"]["uid"] for each in panels}
    sources |= {target["datasource"]["uid"] for each in panels for target in each["targets"]}
    assert sources == {"${datasource}"}
    assert len({each["id"] for each in document["panels"]}) == len(document["panels"])
    assert [each["title"] for each in panels if not each["fieldConfig"]["defaults"]["unit"]] == []
    assert [each["title"] for each in panels if not each["description"].endswith(".")] == []


@BOARD
def test_no_panel_covers_another(board: Board) -> None:
    taken: set[tuple[int, int]] = set()
    for each in _committed(board)["panels"]:
        place = each["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, each["title"]
        taken |= cells


@BOARD
def test_rates_are_over_as_long_as_the_scrapes_want(board: Board) -> None:
    text = json.dumps(_committed(board))
    assert set(re.findall(r"\[([^\]]*)\]", " ".join(re.findall(r"rate\([^()]*\)", text)))) <= {"$__rate_interval"}


@pytest.mark.skipif(not PROMTOOL.exists(), reason="apt-get install prometheus")
@BOARD
def test_prometheus_takes_each_expression(board: Board, tmp_path: Path) -> None:
    lines = [target["expr"] for each in _committed(board)["panels"] for target in each.get("targets", ())]
    rules = [{"record": f"panel:{number}", "expr": substituted(line)} for number, line in enumerate(lines)]
    assert [rule["expr"] for rule in rules if "$" in rule["expr"]] == []
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": board.name, "rules": rules}]}))
    run = subprocess.run([PROMTOOL, "check", "rules", file], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(lines)} rules found" in run.stdout


NOT_SHOWN = {
    "slb_discovery_answered_seconds": "slb_discovery_failing tells of it",
    "slb_discovery_writes_total": "slb_discovery_members_changed_total has what they change",
    "slb_dns_checks_total": "slb_dns_addresses_out has what they find",
    "slb_dns_connections": "few clients ask over TCP",
    "slb_dns_truncated_total": "those are answers too",
    "slb_ejections_total": "slb_upstream_ejections_total has them by upstream",
    "slb_full_syncs_total": "slb_mirror_staleness_seconds tells of those that fail",
    "slb_panics_total": "slb_panic is shown",
}


def test_every_metric_is_on_a_dashboard_or_in_an_alert_or_has_a_reason() -> None:
    texts = [*FOLDER.glob("*.json"), FOLDER.parent / "prometheus" / "rules.yaml"]
    shown = set(re.findall(r"\bslb_[a-z_]+", " ".join(file.read_text() for file in texts)))
    families = MetricsCollector(metrics_of_all_roles()).collect()
    names = [[each.name + suffix for suffix in SUFFIXES[each.type]] for each in families]
    assert {first for first, *others in names if shown.isdisjoint([first, *others])} == set(NOT_SHOWN)


def test_a_metric_that_was_renamed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def renamed(name: str, text: str, labels: Sequence[str], rows: Rows) -> GaugeMetricFamily:
        return gauges(name.replace("slb_panic", "slb_alarm"), text, labels, rows)

    monkeypatch.setattr(health, "gauges", renamed)
    route = next(board for board in BOARDS if board.name == "route")
    with pytest.raises(ValueError, match="route, Panic: there is no metric slb_panic"):
        text_of(route)


def test_a_label_that_the_metric_has_not_is_found() -> None:
    board = BOARDS[0]
    panel = replace(board.rows[0].panels[0], lines={"sum by (upstreem) (slb_upstream_up{%s})": ""})
    wrong = replace(board, rows=[replace(board.rows[0], panels=[panel])])
    with pytest.raises(ValueError, match="no metric here has the label upstreem"):
        text_of(wrong)
